"""From the conditions that events satisfy to the roles that they have in sequences: joins of whole numbers.

Promises: the cost follows the events, the conditions that they satisfy and the sequences that use those, never the
number of sequences there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamcore.columnar.grouping import expand_counts

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoleTable:
    """Which roles a condition gives in which sequences, all by number; conditions ascend, each has a run of rows."""

    conditions: Ints
    starts: Ints  # of the run of each condition, and the end of the last
    sequences: Ints
    roles: Ints

    @classmethod
    def build(cls, rows: Iterable[tuple[int, int, int]]) -> RoleTable:
        """Build the roles from (condition, sequence, roles)."""
        table = np.array(sorted(rows), np.int64).reshape(-1, 3)
        conditions, starts = np.unique(table[:, 0], return_index=True)
        return cls(conditions, np.append(starts, len(table)), table[:, 1], table[:, 2])

    def roles_for_events(self, events: Ints, conditions: Ints) -> EventRoles:
        """Turn pairs of an event and a condition that it satisfies into roles; skip unknown conditions.

        ``events``: places in an order of the caller's, at least 0.
        """
        place = np.searchsorted(self.conditions, conditions)
        known = np.flatnonzero(place < len(self.conditions))
        known = known[self.conditions[place[known]] == conditions[known]]
        place, events = place[known], events[known]
        counts = self.starts[place + 1] - self.starts[place]
        rows = expand_counts(self.starts[place], counts)
        events = np.repeat(events, counts)
        order = np.lexsort((events, self.sequences[rows]))
        return EventRoles(self.sequences[rows][order], events[order], self.roles[rows][order]).merge_duplicates()


@dataclass(frozen=True, slots=True)
class EventRoles:
    """The roles of events in sequences, by (sequence, event)."""

    sequences: Ints
    events: Ints
    roles: Ints

    def __len__(self) -> int:
        return len(self.events)

    def merge_duplicates(self) -> EventRoles:
        """Return one row for each sequence and event: an event may satisfy several of its conditions."""
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(self.events) != 0)
        first = np.flatnonzero(new)
        if len(first) == len(self):
            return self
        return EventRoles(self.sequences[first], self.events[first], np.bitwise_or.reduceat(self.roles, first))

    def runs(self, slots: Ints) -> tuple[Ints, Ints]:
        """Return where the rows of each sequence and key begin, and the end; and the roles that occur in each run.

        ``slots``: of the key of each event; events are ordered by it.
        """
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(slots[self.events]) != 0)
        first = np.flatnonzero(new)
        some = np.bitwise_or.reduceat(self.roles, first) if len(first) else first
        return np.append(first, len(self)), some
