"""Reads the events of a file, one at a time: for few events this is faster than importing the columnar decoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate.errors import InputError
from headgate.records.scalar_decoder import decode_scalars
from rulecore.explain.event import Row
from streamcore.decode.scalar import Physical, RejectedRecord, StreamRecord
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.schema.record_places import KAFKA

#: The reason why a record that is ignored is not an event.
OTHER_EVENT = "it is an event of another stream (see `when` in the stream file), or a tombstone"


def read_lines(path: Path) -> Sequence[bytes]:
    """Read the lines that are not empty; raises ``InputError`` if there is none."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"--event-json {path}: {error.strerror}; name a file that you may read") from None
    if not lines:
        raise InputError(f"--event-json {path}: is empty; write one JSON event per line")
    return lines


def decode_rows(path: Path, lines: Sequence[bytes], schema: StreamSchema, clock_ms: int) -> list[Row]:
    """Decode lines of one JSON event each, in order of arrival; ignore fields that the stream does not declare.

    Raises ``InputError`` if a line is not an event of the stream.
    """
    decoded = decode_scalars(schema, map(StreamRecord, lines), clock_ms)
    dead = dict.fromkeys(
        row.general if isinstance(row, RejectedRecord) else OTHER_EVENT for row in decoded if not isinstance(row, tuple)
    )
    if dead:
        raise no_event(path, schema, dead)
    return [_row(schema, row, n) for n, row in enumerate(decoded) if isinstance(row, tuple)]


def _row(schema: StreamSchema, values: Sequence[Physical], offset: int) -> Row:
    row = dict(zip(schema.names, values, strict=True))
    return {**row, PARTITION: 0, OFFSET: offset, EVENT_MS: row[schema.event_time]}


def no_event(path: Path, schema: StreamSchema, dead: Iterable[str]) -> InputError:
    """Return the error for a file with records that are not events of the stream. ``dead``: the distinct reasons."""
    return InputError(f"--event-json {path}: not an event of {schema.name}: {'; '.join(dead)}")


def about_last(path: Path) -> str:
    """Describe the event in question, for users."""
    return f"the last event of {path}"


def missing_notes(schema: StreamSchema) -> tuple[str, ...]:
    """Return the note on fields that events of a file do not have, because a file has the values of records alone."""
    absent = ", ".join(field.name for field in schema.fields if field.location[0] == KAFKA)
    return (f"a file has the values of records alone, so these fields are null: {absent}",) if absent else ()
