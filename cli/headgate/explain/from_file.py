"""The events of a file that an explanation is about, one event at a time: few of them are decoded faster than columns
are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate.errors import InputError
from headgate.records.scalar_decoder import decode_scalars
from rulecore.explain.event import Row
from streamcore.decode.scalar import RejectedRecord, Scalar
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema


def read_lines(path: Path) -> Sequence[bytes]:
    """Read the lines that are not empty; ``InputError`` when there is none."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"--event-json {path}: {error.strerror}; name a file that you may read") from None
    if not lines:
        raise InputError(f"--event-json {path}: is empty; write one JSON event a line")
    return lines


def decode_rows(path: Path, lines: Sequence[bytes], schema: StreamSchema, clock_ms: int) -> list[Row]:
    """One JSON event a line, in order of arrival; fields that the stream does not declare are passed over."""
    found = decode_scalars(schema, lines, clock_ms)
    dead = dict.fromkeys(one.general for one in found if isinstance(one, RejectedRecord))
    if dead:
        raise no_event(path, schema, dead)
    return [_row(schema, one, n) for n, one in enumerate(found) if not isinstance(one, RejectedRecord)]


def _row(schema: StreamSchema, values: Sequence[Scalar], offset: int) -> Row:
    row = dict(zip(schema.names, values, strict=True))
    return {**row, PARTITION: 0, OFFSET: offset, EVENT_MS: row[schema.event_time]}


def no_event(path: Path, schema: StreamSchema, dead: Iterable[str]) -> InputError:
    """Return the error for a file with a record that is no event of the stream. ``dead``: the reasons, each once."""
    return InputError(f"--event-json {path}: no event of {schema.name}: {'; '.join(dead)}")


def about_last(path: Path) -> str:
    """Describe the event in question, for people."""
    return f"the last event of {path}"
