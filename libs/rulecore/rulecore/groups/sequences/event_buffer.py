"""The buffer of events that satisfy a condition of a sequence, until the watermark passes them: one row per event.

A row holds the key, partition and offset, the event time, the numbers of the conditions that the event satisfied when
it arrived, and the values that messages show. The watermark removes rows by their event time, so that deletions need
not be stored: ``drop_before`` repeats them after a load. Rows that arrive and leave within one cut are never stored.
``limit_fresh`` drops only events of the current cut. The module knows no rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import polars as pl

from rulecore.state_size import StateSize, text_bytes
from streamcore.hashing import bucket_for
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state import HASH

CONDITIONS: Final = "__conditions"
#: A buffered event, without its text.
EVENT_BYTES: Final = 120
_ORDER: Final = (EVENT_MS, PARTITION, OFFSET)
_BEFORE: Final = "__before"


def value_column(column: str) -> str:
    """Return the name of the buffer's column for the values of a stream's column."""
    return f"value:{column}"


class EventBuffer:
    """A ``StateTable`` of events. ``keys``: the types of the key columns."""

    def __init__(self, keys: Mapping[str, pl.DataType]) -> None:
        self.keys = list(keys)
        self._schema: dict[str, pl.DataType] = {
            HASH: pl.UInt64(),
            **keys,
            EVENT_MS: pl.Int64(),
            PARTITION: pl.Int64(),
            OFFSET: pl.Int64(),
            CONDITIONS: pl.List(pl.Int32()),
        }
        self._kept = pl.DataFrame(schema=self._schema)
        self._fresh = self._kept.clear()
        self._loaded = False

    def __len__(self) -> int:
        return self._kept.height + self._fresh.height

    @property
    def state_size(self) -> StateSize:
        """The size of all events, or more."""
        text = self._kept.estimated_size() + self._fresh.estimated_size()
        return StateSize(len(self), len(self) * EVENT_BYTES + int(text))

    def state_sizes(self, conditions: Mapping[str, Collection[int]]) -> Mapping[str, StateSize]:
        """Return by name the size of the events that satisfied one of these conditions."""
        events = pl.concat([self._kept, self._fresh])
        event_bytes = text_bytes(events, events.height) + EVENT_BYTES
        satisfied = events.select(CONDITIONS).with_row_index("event").explode(CONDITIONS)
        event, number = satisfied["event"].to_numpy(), satisfied[CONDITIONS].to_numpy()
        sizes = {}
        for name, wanted in conditions.items():
            own = np.unique(event[np.isin(number, list(wanted))])
            sizes[name] = StateSize(len(own), int(event_bytes[own].sum()))
        return sizes

    def keep(self, conditions: Collection[int], values: Mapping[str, pl.DataType]) -> None:
        """Keep from now on events of these conditions only, with the values of these columns of the stream.

        Other events are dropped. In the remaining ones a column that was not kept before is null.
        """
        schema = {n: t for n, t in self._schema.items() if not n.startswith("value:")}
        self._schema = schema | {value_column(n): values[n] for n in sorted(values)}
        wanted = pl.Series(sorted(conditions), dtype=pl.Int32).implode()
        satisfies_one = pl.col(CONDITIONS).list.eval(pl.element().is_in(wanted)).list.any()
        self._kept, self._fresh = (
            self._conform(self._kept.filter(satisfies_one)),
            self._conform(self._fresh.filter(satisfies_one)),
        )

    def add(self, rows: pl.DataFrame) -> None:
        """Add events of this cut, with the columns of the table."""
        self._fresh = pl.concat([self._fresh, rows.select(*self._schema)])

    def drop_before(self, before_ms: int) -> None:
        """Drop loaded events before this time, which a cut before the load released."""
        if self._loaded:
            self._kept = self._kept.unique(subset=[PARTITION, OFFSET], keep="last", maintain_order=True)
            self._kept = self._conform(self._kept)
            self._loaded = False
        _, self._kept = _split(self._kept, before_ms)

    def release(self, before_ms: int) -> pl.DataFrame:
        """Remove and return the events before this time."""
        kept, self._kept = _split(self._kept, before_ms)
        fresh, self._fresh = _split(self._fresh, before_ms)
        return pl.concat([kept, fresh])

    def limit_fresh(self, limit: int) -> int:
        """Drop the latest events of this cut of each key with more than ``limit`` events; return how many."""
        if len(self) <= limit or not self._fresh.height:
            return 0
        keys = pl.concat([self._kept.select(self.keys), self._fresh.select(self.keys)])
        if not (keys.group_by(self.keys).len()["len"] > limit).any():
            return 0
        before = self._kept.group_by(self.keys).len(_BEFORE)
        position = pl.int_range(1, pl.len() + 1).over(self.keys)
        ordered = self._fresh.sort(_ORDER)
        known = ordered.join(before, on=self.keys, how="left", nulls_equal=True, maintain_order="left")
        within_limit = ordered.filter(known.select(position + pl.col(_BEFORE).fill_null(0) <= limit).to_series())
        dropped = self._fresh.height - within_limit.height
        self._fresh = within_limit
        return dropped

    def changes(self) -> pl.DataFrame:
        fresh = self._fresh
        self._kept, self._fresh = pl.concat([self._kept, fresh], rechunk=True), fresh.clear()
        return fresh

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._kept.filter(pl.Series(bucket_for(self._kept[HASH].to_numpy(), buckets) == bucket))

    def load(self, rows: pl.DataFrame) -> None:
        self._kept = pl.concat([self._kept, rows], how="diagonal_relaxed")  # a field may be wider now
        self._loaded = True

    def _conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with exactly the table's columns; missing ones are null, others of a narrower type widen."""
        missing = [pl.lit(None, t).alias(n) for n, t in self._schema.items() if n not in frame.columns]
        return frame.with_columns(missing).select(pl.col(n).cast(t) for n, t in self._schema.items())


def _split(frame: pl.DataFrame, before_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the events before this time, and the others."""
    passed = frame[EVENT_MS] < before_ms
    return (frame.filter(passed), frame.filter(~passed)) if passed.any() else (frame.clear(), frame)
