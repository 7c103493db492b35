"""Reads the events of a file, one at a time: for few events this is faster than importing the columnar decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headgate.errors import InputError
from headgate.records.scalar_decoder import decode_scalars
from rulecore.explain.event import Row
from rulecore.streams import EVENT_TIME, STREAM, RuleInput, is_union, stream_names
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


def file_input(path: Path, on: str, streams: Mapping[str, StreamSchema]) -> RuleInput:
    """Return the input of a rule when its events are lines of a file."""
    return RuleInput.find(on, streams, dict.fromkeys(stream_names(on), path.name))


def numbered_lines(path: Path, lines: Sequence[bytes], source: RuleInput) -> dict[str, list[tuple[int, bytes]]]:
    """Return the lines of each stream with their numbers: of several streams, each event has its own as ``_stream``.

    Raises ``InputError`` for an event without it.
    """
    names = [one.schema.name for one in source.streams]
    if len(names) == 1:
        return {names[0]: [*enumerate(lines)]}
    found: dict[str, list[tuple[int, bytes]]] = {name: [] for name in names}
    for number, line in enumerate(lines):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        name = event.get(STREAM) if isinstance(event, dict) else None
        if name not in names:
            raise InputError(
                f"--event-json {path}: event {number + 1}: name its stream, {' or '.join(names)}, as {STREAM}"
            )
        found[str(name)].append((number, line))
    return found


def decode_rows(path: Path, lines: Sequence[bytes], source: RuleInput, clock_ms: int) -> list[Row]:
    """Decode lines of one JSON event each, in order of arrival; ignore fields that the stream does not declare.

    Raises ``InputError`` if a line is not an event of its stream.
    """
    numbered = numbered_lines(path, lines, source)
    rows = {
        number: row
        for one in source.streams
        for number, row in _stream_rows(path, numbered[one.schema.name], one.schema, clock_ms)
    }
    if not is_union(source.schema.name):
        return [rows[number] for number in range(len(lines))]
    absent = dict.fromkeys(source.schema.names)
    return [{**absent, **rows[number], EVENT_TIME: rows[number][EVENT_MS]} for number in range(len(lines))]


def _stream_rows(
    path: Path, lines: Sequence[tuple[int, bytes]], schema: StreamSchema, clock_ms: int
) -> Iterator[tuple[int, Row]]:
    decoded = decode_scalars(schema, (StreamRecord(line) for _, line in lines), clock_ms)
    dead = dict.fromkeys(
        row.general if isinstance(row, RejectedRecord) else OTHER_EVENT for row in decoded if not isinstance(row, tuple)
    )
    if dead:
        raise no_event(path, schema, dead)
    for (number, _), row in zip(lines, decoded, strict=True):
        assert isinstance(row, tuple), "the others were rejected above"
        yield number, _row(schema, row, number)


def _row(schema: StreamSchema, values: Sequence[Physical], offset: int) -> Row:
    row = dict(zip(schema.names, values, strict=True))
    return {**row, STREAM: schema.name, PARTITION: 0, OFFSET: offset, EVENT_MS: row[schema.event_time]}


def no_event(path: Path, schema: StreamSchema, dead: Iterable[str]) -> InputError:
    """Return the error for a file with records that are not events of the stream. ``dead``: the distinct reasons."""
    return InputError(f"--event-json {path}: not an event of {schema.name}: {'; '.join(dead)}")


def about_last(path: Path) -> str:
    """Describe the event in question, for users."""
    return f"the last event of {path}"


def missing_notes(source: RuleInput) -> tuple[str, ...]:
    """Return the note on fields that events of a file do not have, because a file has the values of records alone."""
    absent = ", ".join(
        field.name for one in source.streams for field in one.schema.fields if field.location[0] == KAFKA
    )
    return (f"a file has the values of records alone, so these fields are null: {absent}",) if absent else ()
