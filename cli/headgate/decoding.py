"""Records of a stream to its events, for commands that look at some of them: with their places, and what is no event
counted by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import polars as pl
import pyarrow as pa

from streamcore.decode import JsonDecoder, RawBatch
from streamcore.records import DeadCode, DecodeLimits, ExtraFields, Rejected
from streamcore.schema import StreamSchema


class Decoding:
    """Records to events, with their places. ``clock_ms``: what is far ahead of it is no event.

    Fields that the stream does not declare are passed over, as an app does that is not told otherwise.
    """

    def __init__(self, schema: StreamSchema, clock_ms: int) -> None:
        self.schema = schema
        self.clock_ms = clock_ms
        self.dead: Counter[str] = Counter()
        self._decoder = JsonDecoder(schema, limits=DecodeLimits(), extra_fields=ExtraFields.IGNORE)

    def __call__(self, values: pa.Array, partition: pa.Array, offset: pa.Array) -> pl.DataFrame:
        """The events among some records; counts the others."""
        decoded = self._decoder.decode(RawBatch(values, partition, offset, self.clock_ms))
        self.dead.update(one.general for one in _rejections(decoded.dead))
        frame = pl.from_arrow(decoded.events)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def take_dead(self) -> Mapping[str, int]:
        """What was counted since the last call, by reason."""
        found, self.dead = self.dead, Counter()
        return found


def _rejections(dead: pa.Table) -> Iterator[Rejected]:
    columns = (dead.column(name).to_pylist() for name in ("code", "reason"))
    return (Rejected(DeadCode(code), reason) for code, reason in zip(*columns, strict=True))
