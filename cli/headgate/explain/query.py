"""The query and the result of an explanation."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from headgate.kafka_login import Login
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.time_arguments import parse_number, parse_time
from rulecore.compile.rule import CompiledRule
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import Explanation, RuleReason

if TYPE_CHECKING:  # an explanation from files reads nothing
    from headgate.explain.kafka_reader import KafkaRecord
    from rulecore.ruleset.history import RuleHistory
    from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """The arguments of ``headgate rules explain``. ``target``: an alert id, or a rule with an optional version.
    ``now_ms``: the time of the command. ``scan``: the most records to read of a topic.
    ``history``: of the app's rules, for a caller who knows it; None: read from the control topic."""

    target: str
    event: str | None
    event_json: Path | None
    key: tuple[str, ...]
    at: str | None
    rules: Path | None
    streams: Path | None
    lists: Path | None
    topics: tuple[str, ...]
    login: Login
    app: str
    scan: int
    now_ms: int
    formats: RecordFormats = ALL_JSON
    history: RuleHistory | None = None

    @property
    def kafka(self) -> KafkaSettings:
        """The Kafka of the app."""
        return self.login.settings("headgate-explain")

    @property
    def rule(self) -> tuple[str, int | None]:
        """The rule's id, and its version if the target is ``ID@VERSION``, else None."""
        name, _, version = self.target.partition("@")
        number = parse_number(version)
        return (self.target, None) if number is None else (name, number)

    @property
    def at_ms(self) -> int | None:
        """The time of ``--at`` in epoch milliseconds."""
        return None if self.at is None else parse_time(self.at, self.now_ms, "--at")

    @property
    def is_alert(self) -> bool:
        """Whether the target is an alert's id."""
        return len(self.target) == 32 and set(self.target) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The result of an explanation. ``about``: the event or key in question, for users. ``reasons``: the reasons
    why the rule raised no alert that are not in its conditions.

    ``alert``: the published alert that the query names. ``differences``: the fields in which the recomputed alert
    differs from it. ``published``: the record of the recomputed alert. ``notes``: on what the result is based.
    """

    explanation: Explanation
    about: str
    reasons: tuple[RuleReason, ...]
    notes: tuple[str, ...]
    alert: Mapping[str, Json] | None = None
    differences: tuple[str, ...] = ()
    published: KafkaRecord | None = None

    @property
    def same(self) -> bool | None:
        """Whether the recomputed alert is the published one; None if the query names no alert."""
        return None if self.alert is None else not self.differences


def known_rule(target: str, rules: Mapping[str, CompiledRule]) -> CompiledRule:
    """Return the rule with the id ``target``. Raises ``InputError`` with similar ids if there is none."""
    if target in rules:
        return rules[target]
    near = difflib.get_close_matches(target, rules, 3)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(rules)[:10]) or 'none'}"
    raise InputError(f"no rule {target!r}: {hint}")


def signal_rules(rule: CompiledRule, known: Mapping[str, CompiledRule]) -> tuple[CompiledRule, ...]:
    """Return those of the known rules whose scores the rule adds."""
    signals = rule.rule.score.of if rule.rule.score is not None else ()
    return tuple(known[name] for name in signals if name in known)
