"""An Iceberg table with the reads and commits that the sink needs.

Exceptions become errors of ``streamcore.errors``: ``Retryable`` if a later call may succeed, as after a commit
conflict; ``ConfigError`` if an operator has to change something first. Nothing is retried here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from sqlalchemy.exc import SQLAlchemyError

from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.iceberg.catalog import SingleCommitTransaction, connect_catalog
from streamcore.sinks.iceberg.data_files import DataFileWriter
from streamcore.sinks.iceberg.schema import plain_type
from streamcore.sinks.iceberg.settings import IcebergTableSpec
from streamcore.sinks.lake.columns import DICTIONARY_BYTES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

#: Messages of operating systems, databases and object stores for failures that do not pass by themselves.
_REJECTION = re.compile(
    r"Permission ?denied|Read-only file system|AccessDenied|ACCESS_DENIED|InvalidAccessKeyId|NoSuchBucket"
    r"|SignatureDoesNotMatch|InvalidToken|password authentication failed|Could not initialize FileIO|does not exist"
    r"|no such table",
    re.IGNORECASE,
)
#: What a new table has: readers and commits stay quick with many small commits.
_NEW_TABLE: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.dict-size-bytes": str(DICTIONARY_BYTES),
}


@contextmanager
def naming_errors(name: str) -> Iterator[None]:
    """Turn the library's exceptions in the block into errors of ``streamcore.errors``. ``name``: of the table."""
    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError, NotInstalledError) as error:
        raise ConfigError(f"iceberg table {name}: rejected: {_line(error)}; check login and catalogue") from error
    except (CommitFailedException, RESTError, TableAlreadyExistsError) as error:
        raise Retryable(f"iceberg table {name}: {_line(error)}") from error
    except (SQLAlchemyError, OSError, ValueError) as error:
        if _REJECTION.search(str(error)):
            # The message of a database may have its URI with the password: the exception is not chained.
            raise ConfigError(f"iceberg table {name}: rejected: {_line(error)}; check login and address") from None
        raise Retryable(f"iceberg table {name}: {_line(error)}") from None


def _line(error: BaseException) -> str:
    """Return the error's message on one line, without passwords in URIs and SQLAlchemy's appendix."""
    text = str(error).partition("[SQL:")[0].partition("(Background on this error")[0]
    return re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:...@", " ".join(text.split()))[:500]


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Connect to the catalogue."""
    with naming_errors("of the catalogue"):
        return connect_catalog(properties)


class OpenIcebergTable:
    """One version of a table, and commits based on it.

    A commit of rows or of a fence fails if the table's main branch has another snapshot by then.
    """

    def __init__(self, spec: IcebergTableSpec, table: Table) -> None:
        self.spec = spec
        self._table = table
        self._layout = self._layout_now()
        self.columns: pa.Schema = pa.schema(
            [
                pa.field(field.name, plain_type(field.type), field.nullable)
                for field in schema_to_pyarrow(table.schema(), include_field_ids=False)
            ]
        )

    def _layout_now(self) -> tuple[int, int]:
        """Return the ids of the table's schema and partition spec, which the answer to a commit may change."""
        return self._table.schema().schema_id, self._table.spec().spec_id

    @cached_property
    def _writer(self) -> DataFileWriter:
        return DataFileWriter(self._table, tuple(self.partition_by))

    @classmethod
    def load(cls, spec: IcebergTableSpec, catalog: Catalog) -> OpenIcebergTable | None:
        """Load the newest version of the table; return None if the table does not exist."""
        with naming_errors(spec.table):
            try:
                return cls(spec, catalog.load_table(spec.table))
            except NoSuchTableError:
                return None

    @staticmethod
    def create(spec: IcebergTableSpec, catalog: Catalog, columns: pa.Schema) -> None:
        """Create an empty table and its namespace. Raise ``Retryable`` if another writer created it first."""
        with naming_errors(spec.table):
            catalog.create_namespace_if_not_exists(spec.table.rpartition(".")[0])
            with catalog.create_table_transaction(spec.table, columns, properties=_NEW_TABLE) as creation:
                if spec.partition_by:
                    with creation.update_spec() as partitions:
                        for name in spec.partition_by:
                            partitions.add_field(name, IdentityTransform(), name)

    @property
    def partition_by(self) -> Sequence[str]:
        """The partition fields: a column's name, or the transform of one such as ``day(at)``."""
        schema = self._table.schema()
        names = [(field.transform, schema.find_column_name(field.source_id)) for field in self._table.spec().fields]
        return tuple(str(name) if isinstance(how, IdentityTransform) else f"{how}({name})" for how, name in names)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._table.properties

    def add_columns(self, columns: Sequence[pa.Field]) -> None:
        """Commit new columns, which are null in existing rows."""
        with naming_errors(self.spec.table), self._table.update_schema() as update:
            update.union_by_name(pa.schema(list(columns)))

    def append(self, rows: pa.Table, ledger: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Write ``rows`` to new files and commit a snapshot of them together with the table's ledger, atomically.

        ``ledger``: entries of the table's properties. ``summary``: entries of the snapshot's summary. Rows may be none.
        """
        with naming_errors(self.spec.table):
            if self._layout_now() != self._layout:
                name = self.spec.table
                raise Retryable(f"iceberg table {name}: another program has changed its columns or partitions")
            files = self._writer.write(rows) if rows.num_rows else []
            with SingleCommitTransaction(self._table) as transaction:
                with transaction._append_snapshot_producer(dict(summary)) as snapshot:
                    for file in files:
                        snapshot.append_data_file(file)
                transaction.set_properties(dict(ledger))

    def expire_snapshots(self, keep: int) -> None:
        """Remove all but the newest ``keep`` snapshots, and those that a branch or a tag names, if they are many more.

        No file is removed. Another writer may have committed first: then a later call removes them.
        """
        snapshots = sorted(self._table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        named = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        old = [snapshot.snapshot_id for snapshot in snapshots[:-keep] if snapshot.snapshot_id not in named]
        if len(old) <= keep // 4:
            return
        with suppress(Retryable), naming_errors(self.spec.table), SingleCommitTransaction(self._table) as transaction:
            ExpireSnapshots(transaction).by_ids(old).commit()
