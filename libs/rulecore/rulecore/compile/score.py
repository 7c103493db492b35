"""The signals that a score rule adds up, computed once. Refuses to know the rules it names: they may never come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import SignalCounting
from rulecore.errors import RuleSetError
from streamcore.schema import LONG, STRING, Type

#: What alerts show: the sum, the rules that gave it (sorted, with commas), and how many signals those are.
ALERT_FIELDS: Final[tuple[tuple[str, Type], ...]] = (("sum", LONG), ("rules", STRING), ("count", LONG))


@dataclass(frozen=True, slots=True)
class CompiledScore:
    """``weights``: by rule, None where the rule's own score counts; ``every`` signal, or the largest of each rule."""

    weights: Mapping[str, int | None]
    within_ms: int
    limit: int
    every: bool


def compile_score(rule: Rule) -> CompiledScore:
    """Compile a score; raise ``RuleSetError`` for a rule that would be its own signal."""
    assert rule.score is not None, "a score rule"
    score = rule.score
    if rule.id in score.of:
        raise RuleSetError("score.of: names the rule itself; scores are added of other rules")
    return CompiledScore(dict(score.of), score.within, score.limit, score.count is SignalCounting.EVERY)
