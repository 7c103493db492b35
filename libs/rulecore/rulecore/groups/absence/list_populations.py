"""Populations whose keys are the entries of a list: arms and disarms keys when the list changes.

The content of a list is immutable, so it is scanned only if it is another object. The module does not know where lists
come from.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from rulecore.groups.absence.rule_matrix import NO_EVENT, Ints
from rulecore.groups.absence.state import ExpectedKeys
from rulecore.groups.base import CutContext, ListValues
from streamcore.columnar.polars_types import polars_type
from streamcore.hashing import hash_columns
from streamcore.schema import StreamSchema


class ListPopulations:
    """The listed populations of one group, whose key is one column. ``limit``: most keys of one population."""

    def __init__(self, schema: StreamSchema, group_by: tuple[str, ...], limit: int) -> None:
        field = schema.get(group_by[0])
        assert field is not None, "the compiler checks that group_by has columns of the stream"
        self.limit = limit
        self.numbers = np.empty(0, np.int64)
        self._name, self._dtype = field.name, polars_type(field.type)
        self._routed = self._name in schema.routing_key(group_by)
        self._lists: Mapping[int, tuple[str, int]] = {}
        self._synced: dict[int, ListValues | None] = {}

    def expect(self, lists: Mapping[int, tuple[str, int]]) -> None:
        """Set the lists: by population number, a list's name and the latest event time before the population."""
        self._lists = lists
        self._synced = {n: content for n, content in self._synced.items() if n in lists}
        self.numbers = np.fromiter(lists, np.int64, len(lists))

    def sync(self, entries: ExpectedKeys, context: CutContext) -> int:
        """Arm who is new on a list and disarm who is no longer on it; how many did not fit.

        Before the first watermark they are entries that are not armed yet, see ``unarmed``.
        """
        dropped = 0
        for number, (name, since_ms) in self._lists.items():
            content = context.lists.get(name)
            if number not in self._synced or self._synced[number] is not content:
                dropped += self._sync_list(entries, number, content, max(since_ms, context.watermark_ms), context)
                self._synced[number] = content
        return dropped

    def unarmed_entries(self, entries: ExpectedKeys) -> Ints:
        """Return listed keys that no watermark has armed."""
        live = entries.live()
        unarmed: Ints = live[(entries.last[live] == NO_EVENT) & np.isin(entries.population[live], self.numbers)]
        return unarmed

    def _sync_list(
        self, entries: ExpectedKeys, number: int, content: ListValues | None, armed_ms: int, context: CutContext
    ) -> int:
        keys = self._own(content, context)
        key_slots = entries.keys.assign(keys[: self.limit])
        found = entries.find(key_slots, np.full(len(key_slots), number))
        there = entries.as_mask(found[found >= 0])
        live = entries.live()
        entries.drop(live[(entries.population[live] == number) & ~there[live]])
        new = key_slots[found < 0]
        entries.set_last_seen(entries.add(new, np.full(len(new), number)), armed_ms, seen=False)
        return max(0, keys.height - self.limit)

    def _own(self, content: ListValues | None, context: CutContext) -> pl.DataFrame:
        """Return the values whose keys this shard owns, sorted by hash."""
        values = [] if content is None else list(content.values)
        column = pl.Series(self._name, values, dtype=self._dtype, strict=False).drop_nulls().unique()
        hashes = hash_columns([column], len(column))
        routed = hashes if self._routed else hash_columns([], len(column))
        mine = np.flatnonzero(context.key_space.shard_for(routed) == context.shard)
        return pl.DataFrame([column[mine[np.argsort(hashes[mine])]]])
