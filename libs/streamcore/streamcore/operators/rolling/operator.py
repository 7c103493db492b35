"""Rolling totals: aggregates over the last hour, the last day or another span of each key's rows.

The operator emits the totals of a key when they change: when rows arrive, and when rows expire, down to a total of no
rows. Sliding windows instead emit one row per window and key, and nothing for a key without new rows. A profile, a
ranking or a dashboard stores such totals by key.

A span consists of steps of fixed length. A row counts from its arrival until the watermark reaches
``start of the row's step + span``. So at watermark ``w`` the totals contain all arrived rows with event times from
``w - span`` on, except that the rows of the oldest step expire together. Rows ahead of the watermark count at once. A
row is late if it is too old for every span.

Consequences:

- The totals depend only on the arrived rows and the watermark, not on how the input is divided into cuts. A row behind
  the watermark counts for a shorter time; nothing else changes.
- The operator emits at most one row per key and cut, and none if the totals of the key are unchanged after the cut.
- For each span the operator adds a row once and subtracts it once, however many steps the span has. So it accepts only
  aggregates with an exact inverse: counts, sums and means of whole numbers and decimals.

A span may also be a half-life (``decayed``): then rows count the less the older they are.
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
from streamcore.operators.failures import FAILED, FAILED_PANE
from streamcore.operators.rolling.decayed import DecayedSpan, DecayedTotals
from streamcore.operators.rolling.totals import RollingSpan, RollingTotals
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, check_aggregate, take_rows
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.watermark import NO_WATERMARK

_LATE = "older than every span, by the watermark"
_NO_NUMBERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RollingSpec:
    """The settings of rolling totals.

    ``max_entries``: how many partials a shard stores, one per key, span and step; the operator rejects rows that need
    more.
    """

    keys: tuple[str, ...]
    spans: tuple[RollingSpan, ...]
    aggregates: Mapping[str, Aggregate]
    max_entries: int = 5_000_000

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``ConfigError`` if the settings do not fit the columns of the rows."""
        names = [span.name for span in self.spans]
        if not names or len(set(names)) < len(names) or not self.aggregates:
            raise ConfigError(f"rolling totals need spans of different names and aggregates; the spans are {names}")
        if self.max_entries < 1:
            raise ConfigError(f"max_entries must be positive, not {self.max_entries}")
        for name, aggregate in self.aggregates.items():
            check_aggregate(f"rolling {name}", aggregate)
            aggregate.check(schema)
            if not aggregate.can_subtract(schema):
                raise ConfigError(f"rolling {name}: {aggregate} cannot be undone; take windows for it")


class Rolling:
    """The operator of rolling totals. It has one input.

    A row of ``MAIN`` has the key and a column ``<aggregate>_<span>`` for each aggregate and span. ``FAILED``,
    ``FAILED_PANE``, where an aggregate calls code of the user: the rows, and the keys' totals, for which a call fails.
    """

    output_delay_ms = 0

    def __init__(self, spec: RollingSpec, schema: Mapping[str, pl.DataType]) -> None:
        spec.check(schema)
        self.spec = spec
        self._schema = dict(schema)
        self._bundle = AggregateSet(spec.aggregates, self._schema)
        self._value_names = [f"{name}_{span.name}" for span in spec.spans for name in spec.aggregates]
        self._counts = dict.fromkeys(("late", "rejected", "failed"), 0)
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots({name: self._schema[name] for name in self.spec.keys})
        self.totals = [
            (DecayedTotals if isinstance(span, DecayedSpan) else RollingTotals)(span, self.keys, self._bundle)
            for span in self.spec.spans
        ]

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        (rows,) = inputs
        failures = self._bundle.failures
        if failures is None:
            return self._step(rows, time)
        rows, failed = self._bundle.split_failing(rows)
        ports = self._step(rows, time)
        main, failed_totals = failures.split(ports[MAIN], self._value_names)
        self._counts["failed"] += failed.height + failed_totals.height
        return {**ports, MAIN: main, FAILED: failed, FAILED_PANE: failed_totals}

    def _step(self, rows: pl.DataFrame, time: CutTime) -> Ports:
        self._apply_loaded()
        for totals in self.totals:
            totals.slices.record_changes()
            totals.expire(time.watermark_ms)  # loaded rows can be older than the watermark
        self.keys.sweep()
        if not rows.height and not any(
            totals.expiring_key_slots(time.next_watermark_ms).size for totals in self.totals
        ):
            return self._empty_ports
        rows, late = self._split(rows, time.watermark_ms)
        key_slots = self.keys.assign(rows)
        touched = self._touched_key_slots(key_slots, time)
        before = [totals.results_for(touched) for totals in self.totals]
        changed_ms = self._add_and_expire(rows, key_slots, time)
        main = self._changed_totals(touched, before, np.maximum(changed_ms[touched], time.watermark_ms))
        return {MAIN: main, LATE: late}

    @cached_property
    def _empty_ports(self) -> Ports:
        """Return the ports of a cut without changes: empty frames."""
        no_rows = pl.DataFrame(schema={**self._schema, EVENT_MS: pl.Int64()})
        before = [totals.results_for(_NO_NUMBERS) for totals in self.totals]
        return {
            MAIN: self._changed_totals(_NO_NUMBERS, before, _NO_NUMBERS),
            LATE: self._split(no_rows, NO_WATERMARK)[1],
        }

    def tables(self) -> Mapping[str, StateTable]:
        return {f"steps-{totals.span.name}": totals.slices for totals in self.totals}

    def on_state_loaded(self) -> None:
        """Apply the loaded rows, so that a savepoint that is taken now has them. The first step expires them."""
        self._apply_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call and reset them, and the number of stored keys and entries."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return {**counts, "keys": len(self.keys), "entries": self._entries}

    @property
    def _entries(self) -> int:
        return sum(totals.slices.entries for totals in self.totals)

    def _split(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that count in at least one span, and the late rows."""
        first_ms = min(span.first_live_step(watermark_ms) * span.step_ms for span in self.spec.spans)
        is_late = rows[EVENT_MS] < first_ms
        late = rows.filter(is_late).with_columns(
            pl.lit(_LATE).alias(LATE_REASON), (watermark_ms - pl.col(EVENT_MS)).alias(LATENESS_MS)
        )
        self._counts["late"] += late.height
        return (rows.filter(~is_late) if late.height else rows), late

    def _touched_key_slots(self, key_slots: Ints, time: CutTime) -> Ints:
        """Return the distinct key slots of the keys whose totals this cut may change."""
        expiring = [totals.expiring_key_slots(time.next_watermark_ms) for totals in self.totals]
        return sorted_distinct(np.concatenate([key_slots, *expiring]))

    def _add_and_expire(self, rows: pl.DataFrame, key_slots: Ints, time: CutTime) -> Ints:
        """Add the rows, subtract those that expire, and return the event time of the last change of each key slot."""
        changed_ms = np.full(self.keys.size, NO_WATERMARK, dtype=np.int64)
        np.maximum.at(changed_ms, key_slots, rows[EVENT_MS].to_numpy())
        for totals in self.totals:
            room = self.spec.max_entries - self._entries
            self._counts["rejected"] += totals.add(rows, key_slots, time.watermark_ms, room)
            np.maximum.at(changed_ms, *totals.expire(time.next_watermark_ms))
        return changed_ms

    def _changed_totals(self, touched: Ints, before: Sequence[Columns], times: Ints) -> pl.DataFrame:
        """Return the totals of the keys whose totals changed, ordered by the hashes of the keys.

        ``before`` and ``times``: the earlier totals of each span, and the event times of the output, for ``touched``.
        """
        after = [totals.results_for(touched) for totals in self.totals]
        changed = np.zeros(len(touched), dtype=bool)
        for old, new in zip(before, after, strict=True):
            for name, values in new.items():
                changed |= values != old[name]
        changed_rows = np.flatnonzero(changed)
        changed_rows = changed_rows[np.argsort(self.keys.hashes[touched[changed_rows]], kind="stable")]
        columns: list[pl.Series] = []
        failures: list[pl.Series] = []
        for totals, partials in zip(self.totals, after, strict=True):
            series = totals.series(take_rows(partials, changed_rows))
            columns += [s.alias(f"{s.name}_{totals.span.name}") for s in series[: len(self.spec.aggregates)]]
            failures += series[len(self.spec.aggregates) :]
        if failures:
            columns.append(pl.select(pl.coalesce(failures)).to_series())
        frame = self.keys.frame(touched[changed_rows]).hstack([*columns, pl.Series(EVENT_MS, times[changed_rows])])
        return frame.sort(self.spec.keys) if self.keys.share_hashes else frame

    def _apply_loaded(self) -> None:
        """Apply the state rows loaded since the last step."""
        if not any(totals.slices.loaded for totals in self.totals):
            return
        stored = [totals.slices.take_loaded() for totals in self.totals]
        self._reset()
        for totals, rows in zip(self.totals, stored, strict=True):
            totals.restore(rows)
