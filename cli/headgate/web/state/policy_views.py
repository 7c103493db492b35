"""The decision policies of a snapshot as values. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.web.state.app_reader import Snapshot
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.loading import decode_policy
from rulecore.errors import RuleError

#: The colours of outcomes: of the strongest, of those between, of the default.
_STRONGEST, _STRONG, _BETWEEN, _DEFAULT = "bad", "warn", "calm", "good"


def policies_in_force(snapshot: Snapshot) -> Mapping[str, DecisionPolicy]:
    """Return the decision policies that are stored, by name; without those that this release reads no more."""
    found = {}
    for name, value in sorted(snapshot.history.rules.policies.stored.items()):
        try:
            found[name] = decode_policy(value, len(value))
        except RuleError:
            continue
    return found


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
    for policy in policies_in_force(snapshot).values():
        found |= {name: tone for name, tone in outcome_tones(policy).items() if name not in found}
    return found
