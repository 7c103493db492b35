"""Compiles a score rule: the signals (matches of other rules) that it adds up. The named rules need not exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import SignalCounting
from rulecore.errors import RuleSetError
from streamcore.schema import LONG, STRING, Type

#: Fields of an alert: the sum, the rules whose signals were added (sorted, with commas), and the number of signals.
ALERT_FIELDS: Final[tuple[tuple[str, Type], ...]] = (("sum", LONG), ("rules", STRING), ("count", LONG))


@dataclass(frozen=True, slots=True)
class CompiledScore:
    """The compiled score. ``weights``: by rule, the score of a signal; None for the score in the rule's own ``then``.

    ``within_ms``: how long a signal is added. ``limit``: the sum at which the rule fires. ``every``: whether every
    signal is added, or only the largest of each rule.
    """

    weights: Mapping[str, int | None]
    within_ms: int
    limit: int
    every: bool


def compile_score(rule: Rule) -> CompiledScore:
    """Compile a score; raise ``RuleSetError`` if the rule names itself."""
    assert rule.score is not None, "a score rule"
    score = rule.score
    if rule.id in score.of:
        raise RuleSetError("score.of: names the rule itself; scores are added of other rules")
    return CompiledScore(dict(score.of), score.within, score.limit, score.count is SignalCounting.EVERY)
