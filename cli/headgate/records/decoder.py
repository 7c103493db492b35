"""Decodes records of a stream to its events, for commands that read some of them: keeps their positions, and counts
rejected records by reason."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headgate.records.scalar_decoder import SCALAR_LIMIT, decode_scalars
from streamcore.decode.scalar import DecodeLimits, ExtraFields, RejectCode, RejectedRecord
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

if TYPE_CHECKING:
    from streamcore.decode.json.decoder import JsonDecoder


class EventDecoder:
    """Decodes records to events with their positions. Records with a time far after ``clock_ms`` are rejected.

    Fields that the stream does not declare are ignored, as an app does by default. Few records are decoded one by one:
    the result is the same, and the columnar decoder takes 0.1 s to load.
    """

    def __init__(self, schema: StreamSchema, clock_ms: int) -> None:
        self.schema = schema
        self.clock_ms = clock_ms
        self.dead: Counter[str] = Counter()

    def __call__(self, values: pa.Array, partition: pa.Array, offset: pa.Array) -> pl.DataFrame:
        """Decode the events among some records; count the others."""
        some = self._few if len(values) <= SCALAR_LIMIT else self._columns
        frame = pl.from_arrow(some(values, partition, offset))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _few(self, values: pa.Array, partition: pa.Array, offset: pa.Array) -> pa.Table:
        found = decode_scalars(self.schema, values.to_pylist(), self.clock_ms)
        self.dead.update(one.general for one in found if isinstance(one, RejectedRecord))
        names = self.schema.names
        rows = [
            {**dict(zip(names, one, strict=True)), PARTITION: place[0], OFFSET: place[1]}
            for one, *place in zip(found, partition.to_pylist(), offset.to_pylist(), strict=True)
            if not isinstance(one, RejectedRecord)
        ]
        return pa.Table.from_pylist(
            [{**row, EVENT_MS: row[self.schema.event_time]} for row in rows], schema=self.schema.arrow
        )

    def _columns(self, values: pa.Array, partition: pa.Array, offset: pa.Array) -> pa.Table:
        from streamcore.decode.types import RawBatch

        decoded = self._decoder.decode(RawBatch(values, partition, offset, self.clock_ms))
        self.dead.update(one.general for one in _rejections(decoded.dead))
        return decoded.events

    @functools.cached_property
    def _decoder(self) -> JsonDecoder:
        from streamcore.decode.json.decoder import JsonDecoder

        return JsonDecoder(self.schema, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)

    def take_dead(self) -> Mapping[str, int]:
        """Return the counts since the last call, by reason."""
        found, self.dead = self.dead, Counter()
        return found


def _rejections(dead: pa.Table) -> Iterator[RejectedRecord]:
    columns = (dead.column(name).to_pylist() for name in ("code", "reason"))
    return (RejectedRecord(RejectCode(code), reason) for code, reason in zip(*columns, strict=True))
