"""Rolling totals: the totals of a key's rows in the last hour, the last day, emitted whenever they change.

Sliding windows answer this with a row a window and key, as many as the slide goes into the span, and emit nothing for a
key that has become quiet. Here a row of time's passing is given once: when rows come, and when others become too old,
down to nothing. A profile, a ranking or a dashboard holds such totals beside a key.

Meaning. A span is cut into steps. A row counts in a span from its arrival until the watermark is at the end of
the span that begins with the row's step: ``start of the step + span``. So at watermark ``w`` the totals hold every row
that has come from ``w - span`` on, the oldest step of them not whole; rows that are ahead of the watermark count at
once. A row is late when it is too old for every span.

Consequences:

- The totals are a function of the rows that came and of the watermark alone: any way of cutting the same input ends in
  the same totals, and a row that comes behind the watermark changes nothing but the time it counts for.
- A key gives at most a row a cut, and none in a cut after which its totals are unchanged.
- A row is added once and taken away once for each span, whatever the number of steps. Only aggregates that can be
  undone without loss are taken (counts, sums and means of whole numbers and decimals).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from streamcore.aggregates.base import Aggregate
from streamcore.columnar.grouping import sorted_distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.rolling.totals import RollingSpan, RollingTotals
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.watermark import NO_WATERMARK

_LATE = "older than every span, by the watermark"
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RollingSpec:
    """The settings of rolling totals. ``max_entries``: pairs of key and step per shard; further rows are refused."""

    keys: tuple[str, ...]
    spans: tuple[RollingSpan, ...]
    aggregates: Mapping[str, Aggregate]
    max_entries: int = 5_000_000

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``ConfigError`` where it cannot work over rows of these columns."""
        names = [span.name for span in self.spans]
        if not names or len(set(names)) < len(names) or not self.aggregates:
            raise ConfigError(f"rolling totals need spans of different names and aggregates; the spans are {names}")
        if self.max_entries < 1:
            raise ConfigError(f"max_entries must be positive, not {self.max_entries}")
        for name, aggregate in self.aggregates.items():
            aggregate.check(schema)
            if not aggregate.can_subtract(schema):
                raise ConfigError(f"rolling {name}: {aggregate} cannot be undone; take windows for it")


class Rolling:
    """The operator; one input. A row of ``MAIN``: the key and ``<aggregate>_<span>`` for all of them."""

    output_delay_ms = 0

    def __init__(self, spec: RollingSpec, schema: Mapping[str, pl.DataType]) -> None:
        spec.check(schema)
        self.spec = spec
        self._schema = dict(schema)
        self._bundle = AggregateSet(spec.aggregates, self._schema)
        self._counts = dict.fromkeys(("late", "refused"), 0)
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots({name: self._schema[name] for name in self.spec.keys})
        self.totals = [RollingTotals(span, self.keys, self._bundle) for span in self.spec.spans]

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        (rows,) = inputs
        self._settle()
        for totals in self.totals:
            totals.slices.record_changes()
            totals.expire(time.watermark_ms)  # what was loaded, or over while another worker had the shard
        self.keys.sweep()
        if not rows.height and not any(totals.expiring_slots(time.next_watermark_ms).size for totals in self.totals):
            return self._nothing
        rows, late = self._split(rows, time.watermark_ms)
        slots = self.keys.assign(rows)
        touched = self._touched_slots(slots, time)
        before = [totals.totals_for(touched) for totals in self.totals]
        since = self._take(rows, slots, time)
        main = self._changed_totals(touched, before, np.maximum(since[touched], time.watermark_ms))
        return {MAIN: main, LATE: late}

    @cached_property
    def _nothing(self) -> Ports:
        """Return the ports of a cut without changes: empty frames."""
        none = pl.DataFrame(schema={**self._schema, EVENT_MS: pl.Int64()})
        before = [totals.totals_for(_NONE) for totals in self.totals]
        return {MAIN: self._changed_totals(_NONE, before, _NONE), LATE: self._split(none, NO_WATERMARK)[1]}

    def tables(self) -> Mapping[str, StateTable]:
        return {f"steps-{totals.span.name}": totals.slices for totals in self.totals}

    def on_state_loaded(self) -> None:
        """Do nothing: the first step, which knows the watermark, applies the loaded rows."""

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call and reset them, and the number of stored keys and entries."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return {**counts, "keys": len(self.keys), "entries": self._entries}

    @property
    def _entries(self) -> int:
        return sum(totals.slices.entries for totals in self.totals)

    def _split(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that some span takes, and those that none does."""
        since_ms = min(span.first_live_step(watermark_ms) * span.step_ms for span in self.spec.spans)
        old = rows[EVENT_MS] < since_ms
        late = rows.filter(old).with_columns(
            pl.lit(_LATE).alias(LATE_REASON), (watermark_ms - pl.col(EVENT_MS)).alias(LATENESS_MS)
        )
        self._counts["late"] += late.height
        return (rows.filter(~old) if late.height else rows), late

    def _touched_slots(self, slots: Ints, time: CutTime) -> Ints:
        """Return the keys whose totals this cut may change, each once."""
        over = [totals.expiring_slots(time.next_watermark_ms) for totals in self.totals]
        return sorted_distinct(np.concatenate([slots, *over]))

    def _take(self, rows: pl.DataFrame, slots: Ints, time: CutTime) -> Ints:
        """Add the rows and take away the rows whose span is over. Returns the time of the last change of each slot's
        totals."""
        since = np.full(self.keys.size, NO_WATERMARK, dtype=np.int64)
        np.maximum.at(since, slots, rows[EVENT_MS].to_numpy())
        for totals in self.totals:
            room = self.spec.max_entries - self._entries
            self._counts["refused"] += totals.add(rows, slots, time.watermark_ms, room)
            np.maximum.at(since, *totals.expire(time.next_watermark_ms))
        return since

    def _changed_totals(self, touched: Ints, before: Sequence[Columns], times: Ints) -> pl.DataFrame:
        """Return the totals of those that changed, in the order of their hashes."""
        after = [totals.totals_for(touched) for totals in self.totals]
        changed = np.zeros(len(touched), dtype=bool)
        for old, new in zip(before, after, strict=True):
            for name, values in new.items():
                changed |= values != old[name]
        chosen = np.flatnonzero(changed)
        chosen = chosen[np.argsort(self.keys.hashes[touched[chosen]], kind="stable")]
        columns = [
            series.alias(f"{series.name}_{totals.span.name}")
            for totals, values in zip(self.totals, after, strict=True)
            for series in self._bundle.values(take_rows(values, chosen))
        ]
        frame = self.keys.frame(touched[chosen]).hstack([*columns, pl.Series(EVENT_MS, times[chosen])])
        return frame.sort(self.spec.keys) if self.keys.share_hashes else frame

    def _settle(self) -> None:
        """Take the rows loaded since the last step."""
        if not any(totals.slices.loaded for totals in self.totals):
            return
        stored = [totals.slices.take_loaded() for totals in self.totals]
        self._reset()
        for totals, rows in zip(self.totals, stored, strict=True):
            totals.restore(rows)
