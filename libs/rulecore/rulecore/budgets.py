"""What a rule may give in one cut: its first matches, and beyond that a reason to put it into quarantine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rulecore.compiled import CompiledRule, RuleLimits
from rulecore.firing import Firing
from rulecore.index import Ints
from rulecore.matcher import EventMatcher, Matches
from rulecore.slots import version_key


def within_budget(
    matcher: EventMatcher[CompiledRule], matches: Matches, counts: Ints, limits: RuleLimits
) -> tuple[slice | Sequence[int], list[tuple[CompiledRule, str]]]:
    """The matches that are given, and the rules that have more than they may: they give their first ones.

    ``counts``: matches by rule.
    """
    most = {n: _budget(matcher.rules[n], limits) for n in np.flatnonzero(counts).tolist()}
    over = [n for n, budget in most.items() if counts[n] > budget]
    if not over:
        return slice(None), []
    keep = np.ones(len(matches.rule), np.bool_)
    for number in over:
        keep[np.flatnonzero(matches.rule == number)[most[number] :]] = False
    said = [(matcher.rules[n], _over_budget(int(counts[n]), most[n])) for n in over]
    return np.flatnonzero(keep).tolist(), said


def first_firings(
    firings: Sequence[Firing], limits: RuleLimits
) -> tuple[Sequence[Firing], list[tuple[CompiledRule, str]]]:
    """What ``within_budget`` is for rules per event."""
    if len(firings) <= limits.matches and not any(f.rule.rule.budget for f in firings):
        return firings, []
    seen: dict[str, int] = {}
    kept: list[Firing] = []
    for firing in firings:
        name = version_key(firing.rule.rule)
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= _budget(firing.rule, limits):
            kept.append(firing)
    rules = {version_key(f.rule.rule): f.rule for f in firings}
    most = {name: _budget(rule, limits) for name, rule in rules.items()}
    over = [name for name, count in seen.items() if count > most[name]]
    return kept, [(rules[name], _over_budget(seen[name], most[name])) for name in over]


def _budget(rule: CompiledRule, limits: RuleLimits) -> int:
    """Matches that the rule may have in a cut."""
    own = None if rule.rule.budget is None else rule.rule.budget.matches
    return limits.matches if own is None else min(own, limits.matches)


def _over_budget(count: int, most: int) -> str:
    return f"{count} matches in one cut, at most {most}: only the first were given; make the rule narrower"
