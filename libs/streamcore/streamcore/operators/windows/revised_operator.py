"""The operator of windows as a changing table: each record of a window replaces the one before.

``streamcore.windowing.revisions`` defines the records. The panes of ``operators.windows.operator`` are identified by
their bounds, so there a session that grows becomes another window; here it keeps its anchor.

The windows of all final records are those of all accepted rows, computed at once, however the input is divided into
cuts. For sessions this needs a strict definition of late: a row is late if it is behind the watermark by more than the
allowed lateness, even if it would join a live session (an expired session could otherwise have missed it). A row of a
tumbling window is late if that window has expired. How often a window is emitted before its final record depends on
the cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.aggregates.base import Aggregate
from streamcore.columnar.grouping import by_time_and_hash, distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED, FAILED_PANE
from streamcore.operators.windows.aggregate_set import AggregateSet, take_rows
from streamcore.operators.windows.element_fields import fields_for, session_gaps
from streamcore.operators.windows.general.element_table import ProgressTable
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.window_table import END
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import DATETIME, IS_FINAL, WINDOW_END, WINDOW_START
from streamcore.operators.windows.sessions.merge import SessionMerger
from streamcore.operators.windows.sessions.revisions import RevisedSessionWindowTable, RevisionRows
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from streamcore.windowing.assigners import Session, Tumbling
from streamcore.windowing.revisions import RevisionPolicy
from streamcore.windowing.spec import WindowSpec, is_built_in

#: The start of a window when it was first emitted: together with the key it identifies the window.
ANCHOR = "window_anchor"
REVISION = "revision"
IS_DELETED = "is_deleted"
#: In a deleted session: the anchor of the session of its key that absorbed it. Otherwise null.
MERGED_INTO = "merged_into"

_LATE = "behind the watermark by more than the allowed lateness"


class RevisedWindows:
    """The operator of revised sessions or tumbling windows per key. ``schema``: the columns except EVENT_MS.

    MAIN: the key's columns, ``window_start``, ``window_end``, ANCHOR, REVISION (from 1), ``is_final``, IS_DELETED,
    MERGED_INTO, the aggregates (of a deleted window: those of nothing) and EVENT_MS, the window's last millisecond.
    LATE, unless ``late_lane`` is off: the input's columns, LATE_REASON and LATENESS_MS. ``max_windows``: the
    maximum of live windows; rows of further windows are counted as ``rejected``.
    """

    def __init__(
        self,
        spec: WindowSpec,
        policy: RevisionPolicy,
        keys: tuple[str, ...],
        schema: Mapping[str, pl.DataType],
        aggregates: Mapping[str, Aggregate],
        *,
        late_lane: bool = True,
        max_windows: int = 10_000_000,
    ) -> None:
        if not isinstance(spec.assigner, Session | Tumbling) or not is_built_in(spec.assigner):
            raise ConfigError(f"{spec.assigner}: only sessions and tumbling windows can be revised")
        fields_for(spec, schema)
        aggregate_set = AggregateSet(dict(aggregates), dict(schema))
        self.plan = WindowPlan(spec, {key: schema[key] for key in keys}, dict(schema), aggregate_set, None, max_windows)
        self.policy = policy
        self.late_lane = late_lane
        self._assigner: Session | Tumbling = spec.assigner
        self._lateness_ms = spec.allowed_lateness_ms
        self._metrics = WindowMetrics()
        self._progress = ProgressTable()
        self._values = aggregate_set.results
        added = [WINDOW_START, WINDOW_END, ANCHOR, REVISION, IS_FINAL, IS_DELETED, MERGED_INTO, EVENT_MS]
        for name in sorted({*keys, *self._values} & {*added} | {*keys} & {*self._values}):
            raise ConfigError(f"column {name!r} would stand twice in the output: rename it")
        self._reset()

    def _reset(self) -> None:
        self._keys = KeySlots(self.plan.keys)
        near_ms = self._assigner.gap_ms if isinstance(self._assigner, Session) else self._assigner.size_ms
        self._sessions = RevisedSessionWindowTable(self._keys, self.plan.aggregate_set, near_ms, self.policy)
        self._merger = SessionMerger(self.plan, self._metrics, self._sessions)

    @property
    def output_delay_ms(self) -> int:
        """Return the allowed lateness, because a window can be emitted until this long after its end."""
        return self._lateness_ms

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut."""
        (rows,) = inputs
        ports: dict[str, pl.DataFrame] = {}
        failures = self.plan.failures
        if failures is not None:
            rows, ports[FAILED] = self.plan.aggregate_set.split_failing(rows)
            self._metrics.failed += ports[FAILED].height
        self.apply_loaded()
        self._sessions.record_changes()
        self._sessions.clock_ms = time.clock_ms
        self._keys.sweep()
        late = self._take(rows, self._expired_end(time.watermark_ms))
        self._progress.watermark_ms = time.next_watermark_ms
        main = self._emit_changes(time)
        if self.late_lane:
            ports[LATE] = self._late(rows, late, time)
        if failures is not None:
            main, ports[FAILED_PANE] = failures.split(main, [*self._values])
            self._metrics.failed += ports[FAILED_PANE].height
        return {MAIN: main, **ports}

    def _expired_end(self, watermark_ms: int) -> int:
        """Return the latest end of expired windows, in milliseconds. When the stream ends, all windows expire."""
        ended = watermark_ms >= END_OF_TIME_MS
        return max(watermark_ms - (0 if ended else self._lateness_ms), NO_WATERMARK)

    def _take(self, rows: pl.DataFrame, expired_ms: int) -> Ints:
        """Add the rows to their windows; return the indexes of the late rows.

        ``expired_ms``: the latest end of expired windows.
        """
        first = self._progress.take(rows.height)
        numbers = np.arange(first, first + rows.height)
        start, end = self._bounds(rows)
        is_late = start < expired_ms if self._assigner.merges else end <= expired_ms
        self._metrics.elements += rows.height
        self._metrics.assignments += rows.height
        if is_late.any():
            on_time = np.flatnonzero(~is_late)
            rows, numbers, start, end = rows[on_time], numbers[on_time], start[on_time], end[on_time]
        self._merger.add(rows, numbers, self._keys.assign(rows), start, end)
        late = np.flatnonzero(is_late)
        self._metrics.dropped_expired += len(late)
        return late

    def _bounds(self, rows: pl.DataFrame) -> tuple[Ints, Ints]:
        """Return start and end of the window that each row would have as the only row."""
        event_ms = rows[EVENT_MS].to_numpy()
        if isinstance(self._assigner, Session):
            return event_ms, event_ms + session_gaps(rows, self._assigner)
        size_ms, offset_ms = self._assigner.size_ms, self._assigner.offset_ms
        start = (event_ms - offset_ms) // size_ms * size_ms + offset_ms
        return start, start + size_ms

    # --- output ------------------------------------------------------------------------------------------------

    def _emit_changes(self, time: CutTime) -> pl.DataFrame:
        """Return the rows of absorbed, then of changed, then of ended windows; each by end, then by the hash of the
        key."""
        sessions = self._sessions
        expired = self._in_output_order(sessions.take_ended(self._expired_end(time.next_watermark_ms)))
        changed = sessions.take_changed(time.next_watermark_ms, time.clock_ms)
        lasting = self._in_output_order(changed[~np.isin(changed, expired)])
        frames = [self._deleted_rows(records) for records in sessions.take_absorbed()]
        frames += [self._rows(lasting, final=False), self._rows(expired, final=True)]
        self._forget(expired)
        return pl.concat(frames)

    def _in_output_order(self, entries: Ints) -> Ints:
        sessions = self._sessions
        return entries[by_time_and_hash(sessions.end[entries], self._keys.hashes[sessions.key_slot[entries]])]

    def _rows(self, entries: Ints, *, final: bool) -> pl.DataFrame:
        partials = take_rows(self._sessions.columns, entries)
        self._metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        return self._frame(self._sessions.emit(entries), self.plan.aggregate_set.values(partials), final=final)

    def _deleted_rows(self, records: RevisionRows) -> pl.DataFrame:
        order = by_time_and_hash(records.end, self._keys.hashes[records.key_slots])
        no_rows = take_rows(self.plan.aggregate_set.empty_partial(), np.zeros(len(order), dtype=np.int64))
        values = self.plan.aggregate_set.values(no_rows)
        if self.plan.failures is not None:  # a deleted row has no values of its own that could fail
            values = [*values[: len(self._values)], *self.plan.failures.series(len(order), {})]
        return self._frame(records.at(order), values, final=True)

    def _frame(self, records: RevisionRows, values: Sequence[pl.Series], *, final: bool) -> pl.DataFrame:
        count = len(records.key_slots)
        into = _times(MERGED_INTO, records.into) if records.gone else _repeat(None, count, DATETIME, MERGED_INTO)
        return pl.DataFrame(
            [
                *self._keys.frame(records.key_slots).get_columns(),
                _times(WINDOW_START, records.start),
                _times(WINDOW_END, records.end),
                _times(ANCHOR, records.anchor),
                pl.Series(REVISION, records.revision, dtype=pl.Int64),
                _repeat(final, count, pl.Boolean(), IS_FINAL),
                _repeat(records.gone, count, pl.Boolean(), IS_DELETED),
                into,
                *values,
                pl.Series(EVENT_MS, records.end - 1, dtype=pl.Int64),
            ]
        )

    def _forget(self, expired: Ints) -> None:
        sessions = self._sessions
        key_slots = sessions.key_slot[expired]
        sessions.remove(expired)
        keys = key_slots[distinct(key_slots, self._keys.size)[1]]
        remaining, entry_keys = sessions.entries_for(keys)
        live_rows = np.flatnonzero(sessions.end[remaining] != sessions.FREE)
        live_rows = live_rows[np.argsort(entry_keys[live_rows], kind="stable")]
        sessions.link(keys, remaining[live_rows], entry_keys[live_rows])

    def _late(self, rows: pl.DataFrame, late: Ints, time: CutTime) -> pl.DataFrame:
        return rows[late].with_columns(
            pl.lit(_LATE).alias(LATE_REASON),
            (time.watermark_ms - pl.col(EVENT_MS)).clip(lower_bound=0).alias(LATENESS_MS),
        )

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables of the windows and of the operator's progress, by name."""
        return {"sessions": self._sessions, "progress": self._progress}

    def on_state_loaded(self) -> None:
        """Apply the loaded rows."""
        self.apply_loaded()

    def apply_loaded(self) -> None:
        """Apply the rows loaded since the last step, without the windows that the watermark has expired.

        A window's expiry is not stored, since it follows from the watermark.
        """
        if self._progress.apply_loaded() or self._sessions.loaded:
            rows = self._sessions.take_loaded()
            self._reset()
            self._sessions.restore(rows.filter(pl.col(END) > self._expired_end(self._progress.watermark_ms)))

    def metrics(self) -> Mapping[str, int]:
        """Return the counters of ``WindowOperator``."""
        return self._metrics.take()


def _times(name: str, values: Ints) -> pl.Series:
    return pl.Series(name, values, dtype=pl.Int64).cast(DATETIME)


def _repeat(value: bool | None, count: int, dtype: pl.DataType, name: str) -> pl.Series:
    return pl.repeat(value, count, dtype=dtype, eager=True).alias(name)
