"""The deduplication that a stream declares, for the events of the stream as they are decoded.

An app, a back-test, a backfill and the tests of rules take it from here, so that they agree on which event counts. The
operator gets the id, the event time and a hash of the other fields, not the events themselves. ``identify_events``
takes these out of events, so that they can be sent to the shard that decides, and the events elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.columnar.event_order import find_order, position_codes
from streamcore.durations import Milliseconds
from streamcore.hashing import fingerprint_columns, hash_contents
from streamcore.limits import MAX_EVENT_IDS
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.deduplication.operator import (
    Deduplicate,
    Deduplication,
    Duplicates,
    WhenFull,
    without_nulls,
)
from streamcore.operators.deduplication.seen_ids import CHECK, CONTENT, IdHashes
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state.table import HASH
from streamcore.watermark import NO_WATERMARK

_ID, _CONTENT, _ROW = "id", "content", "row"
_HAS_ID = "has_id"
#: In a table of verdicts: whether the event is late, and else a duplicate.
IS_LATE = "is_late"


@dataclass(frozen=True, slots=True)
class DecidedEvents:
    """The events of a cut in order of partition and offset: those that are ``used``, and the ``late`` ones, with
    ``LATE_REASON`` and ``LATENESS_MS``."""

    used: pa.Table
    late: pl.DataFrame


class EventDeduplication:
    """Removes the repeated events of a stream with ``deduplicate``. Duplicates are counted, also those whose fields
    differ from those of the event that was used.

    At the limit the oldest ids are forgotten and events of their time are late, so that no event counts twice.
    """

    def __init__(self, schema: StreamSchema, *, max_ids: int = MAX_EVENT_IDS) -> None:
        assert schema.deduplicate_ms is not None, "only for a stream with deduplicate"
        assert schema.event_id is not None, "the schema requires it"
        self._id = schema.event_id
        self._content = tuple(name for name in schema.names if name != schema.event_id)
        spec = Deduplication(
            (_ID,),
            Milliseconds(schema.deduplicate_ms),
            max_ids=max_ids,
            when_full=WhenFull.FORGET_OLDEST,
            duplicates=Duplicates.COUNT,
            content_columns=(_CONTENT,),
            nested_contents=any(field.type.is_nested for field in schema.fields if field.name != schema.event_id),
        )
        id_type = pl.Series(schema.arrow.empty_table().column(self._id)).dtype
        self.operator = Deduplicate(spec, {_ID: id_type, _CONTENT: pl.Int64(), EVENT_MS: pl.Int64()})

    def decide(self, events: pa.Table, time: CutTime) -> DecidedEvents:
        """Process the events of a cut, in any order and in one chunk."""
        order = find_order(events)
        columns = [events.column(name).combine_chunks() for name in self._content]
        ports = self._step(pl.Series(events.column(self._id)), columns, events.column(EVENT_MS).to_numpy(), order, time)
        used, late = ports[MAIN][_ROW].to_numpy(), ports[LATE]
        in_place = order is None and len(used) == events.num_rows
        return DecidedEvents(
            events if in_place else events.take(pa.array(used)),
            pl.DataFrame(events.take(late[_ROW].to_arrow())).hstack(late.select(LATE_REASON, LATENESS_MS)),
        )

    def decide_ids(self, ids: pa.Table, time: CutTime) -> pa.Table:
        """Process the table that ``identify_events`` has made of the events of a cut, in any order and in one chunk.

        Return partition, offset and ``IS_LATE`` of the events that are not used.
        """
        order = find_order(ids)
        ordered = ids if order is None else ids.take(pa.array(order))
        hashes = (ordered.column(name).to_numpy() for name in (HASH, CHECK, EVENT_MS, CONTENT))
        decided = self.operator.decide(IdHashes(*hashes), ordered.column(_HAS_ID).to_numpy(), time)
        refused = np.flatnonzero(decided.late | decided.duplicate)
        verdicts = ordered.select((PARTITION, OFFSET)).take(pa.array(refused))
        return verdicts.append_column(IS_LATE, pa.array(decided.late[refused]))

    def filter(
        self, events: pl.DataFrame, watermark_ms: int = NO_WATERMARK, next_watermark_ms: int = NO_WATERMARK
    ) -> pl.DataFrame:
        """Return the events of a cut, which are in order, that are neither duplicates nor late."""
        columns = events.select(self._content).get_columns()
        time = CutTime(watermark_ms, next_watermark_ms, 0)
        ports = self._step(events[self._id], columns, events[EVENT_MS].to_numpy(), None, time)
        return events[ports[MAIN][_ROW]]

    def _step(
        self,
        ids: pl.Series,
        content: Sequence[pl.Series | pa.Array],
        event_ms: np.typing.NDArray[np.int64],
        order: np.typing.NDArray[np.intp] | None,
        time: CutTime,
    ) -> Ports:
        rows = pl.DataFrame(
            {
                _ID: ids,
                _CONTENT: hash_contents(content, len(ids)).view(np.int64),
                EVENT_MS: event_ms,
                _ROW: np.arange(len(ids)),
            }
        )
        return self.operator.step([rows if order is None else rows[order]], time)


def identify_events(schema: StreamSchema, events: pa.Table) -> pa.Table:
    """Return for each event the hashes of its id and of its content, its event time, partition and offset.

    ``events``: in one chunk.
    """
    assert schema.event_id is not None, "the schema requires it"
    ids = [pl.Series(events.column(schema.event_id))]
    hashes, checks = fingerprint_columns(ids, events.num_rows)
    contents = [events.column(name).combine_chunks() for name in schema.names if name != schema.event_id]
    columns = {
        HASH: pa.array(hashes),
        CHECK: pa.array(checks),
        CONTENT: pa.array(hash_contents(contents, events.num_rows)),
        _HAS_ID: pa.array(without_nulls(ids, events.num_rows)),
    }
    return pa.table(columns | {name: events.column(name) for name in (EVENT_MS, PARTITION, OFFSET)})


def take_out(events: pl.DataFrame, verdicts: pa.Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the events that are used, and those that are late. ``events``: in order of partition and offset.
    ``verdicts``: of ``decide_ids``, also on other events."""
    codes, wanted = position_codes(events), position_codes(verdicts)
    at = np.searchsorted(codes, wanted)
    here = np.flatnonzero(codes[np.minimum(at, len(codes) - 1)] == wanted) if len(codes) else at[:0]
    used = np.ones(len(codes), dtype=bool)
    used[at[here]] = False
    late = np.sort(at[here][verdicts.column(IS_LATE).to_numpy()[here]])
    return (events if used.all() else events.filter(pl.Series(used))), events[late]


def for_stream(schema: StreamSchema) -> EventDeduplication | None:
    """Return the deduplication of a stream; None if it declares none."""
    return None if schema.deduplicate_ms is None else EventDeduplication(schema)
