"""From the conditions that events satisfy to the roles that they have in sequences: joins of whole numbers.

Promises: the cost follows the events, the conditions that they satisfy and the sequences that use those, never the
number of sequences there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamcore.windows.runs import expand

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoleTable:
    """Which roles a condition gives in which sequences, all by number; conditions ascend, each has a run of rows."""

    conditions: Ints
    starts: Ints  # of the run of each condition, and the end of the last
    sequences: Ints
    roles: Ints

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> RoleTable:
        """From (condition, sequence, roles)."""
        table = np.array(sorted(rows), np.int64).reshape(-1, 3)
        conditions, starts = np.unique(table[:, 0], return_index=True)
        return cls(conditions, np.append(starts, len(table)), table[:, 1], table[:, 2])

    def of_events(self, events: Ints, conditions: Ints) -> Roles:
        """Pairs of an event and a condition that it satisfies, to roles. Conditions that are not known are passed over.

        ``events``: places in an order of the caller's, at least 0.
        """
        place = np.searchsorted(self.conditions, conditions)
        known = np.flatnonzero(place < len(self.conditions))
        known = known[self.conditions[place[known]] == conditions[known]]
        place, events = place[known], events[known]
        counts = self.starts[place + 1] - self.starts[place]
        rows = expand(self.starts[place], counts)
        events = np.repeat(events, counts)
        order = np.lexsort((events, self.sequences[rows]))
        return Roles(self.sequences[rows][order], events[order], self.roles[rows][order]).merged()


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of events in sequences, by (sequence, event)."""

    sequences: Ints
    events: Ints
    roles: Ints

    def __len__(self) -> int:
        return len(self.events)

    def merged(self) -> Roles:
        """One row for each sequence and event: an event may satisfy several of its conditions."""
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(self.events) != 0)
        first = np.flatnonzero(new)
        if len(first) == len(self):
            return self
        return Roles(self.sequences[first], self.events[first], np.bitwise_or.reduceat(self.roles, first))

    def runs(self, slots: Ints) -> tuple[Ints, Ints]:
        """Where the rows of each sequence and key begin, and the end; and the roles that occur in each run.

        ``slots``: of the key of each event; events are ordered by it.
        """
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(slots[self.events]) != 0)
        first = np.flatnonzero(new)
        some = np.bitwise_or.reduceat(self.roles, first) if len(first) else first
        return np.append(first, len(self)), some
