"""Checks whether a rule can give signals to a score rule that names it, before the score rule is accepted."""

from __future__ import annotations

from collections.abc import Mapping

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.errors import RuleSetError


def incompatibility(score: CompiledRule, other: CompiledRule) -> str | None:
    """Return the reason why ``other`` can give no signals to a score rule that names it; None when it can."""
    assert score.score is not None, "a score rule"
    name, weight = other.rule.id, score.score.weights[other.rule.id]
    if other.kind is RuleKind.SCORE:
        return f"{name} is a score rule itself; name the rules that it adds up"
    if other.rule.on != score.rule.on:
        return f"{name} is on stream {other.rule.on}, this rule on {score.rule.on}; scores are added within one stream"
    if weight is None and other.rule.then.score == 0:
        return f"{name} has no score in its `then`; give it a weight here, such as {{{name}: 10}}"
    if other.kind is RuleKind.EVENT:
        return None
    if not set(score.group_by) <= set(other.group_by):
        needed, given = ", ".join(score.group_by), ", ".join(other.group_by)
        return f"{name} is grouped by [{given}], so its score belongs to no single key; it needs [{needed}] in group_by"
    if other.route != score.route:
        return f"{name} is routed by another key of {score.rule.on} than this rule; group both by the same key"
    return None


def check_compatible(score: CompiledRule, rules: Mapping[str, CompiledRule]) -> None:
    """Raise ``RuleSetError`` if a score rule names one of these rules that can give it no signals.

    Names of unknown rules, and rules of other kinds than score, are accepted.
    """
    if score.score is None:
        return
    for name in score.score.weights:
        if name in rules and (reason := incompatibility(score, rules[name])) is not None:
            raise RuleSetError(f"score.of: {reason}")
