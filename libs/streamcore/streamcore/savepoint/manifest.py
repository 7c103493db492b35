"""The manifest of a savepoint: its app, batch and epoch, the offsets of all sources, and its files of state.

A restore needs only the manifest and the files in it, which it lists with sizes and digests. Paths are relative, and
nothing depends on Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from pydantic import TypeAdapter, ValidationError

from streamcore.errors import ConfigError, CorruptState
from streamcore.key_space import KeySpace
from streamcore.offsets import StreamOffsets
from streamcore.schema.published_document import PublishedDocument
from streamcore.storage import checked_json

FORMAT = 4
#: The format of a savepoint with streams that were published while its app ran: a program that does not know them
#: rejects it.
FORMAT_WITH_STREAMS = 5
#: The formats that this program reads. Format 3 did not know key groups.
READABLE = (3, FORMAT, FORMAT_WITH_STREAMS)
_REMEDY = "take the savepoint from a copy"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class StateTableDescription:
    """A state table of one keyed stage.

    ``columns``: Polars types by name, empty if they are unknown before the first row. ``version``: of the rows' layout,
    None if the table has no versions. ``reads``: the older versions that migrations convert. ``replicated``: whether
    all shards have the same rows; several stages may have such a table.
    """

    name: str
    stage: int
    columns: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None
    reads: tuple[int, ...] = ()
    replicated: bool = False

    @property
    def owner(self) -> str:
        """The name of the operator that the table belongs to; the table's own name in an app without operators."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class OperatorDescription:
    """The time of an operator with state: the topics whose watermark it waits for, and how far behind that watermark it
    works."""

    name: str
    topics: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class AppDescription:
    """The parts of an app that decide whether a savepoint is compatible.

    ``watermark_groups``: the topics of each watermark group. ``operators``: those with state of a stream program; none
    for other apps. ``key_groups``: None in a savepoint of format 3, whose shards had no ranges of key groups.
    """

    name: str
    shards: int
    stages: int
    topics: tuple[str, ...]
    control_topic: str
    watermark_groups: tuple[tuple[str, ...], ...]
    tables: tuple[StateTableDescription, ...]
    operators: tuple[OperatorDescription, ...] = ()
    key_groups: int | None = None

    @property
    def key_space(self) -> KeySpace | None:
        """The division of its keys; None if it is unknown, so that any shard may have the rows of any key group."""
        return None if self.key_groups is None else KeySpace(self.shards, self.key_groups)


@dataclass(frozen=True, slots=True)
class UnequalCopies:
    """A replicated table whose rows differ between two shards, so that no other number of shards can take them."""

    table: str
    shards: tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The event time of one partition of a topic, with the fields of ``watermark.PartitionTime``."""

    topic: str
    partition: int
    max_event_ms: int
    active_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class WatermarkGroupProgress:
    """The event time of a watermark group, which has one watermark."""

    topics: tuple[str, ...]
    watermark_ms: int
    partitions: tuple[PartitionProgress, ...]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A state table in all shards. ``versions``: of the rows' layouts; (1) if the table has no versions."""

    name: str
    stage: int
    rows: int
    bytes: int
    columns: Mapping[str, str]
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of the savepoint. ``path``: relative to the savepoint. ``sha256``: digest of its content, hexadecimal."""

    path: str
    stage: int
    shard: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavepointManifest:
    """A savepoint of the state after ``batch`` of ``epoch``.

    ``position``: the offsets and clock at which the next cut begins (``StreamOffsets.to_json``). ``settled``: False if
    a part of a later batch may be written. ``app``: the app that took it. ``version``: of the program.
    ``unequal_copies``: one entry for each replicated table that is not the same in all shards. ``streams``: those that
    were published while the app ran, as the next cut has them.
    """

    name: str
    epoch: int
    batch: int
    created_ms: int
    version: str
    settled: bool
    app: AppDescription
    position: Mapping[str, object]
    watermark_groups: tuple[WatermarkGroupProgress, ...]
    tables: tuple[StoredTable, ...]
    files: tuple[StateFile, ...]
    format: int = FORMAT
    unequal_copies: tuple[UnequalCopies, ...] = ()
    streams: tuple[PublishedDocument, ...] = ()

    @property
    def total_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def total_rows(self) -> int:
        """The rows of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def next_position(self) -> StreamOffsets:
        """The offsets and clock at which the next cut begins."""
        return StreamOffsets.from_json(self.position)

    def to_json(self) -> bytes:
        """Return the manifest as it is stored: with a digest of itself (``checked_json``)."""
        return checked_json.encode(_adapter().dump_python(self, mode="json"))

    @classmethod
    def from_json(cls, content: bytes, where: str) -> SavepointManifest:
        """Parse a stored manifest. ``where``: the savepoint's address, for messages.

        Raises ``ConfigError`` for the format of another program version, and ``CorruptState`` if it is invalid.
        """
        if (known := _format(content)) not in (*READABLE, None):
            read = ", ".join(map(str, READABLE))
            raise ConfigError(f"{where}: format {known!r}, this program reads {read}; use the program that wrote it")
        document = checked_json.parse(content, f"{where}/{MANIFEST}", _REMEDY)
        try:
            return _adapter().validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise CorruptState(f"{where}: {place}: {first['msg']}; {_REMEDY}") from error

    @property
    def digest(self) -> str:
        """The digest of the whole savepoint: of the manifest, which has the digests of all files."""
        return sha256(self.to_json())


def _format(content: bytes) -> object:
    """Return the format of a stored manifest, also of one that this program cannot read; None if it has none."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document.get("format") if isinstance(document, dict) else None


def sha256(content: bytes) -> str:
    """Return the SHA-256 digest, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


@cache
def _adapter() -> TypeAdapter[SavepointManifest]:
    return TypeAdapter(SavepointManifest)
