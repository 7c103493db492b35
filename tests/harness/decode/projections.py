"""Decodes a batch to all columns and to some of them: no column decides which records are events."""

from __future__ import annotations

from dataclasses import replace

from streamcore.decode.types import Decoded, Decoder, RawBatch
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema


def decode_and_project(decoder: Decoder, batch: RawBatch, schema: StreamSchema) -> Decoded:
    """Decode the batch. Assert that with every second field alone it gives these columns, and the same otherwise."""
    decoded = decoder.decode(batch)
    fields = [name for n, name in enumerate(schema.names) if n % 2 or name == schema.event_time]
    some = decoder.decode(replace(batch, fields=frozenset(fields)))
    assert some.events.column_names == [*fields, PARTITION, OFFSET, EVENT_MS]
    assert repr(some.events.to_pylist()) == repr(decoded.events.select(some.events.column_names).to_pylist())
    assert some.dead.equals(decoded.dead)
    assert some.ignored == decoded.ignored
    return decoded
