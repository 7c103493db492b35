"""Windows as a table that changes: rows in, records of windows out, each in place of the one before.

What the records mean is said by ``streamcore.windowing.revising``. The panes of ``operators.window`` are named by their
bounds, so that a session that grows is another window: here it keeps its name.

The law: the windows of all final records are those of the rows that were taken, worked out at once, however the input
is cut and whatever was said before. For sessions that needs a strict idea of late: a row is late when it is further
behind the watermark than the allowed lateness, even if a session is there that it would join (a session that is over
could otherwise have missed it). A row of another window is late when that window is over. How often and when a window
is said before its final record depends on the cuts, for that is what early records are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.aggregates.aggregate import Aggregate
from streamcore.errors import ConfigError
from streamcore.operators.operator import LATE, LATE_REASON, LATENESS_MS, MAIN, Ports, StepTime
from streamcore.operators.windows.assigning import fields_of
from streamcore.operators.windows.bundle import Bundle, at
from streamcore.operators.windows.columns import DATETIME, IS_FINAL, WINDOW_END, WINDOW_START
from streamcore.operators.windows.elements import ProgressTable
from streamcore.operators.windows.grouping import by_time_and_hash, distinct
from streamcore.operators.windows.joining import Joining
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.revised import Records, RevisedSessions
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tables import END
from streamcore.operators.windows.tally import Tally
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from streamcore.windowing.assigners import Session, Tumbling
from streamcore.windowing.revising import Revising
from streamcore.windowing.spec import WindowSpec

#: The start of a window as it was first said: with the key, its name.
ANCHOR = "window_anchor"
REVISION = "revision"
IS_DELETED = "is_deleted"
#: The anchor of the session of the same key that took this one in; null but where it is deleted.
MERGED_INTO = "merged_into"

_LATE = "behind the watermark by more than the allowed lateness"


class RevisedWindows:
    """Sessions or tumbling windows per key over rows of ``schema`` (all columns but EVENT_MS). An ``Operator``.

    MAIN: the key's columns, ``window_start``, ``window_end``, ANCHOR, REVISION (from 1), ``is_final``, IS_DELETED,
    MERGED_INTO, the aggregates (of a deleted window: those of nothing) and EVENT_MS, the window's last millisecond.
    LATE, unless ``late_lane`` is off: the input's columns, LATE_REASON and LATENESS_MS. ``max_windows``: beyond so
    many live ones none begins, and what would have gone into it is counted as ``refused``.
    """

    def __init__(
        self,
        spec: WindowSpec,
        revising: Revising,
        keys: tuple[str, ...],
        schema: Mapping[str, pl.DataType],
        aggregates: Mapping[str, Aggregate],
        *,
        late_lane: bool = True,
        max_windows: int = 10_000_000,
    ) -> None:
        if not isinstance(spec.assigner, Session | Tumbling):
            raise ConfigError(f"{spec.assigner}: only sessions and tumbling windows can be revised")
        fields_of(spec, schema)
        bundle = Bundle(dict(aggregates), dict(schema))
        self.plan = Plan(spec, {key: schema[key] for key in keys}, dict(schema), bundle, None, max_windows)
        self.revising = revising
        self.late_lane = late_lane
        self._assigner: Session | Tumbling = spec.assigner
        self._lateness_ms = spec.allowed_lateness_ms
        self._tally = Tally()
        self._progress = ProgressTable()
        self._values = bundle.results
        own = [WINDOW_START, WINDOW_END, ANCHOR, REVISION, IS_FINAL, IS_DELETED, MERGED_INTO, EVENT_MS]
        for twice in sorted({*keys, *self._values} & {*own} | {*keys} & {*self._values}):
            raise ConfigError(f"column {twice!r} would stand twice in the output: rename it")
        self._empty()

    def _empty(self) -> None:
        self._keys = KeySlots(self.plan.keys)
        near_ms = self._assigner.gap_ms if isinstance(self._assigner, Session) else self._assigner.size_ms
        self._sessions = RevisedSessions(self._keys, self.plan.bundle, near_ms, self.revising)
        self._joining = Joining(self.plan, self._tally, self._sessions)

    @property
    def output_delay_ms(self) -> int:
        """A window is there for the allowed lateness after its end."""
        return self._lateness_ms

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:
        """Process a cut."""
        (rows,) = inputs
        self.settle()
        self._sessions.note()
        self._sessions.clock_ms = time.clock_ms
        self._keys.sweep()
        late = self._take(rows, self._over(time.watermark_ms))
        self._progress.watermark_ms = time.next_watermark_ms
        main = self._said(time)
        return {MAIN: main, LATE: self._late(rows, late, time)} if self.late_lane else {MAIN: main}

    def _over(self, watermark_ms: int) -> int:
        """The last end of windows that are over by then; with the stream all are."""
        ended = watermark_ms >= END_OF_TIME_MS
        return max(watermark_ms - (0 if ended else self._lateness_ms), NO_WATERMARK)

    def _take(self, rows: pl.DataFrame, over_ms: int) -> Ints:
        """Put the rows into their windows; answers those that are late."""
        first = self._progress.take(rows.height)
        numbers = np.arange(first, first + rows.height)
        start, end = self._bounds(rows)
        late = start < over_ms if self._assigner.merges else end <= over_ms
        self._tally.elements += rows.height
        self._tally.assignments += rows.height
        if late.any():
            kept = np.flatnonzero(~late)
            rows, numbers, start, end = rows[kept], numbers[kept], start[kept], end[kept]
        self._joining.add(rows, numbers, self._keys.assign(rows), start, end)
        gone = np.flatnonzero(late)
        self._tally.dropped_expired += len(gone)
        return gone

    def _bounds(self, rows: pl.DataFrame) -> tuple[Ints, Ints]:
        """The window of each row alone."""
        event_ms = rows[EVENT_MS].to_numpy()
        if isinstance(self._assigner, Session):
            return event_ms, event_ms + self._gaps(rows, self._assigner)
        size_ms, offset_ms = self._assigner.size_ms, self._assigner.offset_ms
        start = (event_ms - offset_ms) // size_ms * size_ms + offset_ms
        return start, start + size_ms

    @staticmethod
    def _gaps(rows: pl.DataFrame, assigner: Session) -> Ints:
        if assigner.gap_field is None:
            return np.full(rows.height, assigner.gap_ms)
        own = pl.col(assigner.gap_field).cast(pl.Int64, strict=False)
        return rows.select(pl.when(own > 0).then(own).otherwise(assigner.gap_ms)).to_series().to_numpy()

    # --- saying -------------------------------------------------------------------------------------------------

    def _said(self, time: StepTime) -> pl.DataFrame:
        """What was taken in, then what has changed, then what is over; each by end, then by the hash of the key."""
        sessions = self._sessions
        over = self._ordered(sessions.ending(self._over(time.next_watermark_ms)))
        changed = sessions.changed(time.next_watermark_ms, time.clock_ms)
        lasting = self._ordered(changed[~np.isin(changed, over)])
        frames = [self._gone(records) for records in sessions.taken_in()]
        frames += [self._rows(lasting, final=False), self._rows(over, final=True)]
        self._forget(over)
        return pl.concat(frames)

    def _ordered(self, entries: Ints) -> Ints:
        sessions = self._sessions
        return entries[by_time_and_hash(sessions.end[entries], self._keys.hashes[sessions.slot[entries]])]

    def _rows(self, entries: Ints, *, final: bool) -> pl.DataFrame:
        partials = at(self._sessions.columns, entries)
        self._tally.truncated += self.plan.bundle.truncated(partials)
        return self._frame(self._sessions.say(entries), self.plan.bundle.values(partials), final=final)

    def _gone(self, records: Records) -> pl.DataFrame:
        order = by_time_and_hash(records.end, self._keys.hashes[records.slots])
        nothing = at(self.plan.bundle.nothing(), np.zeros(len(order), dtype=np.int64))
        return self._frame(records.at(order), self.plan.bundle.values(nothing), final=True)

    def _frame(self, records: Records, values: Sequence[pl.Series], *, final: bool) -> pl.DataFrame:
        count = len(records.slots)
        into = _times(MERGED_INTO, records.into) if records.gone else _repeat(None, count, DATETIME, MERGED_INTO)
        return pl.DataFrame(
            [
                *self._keys.frame(records.slots).get_columns(),
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

    def _forget(self, over: Ints) -> None:
        sessions = self._sessions
        slots = sessions.slot[over]
        sessions.remove(over)
        keys = slots[distinct(slots, self._keys.size)[1]]
        others, place = sessions.of(keys)
        left = np.flatnonzero(sessions.end[others] != sessions.FREE)
        left = left[np.argsort(place[left], kind="stable")]
        sessions.link(keys, others[left], place[left])

    def _late(self, rows: pl.DataFrame, late: Ints, time: StepTime) -> pl.DataFrame:
        return rows[late].with_columns(
            pl.lit(_LATE).alias(LATE_REASON),
            (time.watermark_ms - pl.col(EVENT_MS)).clip(lower_bound=0).alias(LATENESS_MS),
        )

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        """All state."""
        return {"sessions": self._sessions, "progress": self._progress}

    def loaded(self) -> None:
        """Take what was loaded."""
        self.settle()

    def settle(self) -> None:
        """Take what was loaded since the last step, but for the windows that are over: those that were here too, for
        that something is over is not stored where time says it."""
        if self._progress.settle() or self._sessions.loaded:
            rows = self._sessions.taken()
            self._empty()
            self._sessions.restore(rows.filter(pl.col(END) > self._over(self._progress.watermark_ms)))

    def metrics(self) -> Mapping[str, int]:
        """As those of ``WindowOperator``."""
        return self._tally.take()


def _times(name: str, values: Ints) -> pl.Series:
    return pl.Series(name, values, dtype=pl.Int64).cast(DATETIME)


def _repeat(value: bool | None, count: int, dtype: pl.DataType, name: str) -> pl.Series:
    return pl.repeat(value, count, dtype=dtype, eager=True).alias(name)
