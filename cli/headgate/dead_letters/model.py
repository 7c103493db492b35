"""Dead letters: their content, their selection and their repair.

A dead letter is identified by its position in its topic, ``partition/offset``: users refer to it, edits are keyed by
it, and a replay stores it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from headgate.console.output import Json
from headgate.errors import InputError
from streamcore.kafka.readers import Record
from streamcore.wire.lanes import SOURCE_HEADER

_SPAN = re.compile(r"([0-9]{1,9})(?:/([0-9]{1,18})(?:-([0-9]{1,18}))?)?\Z")
_LAST = 2**63 - 1
#: How every reason begins that is about a field (``streamcore.decode``, ``rulecore.mapping``).
_FIELD = re.compile(r"field ([^\s:]+(?: \([^)]*\))?)(?::| is | occurs |\Z)")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position from which the app read the rejected record."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. ``code`` and ``reason``: why the app rejected the record; ``key`` and ``value``: its original
    bytes, ``headers``: those of its headers that the app reads. ``source``: its position; None if it is not known, so
    that the record cannot be sent again."""

    partition: int
    offset: int
    timestamp_ms: int
    code: str
    reason: str
    key: bytes | None
    value: bytes | None
    source: SourcePosition | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def position(self) -> str:
        """The position in the dead-letter topic, ``partition/offset``."""
        return f"{self.partition}/{self.offset}"

    def json(self) -> dict[str, Json]:
        """Return the JSON of the dead letter. A key or value that is not text is in ``key_base64`` or
        ``value_base64``."""
        source = None if self.source is None else {n: getattr(self.source, n) for n in ("topic", "partition", "offset")}
        entries: dict[str, Json] = {"at": self.position, "timestamp_ms": self.timestamp_ms, "code": self.code}
        return (
            entries
            | {"reason": self.reason, "source": source}
            | _bytes_json("key", self.key)
            | _bytes_json("value", self.value)
        )

    @property
    def field(self) -> str | None:
        """The field that the reason is about; None if it is about the whole record, or names none."""
        match = _FIELD.match(self.reason)
        return None if match is None else match.group(1).strip('"')

    @property
    def input(self) -> str | None:
        """The topic that the record came from; None if it is not known."""
        return None if self.source is None else self.source.topic

    @property
    def text_line(self) -> str:
        """The value as one line of at most ``_SHOWN_CHARACTERS`` characters."""
        text = "" if self.value is None else self.value.decode(errors="backslashreplace")
        line = "".join(c if c.isprintable() else " " for c in text)
        return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


def to_dead_letter(record: Record) -> DeadLetter:
    """Decode a dead-letter record."""
    topic, partition, offset = (record.header(f"source_{name}") for name in ("topic", "partition", "offset"))
    source = None
    if topic is not None and partition is not None and offset is not None and partition.isdigit() and offset.isdigit():
        source = SourcePosition(topic.decode(errors="replace"), int(partition), int(offset))
    code, reason = (record.header(name) or b"" for name in ("reason_code", "reason"))
    return DeadLetter(
        record.partition,
        record.offset,
        record.timestamp_ms,
        code.decode(errors="replace"),
        reason.decode(errors="replace"),
        record.key,
        record.value,
        source,
        tuple((n.removeprefix(SOURCE_HEADER), v) for n, v in record.headers if n.startswith(SOURCE_HEADER)),
    )


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects the dead letters that match all criteria; an empty criterion matches all. ``positions``: partition, first
    and last offset. ``reason``: a part of the reason. ``topics``: source topics."""

    positions: Sequence[tuple[int, int, int]] = ()
    codes: Sequence[str] = ()
    reason: str | None = None
    topics: Sequence[str] = ()

    @classmethod
    def of(
        cls, positions: Sequence[str], codes: Sequence[str], reason: str | None, topics: Sequence[str]
    ) -> DeadLetterFilter:
        """Parse the criteria; ``positions`` are ``0``, ``0/17`` or ``0/17-42``; ``InputError`` for anything else."""
        return cls([_parse_position(position) for position in positions], codes, reason, topics)

    def matches(self, dead_letter: DeadLetter) -> bool:
        """Return whether the filter selects this record."""
        matches_position = not self.positions or any(
            p == dead_letter.partition and a <= dead_letter.offset <= b for p, a, b in self.positions
        )
        matches_code = not self.codes or dead_letter.code in self.codes
        matches_reason = self.reason is None or self.reason.lower() in dead_letter.reason.lower()
        matches_topic = not self.topics or (dead_letter.source is not None and dead_letter.source.topic in self.topics)
        return matches_position and matches_code and matches_reason and matches_topic


def _parse_position(text: str) -> tuple[int, int, int]:
    match = _SPAN.match(text)
    if match is None:
        raise InputError(
            f"position {text!r}: write a partition, partition/offset or partition/first-last, such as 0/17-42"
        )
    partition, first, last = match.groups()
    if first is None:
        return int(partition), 0, _LAST
    return int(partition), int(first), int(last or first)


# --- repairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Repair:
    """``values``: whole new values by position. ``fields``: the fields to set in each value that is a JSON object."""

    values: Mapping[str, bytes | None]
    fields: Mapping[str, Json]

    def value(self, dead_letter: DeadLetter) -> bytes | None:
        """Return the repaired value. Raises ``InputError`` if a field is to be set in a value that is not a JSON
        object."""
        value = self.values.get(dead_letter.position, dead_letter.value)
        if not self.fields:
            return value
        try:
            document = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise InputError(
                f"dead letter {dead_letter.position}: its value is not a JSON object, so --set cannot change it;"
                " use --edit"
            )
        return orjson.dumps(document | dict(self.fields))


def read_edits(path: Path) -> dict[str, bytes | None]:
    """Read new values by position from lines as ``show -o json`` prints them: ``at``, and ``value`` or
    ``value_base64``."""
    edits: dict[str, bytes | None] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            position, value = _parse_edit(line, f"{path}:{number}")
            if position in edits:
                raise InputError(f"{path}:{number}: {position} occurs twice; keep one of the two")
            edits[position] = value
    return edits


def _parse_edit(line: str, source: str) -> tuple[str, bytes | None]:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{source}: not JSON: {error}") from None
    position = entry.get("at") if isinstance(entry, dict) else None
    if not isinstance(position, str) or "/" not in position or ("value" in entry) == ("value_base64" in entry):
        raise InputError(f"{source}: write an object with at (partition/offset) and value or value_base64")
    if "value" in entry:
        value = entry["value"]
        if value is None or isinstance(value, str):
            return position, None if value is None else value.encode()
        return position, orjson.dumps(value)  # the user wrote the object itself instead of its JSON text
    try:
        return position, base64.b64decode(str(entry["value_base64"]), validate=True)
    except binascii.Error:
        raise InputError(f"{source}: value_base64 is not base64") from None


def read_fields(settings: Iterable[str]) -> dict[str, Json]:
    """Parse settings of the form ``name=value``; the value is JSON, or else text."""
    fields: dict[str, Json] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {setting!r}: write field=value")
        try:
            fields[name.strip()] = orjson.loads(text)
        except orjson.JSONDecodeError:
            fields[name.strip()] = text
    return fields


def _bytes_json(name: str, value: bytes | None) -> dict[str, Json]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
