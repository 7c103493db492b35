"""Rows that become part of the sessions of their keys, or sessions of their own: a cut at a go, in columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.operators.windows.bundle import Columns, at
from streamcore.operators.windows.grouping import distinct, runs
from streamcore.operators.windows.intervals import Joined
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.sessions import Sessions
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tally import Tally


class Joining:
    """All rows of a cut and the sessions of their keys are sorted by key and start, and what overlaps becomes one."""

    def __init__(self, plan: Plan, tally: Tally, sessions: Sessions) -> None:
        self.plan = plan
        self.tally = tally
        self.sessions = sessions

    def add(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, start: Ints, end: Ints) -> None:
        """Merge rows, as sessions of their own, into the sessions of their keys."""
        if not slots.size:
            return
        which, one = distinct(slots, self.sessions.keys.size)
        keys = slots[one]
        entries, place = self.sessions.of(keys)
        joined = Joined.of(
            np.concatenate([place, which]),
            np.concatenate([self.sessions.start[entries], start]),
            np.concatenate([self.sessions.end[entries], end]),
        )
        group = joined.group[len(entries) :]
        refused = self._refused(joined, len(entries))
        if refused.size:
            self.tally.refused += int(np.isin(group, refused).sum())
            kept = np.flatnonzero(~np.isin(group, refused))
            self.add(rows[kept], numbers[kept], slots[kept], start[kept], end[kept])
            return
        self.tally.on_time += len(slots)
        self._merge(rows, numbers, keys, entries, joined)

    def _refused(self, joined: Joined, known: int) -> Ints:
        """The new sessions that are too many, by their first arrivals."""
        room = self.plan.max_windows - self.sessions.count
        if len(joined.start) <= room:
            return np.empty(0, dtype=np.int64)
        groups = joined.group[known:]
        fresh = np.ones(len(joined.start), dtype=bool)
        fresh[joined.group[:known]] = False
        _, first = distinct(groups, len(fresh))
        arriving = groups[first]
        return arriving[fresh[arriving]][max(room, 0) :]

    def _merge(self, rows: pl.DataFrame, numbers: Ints, keys: Ints, entries: Ints, joined: Joined) -> None:
        sessions, known = self.sessions, len(entries)
        touched = np.zeros(len(joined.start), dtype=bool)
        touched[joined.group[known:]] = True
        number = np.cumsum(touched) - 1  # of the groups that take rows
        partials = self.plan.bundle.group(rows, numbers, number[joined.group[known:]], int(touched.sum()))
        # The entries in the order of their groups; the first of a group goes on, the others are taken in.
        order = sessions.in_turn(joined.group[:known], entries)
        entries, of = entries[order], joined.group[:known][order]
        firsts = runs(of)
        final = np.full(len(joined.start), -1)
        final[of[firsts]] = entries[firsts]
        if entries.size:
            partials = self._with_held(entries, of, joined, np.where(touched, number, -1), partials)
        new = np.flatnonzero(final < 0)
        final[new] = sessions.new(keys[joined.place[new]])
        sessions.write(final[touched], joined.start[touched], joined.end[touched], partials)
        sessions.link(keys, final, joined.place)

    def _with_held(self, entries: Ints, of: Ints, joined: Joined, number: Ints, partials: Columns) -> Columns:
        """The partials with what the entries held, which are in the order of their groups ``of``. All entries of a
        group but the first are no more. ``number``: of the group among the partials, -1 where it is not."""
        sessions = self.sessions
        mine = np.flatnonzero(number[of] >= 0)
        entries, of = entries[mine], of[mine]
        firsts = runs(of)
        held = at(sessions.columns, entries)
        held = held if len(firsts) == len(of) else self.plan.bundle.reduce(held, firsts)
        into = number[of[firsts]]
        merged = self.plan.bundle.merge(held, at(partials, into))
        partials = {name: column.copy() for name, column in partials.items()}
        for name, values in merged.items():
            partials[name][into] = values
        moved = entries[sessions.start[entries] != joined.start[of]]
        sessions.moved(sessions.slot[moved], sessions.start[moved])
        others = np.delete(np.arange(len(entries)), firsts)
        if others.size:
            place = np.searchsorted(firsts, others, side="right") - 1
            sessions.absorb(entries[others], entries[firsts[place]])
            sessions.remove(entries[others])
        return partials
