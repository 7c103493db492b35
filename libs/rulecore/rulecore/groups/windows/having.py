"""``having`` of many rules at once, over rows that are windows as they stood at some context.

The conditions are looked up by the index that finds rules per event (``rulecore.matching.matcher``): thresholds of one
aggregate
are bounds of one column, so the cost follows the rows, the aggregates and the matches, not the number of rules.
Promises: the pairs are those of evaluating every rule on every row; a rule that raises is named, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.firing import RuleFailure
from rulecore.groups.windows.members import GroupMember
from rulecore.matching.matcher import EventMatcher

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RuleHits:
    """Pairs of a row and the number of a member whose ``having`` is true there, in order of (row, member)."""

    row: Ints
    member: Ints

    def select(self, mask: Mask | Ints) -> RuleHits:
        """Return some of the pairs."""
        return RuleHits(self.row[mask], self.member[mask])


class Having:
    """The conditions of these members, ready to be evaluated. ``bits`` and ``owners`` are by member.

    ``needs``: the columns that the conditions read. ``counters``: the members' columns of own rows, and ``owners`` the
    number of each member's among them.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self.members = tuple(members)
        self.needs = frozenset[str]().union(*(m.needs for m in self.members))
        self.bits = np.array([m.bit for m in self.members], np.int64)
        self.counters = tuple(sorted({m.rows for m in self.members}))
        self.owners = np.array([self.counters.index(m.rows) for m in self.members], np.int64)
        self._matcher = EventMatcher(self.members)

    def __bool__(self) -> bool:
        """Return whether there is anything to evaluate."""
        return bool(self.members)

    def evaluate(self, frame: pl.DataFrame) -> tuple[RuleHits, list[RuleFailure]]:
        """Return where which condition is true. ``frame``: at least the columns of ``needs``, in physical form."""
        found = self._matcher.match(frame)
        failures = [RuleFailure(self.members[number].rule, reason) for number, reason in found.failed]
        return RuleHits(found.row.astype(np.int64), found.rule.astype(np.int64)), failures
