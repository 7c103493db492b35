"""A rule as if nothing kept it silent: what back-tests and explanations ask is what it would say."""

from __future__ import annotations

from dataclasses import replace

from rulecore.compiled import CompiledRule
from rulecore.model import Kind, Mode, Rule


def as_live(rule: Rule) -> Rule:
    """The rule as if it were live, with alerts and without a budget: what a back-test asks is what it would do."""
    then = rule.then.model_copy(update={"alert": True})
    change = {"mode": Mode.LIVE, "effective": None, "tests": (), "budget": None, "then": then}
    return rule.model_copy(update=change)


def outspoken(rule: CompiledRule) -> CompiledRule:
    """The rule without a silence after an alert. One per event keeps the route that ``suppress`` gave it."""
    own = rule.rule
    short = own.suppress.model_copy(update={"duration": 1}) if own.suppress and rule.kind is Kind.EVENT else None
    then = own.then.model_copy(update={"alert": True})
    return replace(rule, rule=own.model_copy(update={"suppress": short, "then": then}))
