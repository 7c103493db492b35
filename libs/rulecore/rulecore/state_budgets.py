"""The budgets of the state of rules in one shard: for a rule, for a group of rules, and for all rules.

A rule above its budget goes into quarantine. Of a group above its budget, or of all rules, it is the rule that keeps
most. Quarantine drops the state, so other rules go on as if the rule had never been there. The decision depends only on
the state at the end of a cut. While the state is small, it is made from sizes that are known in constant time.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rulecore.compile.rule import STAGE_FAMILIES
from rulecore.groups.base import GroupId
from rulecore.settings import StateBudgets
from rulecore.state_size import StateHolder, StateSize


class BudgetScope(enum.StrEnum):
    """The scope of a budget."""

    RULE = "rule"
    GROUP = "group"
    SHARD = "shard"


class OverBudget(NamedTuple):
    """A rule version (``id@version``) whose state must go, the budget that is reached, and the reason with figures."""

    version: str
    budget: BudgetScope
    reason: str


def over_budget(
    groups: Mapping[GroupId, StateHolder], others: Sequence[StateHolder], budgets: StateBudgets, watermark_ms: int
) -> list[OverBudget]:
    """Return the rules to put into quarantine; after that, ask again.

    ``others``: state outside of groups. ``watermark_ms``: the watermark at the end of the cut.
    """
    if _surely_within(groups, others, budgets):
        return []
    uses = {group: groups[group].state_use(watermark_ms) for group in sorted(groups)}
    other_uses = [one.state_use(watermark_ms) for one in others]
    rules: dict[str, StateSize] = {}
    for use in (*other_uses, *uses.values()):
        for version, size in use.by_rule.items():
            rules[version] = rules.get(version, StateSize()) + size
    over = [version for version, size in sorted(rules.items()) if size.bytes > budgets.rule_bytes]
    if over:
        return [OverBudget(v, BudgetScope.RULE, _rule_reason(rules[v], budgets.rule_bytes)) for v in over]
    large = [(group, use) for group, use in uses.items() if use.total.bytes > budgets.group_bytes and use.by_rule]
    if large:
        return [
            OverBudget(
                version := _largest(use.by_rule),
                BudgetScope.GROUP,
                _shared_reason(f"the group {group}", use.total, use.by_rule[version], budgets.group_bytes),
            )
            for group, use in large
        ]
    total = sum((use.total for use in (*other_uses, *uses.values())), StateSize())
    if total.bytes <= budgets.shard_bytes or not rules:
        return []
    version = _largest(rules)
    return [
        OverBudget(version, BudgetScope.SHARD, _shared_reason("the shard", total, rules[version], budgets.shard_bytes))
    ]


def _surely_within(groups: Mapping[GroupId, StateHolder], others: Sequence[StateHolder], budgets: StateBudgets) -> bool:
    """Return whether no budget can be reached, from upper bounds of the sizes."""
    sizes = {group: holder.state_size().bytes for group, holder in groups.items()}
    suppressed = sum(one.state_size().bytes for one in others)
    of_rule: Counter[object] = Counter()
    for group, size in sizes.items():
        # A rule has state in one group only, but in the stage for features in one for each key of its features.
        of_rule[(group.kind, group.stream) if group.kind in STAGE_FAMILIES.values() else group] += size
    return (
        max(of_rule.values(), default=0) + suppressed <= budgets.rule_bytes
        and max(sizes.values(), default=0) <= budgets.group_bytes
        and sum(sizes.values()) + suppressed <= budgets.shard_bytes
    )


def _largest(sizes: Mapping[str, StateSize]) -> str:
    """Return the version with most bytes; of equal ones, the last by name."""
    return max(sizes, key=lambda version: (sizes[version].bytes, version))


_ADVICE = "group by a key with fewer values, shorten the time, or narrow `where`; its state is dropped"


def _rule_reason(size: StateSize, limit: int) -> str:
    return (
        f"the rule keeps {size.entries} entries of state in one shard, {size.bytes} bytes, at most {limit} "
        f"(`max_rule_state_bytes`): {_ADVICE}"
    )


def _shared_reason(where: str, total: StateSize, own: StateSize, limit: int) -> str:
    setting = "max_shard_state_bytes" if where == "the shard" else "max_group_state_bytes"
    return (
        f"{where} has {total.entries} entries of state, {total.bytes} bytes in one shard, at most {limit} "
        f"(`{setting}`), and this rule keeps most: {own.entries} entries, {own.bytes} bytes: {_ADVICE}"
    )
