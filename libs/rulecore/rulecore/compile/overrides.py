"""A rule without anything that silences it: back-tests and explanations ask which alerts it would raise."""

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
    """Return the rule without a silence after an alert. One per event keeps the route that ``suppress`` gave it."""
    own = rule.rule
    short = own.suppress.model_copy(update={"duration": 1}) if own.suppress and rule.kind is RuleKind.EVENT else None
    then = own.then.model_copy(update={"alert": True})
    return replace(rule, rule=own.model_copy(update={"suppress": short, "then": then}))
