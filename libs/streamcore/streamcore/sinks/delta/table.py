"""A Delta table behind the few questions and commits of the sink; upkeep and compaction call ``deltalake`` too.

Promises the tree of ``streamcore.errors``: ``Retryable`` where the same call may go through later, a lost race for a
commit among it; ``ConfigError`` where an operator has to change something first. Does not try again by itself.
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

#: Checkpoints and the cleaning of the log are upkeep, never part of a cut.
NOTHING_AFTER = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

#: What the operating system and object stores say where waiting does not help.
_REFUSAL = re.compile(
    r"Permission ?denied|Read-only file system|\(os error (1|13|20|30)\)|AccessDenied|InvalidAccessKeyId|NoSuchBucket"
    r"|SignatureDoesNotMatch|InvalidToken|status(:| code)? 40[13]|Unauthenticated|Invalid table (URI|location)",
    re.IGNORECASE,
)
_CONSTRAINT = "delta.constraints."


@contextmanager
def naming_errors(uri: str) -> Iterator[None]:
    """Turn the library's errors into this project's errors."""
    try:
        yield
    except (DeltaProtocolError, NotImplementedError) as error:
        raise ConfigError(f"delta table {uri}: has a feature that cannot be written: {_line(error)}") from error
    except SchemaMismatchError as error:
        raise Retryable(f"delta table {uri}: its columns changed: {_line(error)}") from error
    except (DeltaError, OSError, ValueError) as error:
        if _REFUSAL.search(str(error)):
            raise ConfigError(f"delta table {uri}: refused: {_line(error)}; see to rights and address") from error
        raise Retryable(f"delta table {uri}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    """On one line and without colours."""
    return " ".join(re.sub(r"\x1b\[\d+m", "", str(error)).split())[:500]


class OpenTable:
    """A version of a table, and commits that are based on it: they fail if one with the same application id came in
    between, for the library compares the ids of a commit with those of each commit since the version read."""

    def __init__(self, spec: DeltaTableSpec, table: DeltaTable) -> None:
        self.spec = spec
        self._table = table
        self.columns: pa.Schema = pa.schema(table.schema().to_arrow())
        self._writer = _writer_properties(self.columns)

    @classmethod
    def load(cls, spec: DeltaTableSpec, storage: Mapping[str, str]) -> OpenTable | None:
        """Return the newest version, None if there is no table."""
        with naming_errors(spec.uri):
            try:
                return cls(spec, DeltaTable(spec.uri, storage_options=dict(storage)))
            except TableNotFoundError:
                return None

    @staticmethod
    def create(spec: DeltaTableSpec, storage: Mapping[str, str], columns: pa.Schema) -> None:
        """Make the table, empty. ``Retryable`` if another writer was first."""
        with naming_errors(spec.uri):
            try:
                DeltaTable.create(
                    spec.uri,
                    Schema.from_arrow(columns),
                    partition_by=list(spec.partition_by),
                    storage_options=dict(storage),
                )
            except TableNotFoundError as error:
                raise ConfigError(f"delta table {spec.uri}: cannot be made there: {_line(error)}") from error

    @property
    def version(self) -> int:
        """The version that this is."""
        return self._table.version()

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The table's own columns to partition by."""
        return tuple(self._table.metadata().partition_columns)

    @property
    def constraints(self) -> list[str]:
        """Names of the table's CHECK constraints."""
        return [name for name in self._table.metadata().configuration if name.startswith(_CONSTRAINT)]

    def transaction(self, application: str) -> int | None:
        """Return the last version that was committed under an application id."""
        with naming_errors(self.spec.uri):
            return self._table.transaction_version(application)

    def write_marks(self, marks: Mapping[str, int]) -> None:
        """Commit application versions, and no rows."""
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
        """Commit new columns, which are null in the rows that are there."""
        with naming_errors(self.spec.uri):
            self._table.alter.add_columns(
                Schema.from_arrow(pa.schema(columns)).fields,
                commit_properties=_properties(marks),
                post_commithook_properties=NOTHING_AFTER,
            )
            self._table.update_incremental()

    def append(self, rows: pa.Table, marks: Mapping[str, int]) -> None:
        """Write ``rows`` to new files and commit them together with the application versions, or nothing."""
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
    """Bounds of columns only where they are right."""
    off = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(column_properties=dict.fromkeys(without_bounds(columns), off))


def _properties(marks: Mapping[str, int]) -> CommitProperties:
    """Without a time: an id without one never expires, whatever the value of
    ``delta.setTransactionRetentionDuration``."""
    return CommitProperties(app_transactions=[Transaction(name, version) for name, version in marks.items()])
