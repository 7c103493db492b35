"""What a score rule adds up, worked out once. Refuses to know the rules that it names: they may come later or never."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.errors import RuleSetError
from rulecore.kinds import Counting
from rulecore.model import Rule
from streamcore.schema import LONG, STRING, Type

#: What alerts show: the sum, the rules that gave it (sorted, with commas), and how many signals those are.
FIGURES: Final[tuple[tuple[str, Type], ...]] = (("sum", LONG), ("rules", STRING), ("count", LONG))


@dataclass(frozen=True, slots=True)
class Scoring:
    """``weights``: by rule, None where the rule's own score counts; ``every`` signal, or the largest of each rule."""

    weights: Mapping[str, int | None]
    within_ms: int
    limit: int
    every: bool


def scoring_of(rule: Rule) -> Scoring:
    """``RuleSetError`` for a rule that would be its own signal."""
    assert rule.score is not None, "a score rule"
    score = rule.score
    if rule.id in score.of:
        raise RuleSetError("score.of: names the rule itself; scores are added of other rules")
    return Scoring(dict(score.of), score.within, score.limit, score.count is Counting.EVERY)
