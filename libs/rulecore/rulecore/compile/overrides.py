"""Changes a rule so that nothing suppresses its alerts, for back-tests and explanations."""

from __future__ import annotations

from dataclasses import replace

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Rule, RuleKind, RuleMode


def as_live(rule: Rule) -> Rule:
    """Return the rule as if it were live, with alerts and without a budget, as a back-test evaluates it."""
    then = rule.then.model_copy(update={"alert": True})
    change = {"mode": RuleMode.LIVE, "effective": None, "tests": (), "budget": None, "then": then}
    return rule.model_copy(update=change)


def without_suppression(rule: CompiledRule) -> CompiledRule:
    """Return the rule without suppression. An event rule keeps a ``suppress`` of 1 ms, and with it its route."""
    own = rule.rule
    short = own.suppress.model_copy(update={"duration": 1}) if own.suppress and rule.kind is RuleKind.EVENT else None
    then = own.then.model_copy(update={"alert": True})
    change = {"suppress": short, "then": then}
    return replace(rule, rule=own.model_copy(update=change), whole=rule.whole.model_copy(update=change))
