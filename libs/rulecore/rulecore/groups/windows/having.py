"""Evaluates ``having`` of many rules at once, on a frame with one row per window.

It uses the index that also evaluates event rules (``rulecore.matching.matcher``). Thresholds of one aggregate are
bounds of one column, so the cost grows with the rows, the aggregates and the matches, not with the number of rules. The
result is that of evaluating every rule on every row. A rule that raises is returned as a failure; other rules are not
affected.
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
        """Return the pairs at this mask or these indexes."""
        return RuleHits(self.row[mask], self.member[mask])


class Having:
    """The ``having`` conditions of some members, as an index. ``bits`` and ``owners`` hold one number per member.

    ``needs``: the columns that the conditions read. ``counters``: the distinct ``rows`` columns of the members;
    ``owners``: the index in ``counters`` of each member's column.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self.members = tuple(members)
        self.needs = frozenset[str]().union(*(m.needs for m in self.members))
        self.bits = np.array([m.bit for m in self.members], np.int64)
        self.counters = tuple(sorted({m.rows for m in self.members}))
        self.owners = np.array([self.counters.index(m.rows) for m in self.members], np.int64)
        self._matcher = EventMatcher(self.members)

    def __bool__(self) -> bool:
        """Return whether there are members."""
        return bool(self.members)

    def evaluate(self, frame: pl.DataFrame) -> tuple[RuleHits, list[RuleFailure]]:
        """Return the pairs of a row and a member whose condition is true, and the rules that failed.

        ``frame``: at least the columns of ``needs``, with physical values.
        """
        matches = self._matcher.match(frame)
        failures = [RuleFailure(self.members[number].rule, reason) for number, reason in matches.failed]
        return RuleHits(matches.row.astype(np.int64), matches.rule.astype(np.int64)), failures
