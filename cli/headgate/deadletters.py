"""Dead letters as values: what a record of the lane says, which of them are meant, and how they are repaired.

A letter's place in its topic (``partition/offset``) is its name: people point at it, edits are keyed by it, a replay
remembers it. Refuses to know how letters are read and sent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from headgate.errors import InputError
from headgate.output import Json
from streamcore.kafka.readers import Record

_SPAN = re.compile(r"([0-9]{1,9})(?:/([0-9]{1,18})(?:-([0-9]{1,18}))?)?\Z")
_LAST = 2**63 - 1
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Source:
    """Where the record was read that became a dead letter."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. ``source`` None: it does not say where it came from, so it cannot be sent again."""

    partition: int
    offset: int
    timestamp_ms: int
    code: str
    reason: str
    key: bytes | None
    value: bytes | None
    source: Source | None

    @property
    def place(self) -> str:
        """Its name."""
        return f"{self.partition}/{self.offset}"

    def json(self) -> dict[str, Json]:
        """For programs. A value or key that is no text is under ``..._base64``."""
        source = None if self.source is None else {n: getattr(self.source, n) for n in ("topic", "partition", "offset")}
        said: dict[str, Json] = {"at": self.place, "timestamp_ms": self.timestamp_ms, "code": self.code}
        return said | {"reason": self.reason, "source": source} | _bytes("key", self.key) | _bytes("value", self.value)

    @property
    def shown(self) -> str:
        """The value in one line, shortened."""
        text = "" if self.value is None else self.value.decode(errors="backslashreplace")
        line = "".join(c if c.isprintable() else " " for c in text)
        return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


def letter_of(record: Record) -> Letter:
    """What a record of the lane says."""
    topic, partition, offset = (record.header(f"source_{name}") for name in ("topic", "partition", "offset"))
    source = None
    if topic is not None and partition is not None and offset is not None and partition.isdigit() and offset.isdigit():
        source = Source(topic.decode(errors="replace"), int(partition), int(offset))
    code, reason = (record.header(name) or b"" for name in ("reason_code", "reason"))
    return Letter(
        record.partition,
        record.offset,
        record.timestamp_ms,
        code.decode(errors="replace"),
        reason.decode(errors="replace"),
        record.key,
        record.value,
        source,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are meant: all that fit everything that is said. ``places``: partition, first and last offset."""

    places: Sequence[tuple[int, int, int]] = ()
    codes: Sequence[str] = ()
    reason: str | None = None
    topics: Sequence[str] = ()

    @classmethod
    def of(cls, places: Sequence[str], codes: Sequence[str], reason: str | None, topics: Sequence[str]) -> Wanted:
        """``places`` are ``0``, ``0/17`` or ``0/17-42``; ``InputError`` for anything else."""
        return cls([_span(place) for place in places], codes, reason, topics)

    def fits(self, letter: Letter) -> bool:
        """Whether this one is meant."""
        placed = not self.places or any(p == letter.partition and a <= letter.offset <= b for p, a, b in self.places)
        coded = not self.codes or letter.code in self.codes
        said = self.reason is None or self.reason.lower() in letter.reason.lower()
        from_there = not self.topics or (letter.source is not None and letter.source.topic in self.topics)
        return placed and coded and said and from_there


def _span(text: str) -> tuple[int, int, int]:
    match = _SPAN.match(text)
    if match is None:
        raise InputError(
            f"place {text!r}: write a partition, partition/offset or partition/first-last, such as 0/17-42"
        )
    partition, first, last = match.groups()
    if first is None:
        return int(partition), 0, _LAST
    return int(partition), int(first), int(last or first)


# --- repairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Repair:
    """``values``: whole new values by place. ``fields``: what is set in each value that is a JSON object."""

    values: Mapping[str, bytes | None]
    fields: Mapping[str, Json]

    def value(self, letter: Letter) -> bytes | None:
        """The letter's value, repaired; ``InputError`` where a field is to be set in what is no JSON object."""
        value = self.values.get(letter.place, letter.value)
        if not self.fields:
            return value
        try:
            document = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise InputError(f"letter {letter.place}: --set works on JSON objects, and this value is none; use --edit")
        return orjson.dumps(document | dict(self.fields))


def read_edits(path: Path) -> dict[str, bytes | None]:
    """Lines as ``show -o json`` prints them: ``at`` and a new ``value`` (text) or ``value_base64``."""
    edits: dict[str, bytes | None] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            place, value = _edit(line, f"{path}:{number}")
            if place in edits:
                raise InputError(f"{path}:{number}: {place} is there twice; keep one of the two")
            edits[place] = value
    return edits


def _edit(line: str, where: str) -> tuple[str, bytes | None]:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}") from None
    place = entry.get("at") if isinstance(entry, dict) else None
    if not isinstance(place, str) or "/" not in place or ("value" in entry) == ("value_base64" in entry):
        raise InputError(f"{where}: an object with at (partition/offset) and value or value_base64 is needed")
    if "value" in entry:
        value = entry["value"]
        if value is None or isinstance(value, str):
            return place, None if value is None else value.encode()
        return place, orjson.dumps(value)  # an object that somebody unfolded
    try:
        return place, base64.b64decode(str(entry["value_base64"]), validate=True)
    except binascii.Error:
        raise InputError(f"{where}: value_base64 is no base64") from None


def read_fields(settings: Iterable[str]) -> dict[str, Json]:
    """``name=value`` each; the value is JSON, or else text."""
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


def _bytes(name: str, value: bytes | None) -> dict[str, Json]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
