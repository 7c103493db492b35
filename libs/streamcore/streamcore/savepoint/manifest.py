"""The manifest of a savepoint: of which app, batch and epoch, where every source was, what state it holds.

Promises: everything that a restore has to know is here or in the files that are named here, with their sizes and
digests; no path is absolute, nothing in it is Spark's. Refuses to know where savepoints lie and how they are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import orjson
from pydantic import TypeAdapter, ValidationError

from streamcore.errors import ConfigError, CorruptState
from streamcore.offsets import StreamOffsets

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class StateTableDescription:
    """A named table of one keyed stage.

    ``columns``: name and type as Polars writes it, none where they are not known before there is a row. ``version``: of
    the rows' layout, None where it is not counted; ``reads``: the older versions that a migration leads from.
    """

    name: str
    stage: int
    columns: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None
    reads: tuple[int, ...] = ()

    @property
    def owner(self) -> str:
        """The operator that it belongs to; the table itself where there are no operators."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class OperatorDescription:
    """The parts of an operator's time: the topics whose watermark it waits for, and how far behind it works."""

    name: str
    topics: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class AppDescription:
    """The parts of an app that decide whether state fits it. ``domains``: watermark groups, as topics;
    ``operators``: of topologies."""

    name: str
    shards: int
    stages: int
    topics: tuple[str, ...]
    control_topic: str
    domains: tuple[tuple[str, ...], ...]
    tables: tuple[StateTableDescription, ...]
    operators: tuple[OperatorDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far event time has come in one partition of a topic: as in ``watermark.PartitionTime``."""

    topic: str
    partition: int
    max_event_ms: int
    active_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class DomainProgress:
    """How far event time has come for a set of topics."""

    topics: tuple[str, ...]
    watermark_ms: int
    partitions: tuple[PartitionProgress, ...]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The rows of one table in all shards. ``versions``: of their layout, 1 where rows have none."""

    name: str
    stage: int
    rows: int
    bytes: int
    columns: Mapping[str, str]
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of the savepoint, by its path in it. ``sha256``: of its content, hexadecimal."""

    path: str
    stage: int
    shard: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavepointManifest:
    """A savepoint of the state after ``batch`` of ``epoch``.

    ``position``: ``RecordOffset.to_json``, where the next cut begins. ``settled``: false when a later batch may have
    been written in part. ``app``: the app as it was; ``version``: of the program.
    """

    name: str
    epoch: int
    batch: int
    created_ms: int
    version: str
    settled: bool
    app: AppDescription
    position: Mapping[str, object]
    domains: tuple[DomainProgress, ...]
    tables: tuple[StoredTable, ...]
    files: tuple[StateFile, ...]
    format: int = FORMAT

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """Of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def next_position(self) -> StreamOffsets:
        """Where the cut after it begins."""
        return StreamOffsets.from_json(self.position)

    def to_json(self) -> bytes:
        """Encode as stored."""
        return orjson.dumps(_adapter().dump_python(self, mode="json"), option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, content: bytes, where: str) -> SavepointManifest:
        """Parse a stored manifest. ``ConfigError`` for a format that this program does not read, ``CorruptState`` for
        what is none."""
        try:
            document = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise CorruptState(f"{where}: not JSON ({error}); take the savepoint from a copy") from error
        known = document.get("format") if isinstance(document, dict) else None
        if known != FORMAT:
            raise ConfigError(f"{where}: format {known!r}, this program reads {FORMAT}; use the program that wrote it")
        try:
            return _adapter().validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise CorruptState(f"{where}: {place}: {first['msg']}; take the savepoint from a copy") from error

    @property
    def digest(self) -> str:
        """Of the whole savepoint: its manifest names the digests of its files."""
        return sha256(self.to_json())


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@cache
def _adapter() -> TypeAdapter[SavepointManifest]:
    return TypeAdapter(SavepointManifest)
