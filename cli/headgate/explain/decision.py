"""Explains a decision: the rules that fired at its event, with their values, and how they became its outcome.

The decision is read from its lane, and the control topic is replayed for the version of its policy that was accepted
before; one that the app has rejected decides nothing. What the policy makes of the
listed rules is computed again, so a difference is shown. What each rule made of the event is another question, of which
the command is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any  # a decision is JSON

import click
import orjson

from headgate.console.output import Json
from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.explain.query import ExplainQuery
from headgate.rules.history import read_history
from headgate.rules.publish import AppTopics
from headgate.time_arguments import show_time
from rulecore.alerts.decisions import decide
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.ruleset.history import RuleHistory
from streamcore.wire.lanes import DECISIONS

_WORDS = {"suppressed": "its alert is suppressed", "none": "gives no alert"}


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """A published decision, and the version of its policy; None if the control topic does not have it. ``again``:
    outcome, score and band that the policy gives for the listed rules; None without it, or if rules were left out."""

    decision: Mapping[str, Any]
    policy: DecisionPolicy | None
    again: tuple[str, int, str | None] | None

    @property
    def same(self) -> bool | None:
        """Whether the recomputed decision is the published one; None if it was not computed."""
        own = self.decision
        return None if self.again is None else self.again == (own["outcome"], own["score"], own["band"])


def find_decision(query: ExplainQuery) -> ExplainedDecision | None:
    """Return the decision of that id; None if it is not among the last ``query.scan`` ones of the app."""
    found = KafkaReader(query.kafka).find(f"{query.app}.{DECISIONS}", "key", query.target.encode(), query.scan)
    if found is None or found.value is None:
        return None
    return explain_record(found, query.history or read_history(query.kafka, AppTopics(query.app), query.streams))


def explain_record(record: KafkaRecord, history: RuleHistory) -> ExplainedDecision:
    """Return the decision of a record with the version of its policy. ``history``: of the app's rules."""
    decision = orjson.loads(record.value or b"")
    policy = history.policy(decision["policy"], decision["version"], record.timestamp_ms)
    if policy is None or "left_out" in decision:
        return ExplainedDecision(decision, policy, None)
    fired = [(one["outcome"], one["score"]) for one in decision["rules"]]
    return ExplainedDecision(decision, policy, decide(policy.decide.model_dump(mode="json"), fired))


def decision_json(result: ExplainedDecision) -> Json:
    """Return the JSON of an explained decision."""
    policy = None if result.policy is None else result.policy.model_dump(mode="json", by_alias=True)
    return {"decision": dict(result.decision), "policy": policy, "same": result.same}


def decision_text(result: ExplainedDecision) -> str:
    """Render a decision as a tree: outcome, score and band, then the rules with their values."""
    decision = result.decision
    source = decision["source"]
    place = f"{source['topic']}:{source['partition']}:{source['offset']}"
    keys = ", ".join(f"{name}={value}" for name, value in decision["key"].items())
    event = [f"event {decision['event_id']}"] * (decision["event_id"] is not None)
    about = ", ".join([*event, place, f"{show_time(decision['event_time_ms'])} UTC", *([keys] if keys else [])])
    name = click.style(f"{decision['policy']} version {decision['version']}", bold=True)
    lines = [f"{name} on {about}: {click.style(decision['outcome'].upper(), bold=True)}", f"  {_how(result)}"]
    if result.same is not None:
        lines.append("  recomputed: the same" if result.same else click.style("  recomputed: not the same", fg="red"))
    lines += _tree("rules that count", decision["rules"], decision["outcome"], place)
    lines += _tree("in shadow, which do not count", decision["shadow"], None, place)
    if any("*" in line for line in lines):
        lines += ["", click.style("* this outcome decided", dim=True)]
    return "\n".join(lines)


def _how(result: ExplainedDecision) -> str:
    """Return score, band and the reason of the outcome."""
    decision, policy = result.decision, result.policy
    bands = "" if policy is None else ", ".join(f"{n} from {least}" for n, least in policy.decide.bands.items())
    decided = "*" if decision["band"] == decision["outcome"] else ""
    band = f"band {decision['band']}{decided}" if decision["band"] is not None else "below all bands"
    text = f"score {decision['score']}: {band}" + (f" ({bands})" if bands else "")
    if not decision["rules"]:
        chosen = {"where": "; the policy's condition has chosen it", "share": "; it is in the share"}
        return f"{text}; no rule that counts fired, so the default" + chosen.get(decision["cause"], "")
    return f"{text}; {decision['left_out']} more rules are not listed" if "left_out" in decision else text


def _tree(title: str, entries: list[Mapping[str, Any]], outcome: str | None, place: str) -> Iterator[str]:
    """Yield the lines of some rules, each with its values and the command that explains it."""
    if not entries:
        return
    yield from ("", title)
    for number, entry in enumerate(entries, 1):
        last = number == len(entries)
        decided = "*" if entry["outcome"] is not None and entry["outcome"] == outcome else ""
        notes = [_WORDS.get(entry["alert"], ""), "incomplete" if entry.get("incomplete") else ""]
        more = f"  ({', '.join(filter(None, notes))})" if any(notes) else ""
        name = click.style(f"{entry['rule']}@{entry['version']}", bold=True)
        said = f"{entry['outcome'] or 'no outcome'}{decided}, score {entry['score']}: {entry['message']}{more}"
        yield f"{'└─' if last else '├─'} {name}  {said}"
        lead = "   " if last else "│  "
        for value, seen in entry["values"].items():
            yield f"{lead}{value} = {seen}"
        why = f"headgate rules explain {entry['rule']}@{entry['version']} --event {place}"
        yield lead + click.style(why, dim=True)
