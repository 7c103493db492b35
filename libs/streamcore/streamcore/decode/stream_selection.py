"""Divides the records of a topic among its streams, by the condition of each stream (``StreamSchema.when``).

The values that the conditions compare are decoded first, each once for all streams that have it at one place in one
format. Then a record is decoded by its own stream alone. Nothing here knows Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.formats import Avro, InputFormat, Registry
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.event import OF_ANOTHER_TYPE
from streamcore.decode.stream_decoder import event_decoder
from streamcore.decode.types import Decoded, Decoder, RawBatch, dead_table
from streamcore.schema import StreamSchema
from streamcore.schema.record_places import SCHEMA_NAME

#: The owner of a record that no stream takes, of one that is ignored before that, and of one that cannot be read.
NO_STREAM: Final = -1
IGNORED: Final = -2
UNREADABLE: Final = -3


@dataclass(frozen=True, slots=True)
class TopicStream:
    """A stream of a topic, and the format of its records."""

    schema: StreamSchema
    format: InputFormat


@dataclass(frozen=True, slots=True)
class SelectedRecords:
    """``owner``: of each record the index of its stream, or one of the constants above. ``dead``: the unreadable ones,
    ``DEAD_SCHEMA``."""

    owner: npt.NDArray[np.int64]
    dead: pa.Table


class StreamSelection:
    """The streams of one topic. A record belongs to the first one whose condition it fulfils, or else to the one
    without a condition, if there is one."""

    def __init__(self, streams: Sequence[TopicStream], limits: DecodeLimits) -> None:
        self._streams = streams
        self._decoders: list[Decoder] = []
        self._places: dict[int, int] = {}  # by stream, the decoder of the value that its condition compares
        known: list[tuple[StreamSchema, InputFormat]] = []
        for number, stream in enumerate(streams):
            if stream.schema.when is None:
                continue
            wanted = stream.schema.discriminator(stream.schema.when)
            found = [n for n, one in enumerate(known) if _same_place(one, (wanted, stream.format))]
            if not found:
                known.append((wanted, stream.format))
                self._decoders.append(_discriminator(wanted, stream.format, limits))
            self._places[number] = found[0] if found else len(known) - 1
        self._rest = next((n for n, one in enumerate(streams) if one.schema.when is None), NO_STREAM)

    def select(self, batch: RawBatch) -> SelectedRecords:
        """Return the owner of each record."""
        batch = replace(batch, fields=None)  # what conditions compare are fields of other schemas
        owner = np.full(len(batch), self._rest, np.int64)
        values, dead = list[pa.Array](), dict[int, tuple[str, str]]()
        for decoder in self._decoders:
            decoded = decoder.decode(batch)
            for row, code, reason in zip(*(decoded.dead.column(n).to_pylist() for n in range(3)), strict=True):
                if code not in OF_ANOTHER_TYPE:
                    dead.setdefault(row, (code, reason))
            owner[list(decoded.ignored)] = IGNORED
            column = pa.nulls(len(batch), decoded.events.schema.field(0).type)
            rows = np.setdiff1d(np.arange(len(batch)), np.array(decoded.undecoded, np.int64))
            values.append(_spread(column, rows, decoded.events.column(0)))
        owner[[*dead]] = UNREADABLE
        for number in sorted(self._places, reverse=True):  # the first one that takes a record is the last one here
            when = self._streams[number].schema.when
            assert when is not None, "only streams with a condition have a place"
            column = values[self._places[number]]
            taken = pc.is_in(column, pa.array(when.equals, column.type)).to_numpy(zero_copy_only=False)
            owner[taken] = number
        rejected = sorted(row for row in dead if owner[row] == UNREADABLE)
        return SelectedRecords(owner, dead_table([(row, *dead[row]) for row in rejected]))


def _discriminator(wanted: StreamSchema, written: InputFormat, limits: DecodeLimits) -> Decoder:
    if isinstance(written, Avro | Registry) and wanted.fields[0].location == SCHEMA_NAME:
        return written.name_decoder(wanted, limits)
    return event_decoder(wanted, written, limits, ExtraFields.IGNORE)


class OwnEvents:
    """Decodes the events of one stream of a topic, and ignores the records of the others."""

    def __init__(self, stream: TopicStream, limits: DecodeLimits, extra_fields: ExtraFields) -> None:
        self._decoder = event_decoder(stream.schema, stream.format, limits, extra_fields)
        self._selection = StreamSelection([stream], limits) if stream.schema.when is not None else None

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        if self._selection is None:
            return self._decoder.decode(batch)
        selected = self._selection.select(batch)
        own = np.flatnonzero(selected.owner == 0)
        decoded = self._decoder.decode(batch.take(pa.array(own)))
        places = pa.array(own.astype(np.uint32))
        dead = decoded.dead.set_column(0, "row", places.take(decoded.dead.column("row")))
        dead = pa.concat_tables([selected.dead, dead]).sort_by("row")
        others = np.flatnonzero((selected.owner == NO_STREAM) | (selected.owner == IGNORED))
        return Decoded(decoded.events, dead, tuple(sorted([*others.tolist(), *own[list(decoded.ignored)].tolist()])))


def _same_place(one: tuple[StreamSchema, InputFormat], other: tuple[StreamSchema, InputFormat]) -> bool:
    same = (one[0].fields, one[0].envelope, one[0].zone) == (other[0].fields, other[0].envelope, other[0].zone)
    return same and one[1] == other[1]


def _spread(nulls: pa.Array, rows: npt.NDArray[np.int64], values: pa.ChunkedArray) -> pa.Array:
    """Return the values at their rows, and null in the others."""
    mask = np.zeros(len(nulls), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(nulls, pa.array(mask), values.combine_chunks())


__all__ = ["IGNORED", "NO_STREAM", "UNREADABLE", "OwnEvents", "SelectedRecords", "StreamSelection", "TopicStream"]
