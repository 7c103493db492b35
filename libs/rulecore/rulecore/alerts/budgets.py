"""The budget of a rule: its most matches in one cut. Matches within it raise alerts; a rule above it is quarantined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.slots import version_key
from rulecore.firing import RuleFiring
from rulecore.matching.index import Ints
from rulecore.matching.matcher import EventMatcher, EventMatches


def matches_within_budget(
    matcher: EventMatcher[CompiledRule], matches: EventMatches, counts: Ints, limits: RuleLimits
) -> tuple[slice | Sequence[int], list[tuple[CompiledRule, str]]]:
    """Return the indexes of the matches within the budgets, and the rules above their budgets with the reasons.

    ``counts``: the number of matches of each rule of the matcher.
    """
    budgets = {n: _budget(matcher.rules[n], limits) for n in np.flatnonzero(counts).tolist()}
    exceeding = [n for n, budget in budgets.items() if counts[n] > budget]
    if not exceeding:
        return slice(None), []
    keep = np.ones(len(matches.rule), np.bool_)
    for number in exceeding:
        keep[np.flatnonzero(matches.rule == number)[budgets[number] :]] = False
    reasons = [(matcher.rules[n], _over_budget(int(counts[n]), budgets[n])) for n in exceeding]
    return np.flatnonzero(keep).tolist(), reasons


def firings_within_budget(
    firings: Sequence[RuleFiring], limits: RuleLimits
) -> tuple[Sequence[RuleFiring], list[tuple[CompiledRule, str]]]:
    """Return the firings within the budgets, and the rules above their budgets with the reasons."""
    if len(firings) <= limits.matches and not any(f.rule.rule.budget for f in firings):
        return firings, []
    seen: dict[str, int] = {}
    kept: list[RuleFiring] = []
    for firing in firings:
        name = version_key(firing.rule.rule)
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= _budget(firing.rule, limits):
            kept.append(firing)
    rules = {version_key(f.rule.rule): f.rule for f in firings}
    budgets = {name: _budget(rule, limits) for name, rule in rules.items()}
    exceeding = [name for name, count in seen.items() if count > budgets[name]]
    return kept, [(rules[name], _over_budget(seen[name], budgets[name])) for name in exceeding]


def _budget(rule: CompiledRule, limits: RuleLimits) -> int:
    """Return the most matches of the rule in a cut: its own ``budget``, at most that of the app."""
    own = None if rule.rule.budget is None else rule.rule.budget.matches
    return limits.matches if own is None else min(own, limits.matches)


def _over_budget(count: int, budget: int) -> str:
    """Return the reason of a quarantine."""
    return f"{count} matches in one cut, at most {budget}: only the first alerted; make the rule narrower"
