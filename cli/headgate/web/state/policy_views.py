"""The decision policies of a snapshot as values. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.rules.yaml_text import yaml_text
from headgate.web.problems import not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.policy_values import DecisionPolicyValue, MergedRule, Part, PolicyDetail
from headgate.web.state.rule_views import find_etag
from rulecore.check_policies import enters_decisions
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.slots import Slot
from rulecore.documents.status import Subject
from rulecore.streams import stream_names

#: The parts that rules take in decisions.
_PARTS: tuple[Part, ...] = ("counts", "shadow", "none")
#: The colours of outcomes: of the strongest, of those between, of the default.
_STRONGEST, _STRONG, _BETWEEN, _DEFAULT = "bad", "warn", "calm", "good"


def outcome_tones(policy: DecisionPolicy) -> dict[str, str]:
    """Return the colour of each outcome of a policy, the strongest first."""
    decide = policy.decide
    between = [name for name in decide.order if name != decide.default]
    tones = dict.fromkeys(between, _BETWEEN) | dict.fromkeys(between[1:2], _STRONG)
    tones |= dict.fromkeys(between[:1], _STRONGEST)
    return {name: tones.get(name, _DEFAULT) for name in decide.order}


def all_tones(snapshot: Snapshot) -> dict[str, str]:
    """Return the colour of each outcome of all policies."""
    found: dict[str, str] = {}
    for policy in snapshot.history.rules.policies.documents.values():
        found |= {name: tone for name, tone in outcome_tones(policy).items() if name not in found}
    return found


def list_policies(snapshot: Snapshot) -> tuple[DecisionPolicyValue, ...]:
    """Return the decision policies, by name."""
    return tuple(_value(snapshot, one) for one in snapshot.history.rules.policies.documents.values())


def find_policy_document(snapshot: Snapshot, name: str) -> PolicyDetail:
    """Return a decision policy. ``ProblemError`` if the app has never accepted one of this name."""
    versions = policy_versions(snapshot, name)
    if not versions:
        raise not_found(f"app {snapshot.app} has no decision policy {name}")
    stored = snapshot.history.rules.policies.documents.get(name)
    newest = versions[max(versions)] if stored is None else stored
    return PolicyDetail(
        policy=_value(snapshot, newest),
        etag=find_etag(snapshot, name, Subject.DECISION_POLICY),
        in_force=stored is not None,
        versions=tuple(sorted(versions)),
        yaml=yaml_text(newest),
        rules=tuple(merged_rules(snapshot, newest)),
    )


def policy_versions(snapshot: Snapshot, name: str) -> Mapping[int, DecisionPolicy]:
    """Return the versions of a decision policy that were ever accepted, as they were last."""
    return {version: own[-1][1] for (of, version), own in snapshot.history.policies.items() if of == name}


def merged_rules(snapshot: Snapshot, policy: DecisionPolicy) -> Iterator[MergedRule]:
    """Yield the rules on the policy's streams that are evaluated, those that count first."""
    names, order = {*stream_names(policy.on)}, policy.decide.order
    found = [one for one in snapshot.history.rules.rules.items() if names & {*stream_names(one[1].rule.on)}]
    own = [
        MergedRule(
            rule=compiled.rule.id,
            version=compiled.rule.version,
            mode=compiled.rule.mode_text,
            kind=compiled.rule.kind.value,
            outcome=compiled.rule.then.outcome,
            score=compiled.rule.then.score,
            part=_find_part(compiled.rule),
        )
        for place, compiled in found
        if place.slot in (Slot.LIVE, Slot.CANDIDATE)
    ]
    strength = {name: number for number, name in enumerate(order)}
    yield from sorted(
        own, key=lambda one: (_PARTS.index(one.part), strength.get(one.outcome or "", len(order)), -one.score, one.rule)
    )


def _find_part(rule: Rule) -> Part:
    """Return the part that a rule takes in decisions."""
    if not enters_decisions(rule):
        return "none"
    return "shadow" if rule.status is RuleMode.SHADOW else "counts"


def _value(snapshot: Snapshot, policy: DecisionPolicy) -> DecisionPolicyValue:
    rules, decide = [*merged_rules(snapshot, policy)], policy.decide
    by_stream = snapshot.history.rules.policies.by_stream.values()
    return DecisionPolicyValue(
        decision_policy=policy.decision_policy,
        version=policy.version,
        owner=policy.owner,
        description=policy.description,
        stream=policy.on,
        order=decide.order,
        default=decide.default,
        score=decide.score.value,
        bands=decide.bands,
        where=policy.where,
        share_percent=policy.share,
        tests=len(policy.tests),
        compiles=any(one.policy == policy for one in by_stream),
        counting=sum(one.part == "counts" for one in rules),
        shadow=sum(one.part == "shadow" for one in rules),
    )
