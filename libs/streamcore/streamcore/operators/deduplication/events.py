"""The deduplication that a stream declares, for the events of the stream as they are decoded.

An app, a back-test, a backfill and the tests of rules take it from here, so that they agree on which event counts.
"""

from __future__ import annotations

import polars as pl

from streamcore.durations import Milliseconds
from streamcore.limits import MAX_EVENT_IDS
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.deduplication.operator import Deduplicate, Deduplication, Duplicates, WhenFull
from streamcore.schema import StreamSchema
from streamcore.watermark import NO_WATERMARK


class EventDeduplication:
    """Removes the repeated events of a stream with ``deduplicate``. Duplicates are counted, also those whose fields
    differ from those of the event that passed.

    At the limit the oldest ids are forgotten and events of their time are late, so that no event counts twice.
    """

    def __init__(self, schema: StreamSchema, *, max_ids: int = MAX_EVENT_IDS) -> None:
        assert schema.deduplicate_ms is not None, "only for a stream with deduplicate"
        assert schema.event_id is not None, "the schema requires it"
        self.operator = Deduplicate(
            Deduplication(
                (schema.event_id,),
                Milliseconds(schema.deduplicate_ms),
                max_ids=max_ids,
                when_full=WhenFull.FORGET_OLDEST,
                duplicates=Duplicates.COUNT,
                content_columns=tuple(name for name in schema.names if name != schema.event_id),
            ),
            pl.DataFrame(schema.arrow.empty_table()).schema,
        )

    def filter(
        self, events: pl.DataFrame, watermark_ms: int = NO_WATERMARK, next_watermark_ms: int = NO_WATERMARK
    ) -> pl.DataFrame:
        """Return the events of a cut that are neither duplicates nor too late to be told from one."""
        return self.operator.step([events], CutTime(watermark_ms, next_watermark_ms, 0))[MAIN]


def for_stream(schema: StreamSchema) -> EventDeduplication | None:
    """Return the deduplication of a stream; None if it declares none."""
    return None if schema.deduplicate_ms is None else EventDeduplication(schema)
