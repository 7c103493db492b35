"""A Delta table with the reads and commits that the sink needs. Maintenance and compaction use ``deltalake`` directly.

Exceptions become errors of ``streamcore.errors``: ``Retryable`` if a later call may succeed, as after a commit
conflict; ``ConfigError`` if an operator has to change something first. Nothing is retried here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError

from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.delta.schema import without_bounds
from streamcore.sinks.delta.settings import DeltaTableSpec
from streamcore.sinks.lake.columns import DICTIONARY_BYTES

#: No hooks after a commit: checkpoints and the cleaning of the log belong to maintenance, never to a cut.
NOTHING_AFTER = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

#: Messages of operating systems and object stores for failures that do not pass by themselves.
_REJECTION = re.compile(
    r"Permission ?denied|Read-only file system|\(os error (1|13|20|30)\)|AccessDenied|InvalidAccessKeyId|NoSuchBucket"
    r"|SignatureDoesNotMatch|InvalidToken|status(:| code)? 40[13]|Unauthenticated|Invalid table (URI|location)",
    re.IGNORECASE,
)
_CONSTRAINT = "delta.constraints."


@contextmanager
def naming_errors(uri: str) -> Iterator[None]:
    """Turn the library's exceptions in the block into errors of ``streamcore.errors``. ``uri``: of the table."""
    try:
        yield
    except (DeltaProtocolError, NotImplementedError) as error:
        raise ConfigError(f"delta table {uri}: has a feature that cannot be written: {_line(error)}") from error
    except SchemaMismatchError as error:
        raise Retryable(f"delta table {uri}: its columns changed: {_line(error)}") from error
    except (DeltaError, OSError, ValueError) as error:
        if _REJECTION.search(str(error)):
            raise ConfigError(f"delta table {uri}: rejected: {_line(error)}; check permissions and address") from error
        raise Retryable(f"delta table {uri}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    """Return the error's message on one line, without colour codes."""
    return " ".join(re.sub(r"\x1b\[\d+m", "", str(error)).split())[:500]


class OpenTable:
    """One version of a table, and commits based on it.

    A commit fails if a commit since this version names one of its application ids; the library compares them.
    """

    def __init__(self, spec: DeltaTableSpec, table: DeltaTable) -> None:
        self.spec = spec
        self._table = table
        self.columns: pa.Schema = pa.schema(table.schema().to_arrow())
        self._writer = _writer_properties(self.columns)

    @classmethod
    def load(cls, spec: DeltaTableSpec, storage: Mapping[str, str]) -> OpenTable | None:
        """Open the newest version of the table; return None if the table does not exist."""
        with naming_errors(spec.uri):
            try:
                return cls(spec, DeltaTable(spec.uri, storage_options=dict(storage)))
            except TableNotFoundError:
                return None

    @staticmethod
    def create(spec: DeltaTableSpec, storage: Mapping[str, str], columns: pa.Schema) -> None:
        """Create an empty table. Raise ``Retryable`` if another writer created it first."""
        with naming_errors(spec.uri):
            try:
                DeltaTable.create(
                    spec.uri,
                    Schema.from_arrow(columns),
                    partition_by=list(spec.partition_by),
                    storage_options=dict(storage),
                )
            except TableNotFoundError as error:
                raise ConfigError(f"delta table {spec.uri}: cannot be created there: {_line(error)}") from error

    @property
    def version(self) -> int:
        """The number of this version."""
        return self._table.version()

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The table's partition columns."""
        return tuple(self._table.metadata().partition_columns)

    @property
    def constraints(self) -> list[str]:
        """Names of the table's CHECK constraints."""
        return [name for name in self._table.metadata().configuration if name.startswith(_CONSTRAINT)]

    def transaction(self, application: str) -> int | None:
        """Return the last version that was committed for an application id, or None."""
        with naming_errors(self.spec.uri):
            return self._table.transaction_version(application)

    def write_marks(self, marks: Mapping[str, int]) -> None:
        """Commit application versions (by application id) without rows."""
        with naming_errors(self.spec.uri):
            self._table.create_write_transaction(
                [],
                "append",
                self._table.schema(),
                list(self.partition_by),
                commit_properties=_properties(marks),
                post_commithook_properties=NOTHING_AFTER,
            )
            self._table.update_incremental()

    def add_columns(self, columns: list[pa.Field], marks: Mapping[str, int]) -> None:
        """Commit new columns, which are null in existing rows, with application versions."""
        with naming_errors(self.spec.uri):
            self._table.alter.add_columns(
                Schema.from_arrow(pa.schema(columns)).fields,
                commit_properties=_properties(marks),
                post_commithook_properties=NOTHING_AFTER,
            )
            self._table.update_incremental()

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Write ``rows`` to new files and commit them together with the application versions, atomically."""
        with naming_errors(self.spec.uri):
            write_deltalake(
                self._table,
                rows,
                mode="append",
                target_file_size=self.spec.target_file_bytes,
                writer_properties=self._writer,
                commit_properties=_properties(marks),
                post_commithook_properties=NOTHING_AFTER,
            )


def _writer_properties(columns: pa.Schema) -> WriterProperties:
    """Return how files are written, without statistics of columns whose bounds would be wrong."""
    off = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(
        compression="ZSTD",
        dictionary_page_size_limit=DICTIONARY_BYTES,
        column_properties=dict.fromkeys(without_bounds(columns), off),
    )


def _properties(marks: Mapping[str, int]) -> CommitProperties:
    """Return a commit's application versions. They carry no time, because an id with a time may expire
    (``delta.setTransactionRetentionDuration``)."""
    return CommitProperties(app_transactions=[Transaction(name, version) for name, version in marks.items()])
