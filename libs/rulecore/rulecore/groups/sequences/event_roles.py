"""Computes the roles of events in sequences from the conditions that they satisfy, by joins of integers.

A role is a bit set: whether the event begins a sequence, satisfies a step, or ends partials (see ``sequence_program``).
The cost grows with the events, their conditions and the sequences that use these, not with the number of sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulecore.compile.sequence import PRESENT, CompiledSequence
from rulecore.compile.sequence_conditions import RuleLeaf
from streamcore.columnar.grouping import expand_counts

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoleTable:
    """The roles that each condition gives in each sequence, by their numbers. Each condition has a run of rows."""

    conditions: Ints
    starts: Ints  # the first row of each condition's run, and the end of the last run
    sequences: Ints
    roles: Ints

    @classmethod
    def build(cls, rows: Iterable[tuple[int, int, int]]) -> RoleTable:
        """Return the table of these rows (condition, sequence, roles)."""
        table = np.array(sorted(rows), np.int64).reshape(-1, 3)
        conditions, starts = np.unique(table[:, 0], return_index=True)
        return cls(conditions, np.append(starts, len(table)), table[:, 1], table[:, 2])

    def roles_for_events(self, events: Ints, conditions: Ints) -> EventRoles:
        """Return the roles of events. Event ``events[i]`` (an index) satisfies condition ``conditions[i]`` (a number).

        Unknown conditions are skipped.
        """
        index = np.searchsorted(self.conditions, conditions)
        known = np.flatnonzero(index < len(self.conditions))
        known = known[self.conditions[index[known]] == conditions[known]]
        index, events = index[known], events[known]
        counts = self.starts[index + 1] - self.starts[index]
        rows = expand_counts(self.starts[index], counts)
        events = np.repeat(events, counts)
        order = np.lexsort((events, self.sequences[rows]))
        return EventRoles(self.sequences[rows][order], events[order], self.roles[rows][order]).merge_duplicates()


@dataclass(frozen=True, slots=True)
class EventRoles:
    """The roles of events in sequences, in order of (sequence, event)."""

    sequences: Ints
    events: Ints
    roles: Ints

    def __len__(self) -> int:
        return len(self.events)

    def merge_duplicates(self) -> EventRoles:
        """Return one row per sequence and event, with all roles of an event that satisfies several conditions."""
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(self.events) != 0)
        first = np.flatnonzero(new)
        if len(first) == len(self):
            return self
        return EventRoles(self.sequences[first], self.events[first], np.bitwise_or.reduceat(self.roles, first))

    def runs(self, key_slots: Ints) -> tuple[Ints, Ints]:
        """Divide the rows into runs of one sequence and key.

        Return the first row of each run, with the end of the last; and the roles that occur in each run. ``key_slots``:
        the key slot of each event, ascending.
        """
        new = np.ones(len(self), bool)
        new[1:] = (np.diff(self.sequences) != 0) | (np.diff(key_slots[self.events]) != 0)
        first = np.flatnonzero(new)
        run_roles = np.bitwise_or.reduceat(self.roles, first) if len(first) else first
        return np.append(first, len(self)), run_roles


def family_roles(leaves: Sequence[Any], members: Iterable[CompiledSequence]) -> Mapping[str, int]:
    """Return the roles that each condition, by fingerprint, gives in a family of sequences with these leaves."""
    roles = {leaf.fingerprint: 1 << number for number, leaf in enumerate(leaves) if isinstance(leaf, RuleLeaf)}
    for condition in (c for member in members for c in member.conditions if c.roles & PRESENT):
        roles[condition.fingerprint] = roles.get(condition.fingerprint, 0) | PRESENT
    return roles
