"""Catalogues, and transactions that do no work twice.

The library applies the updates of a commit about twenty times, each time with a deep copy of all snapshots, and an SQL
catalogue reads and parses the table's metadata, which this process wrote, before each commit. With a hundred snapshots
that is two thirds of the CPU time of a small commit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from sqlalchemy import update
from typing_extensions import override


def connect_catalog(properties: Mapping[str, str]) -> Catalog:
    """Connect to the catalogue that pyiceberg's ``properties`` describe."""
    catalog = load_catalog("headgate", **properties)  # with the settings of pyiceberg's environment and file
    if type(catalog) is not SqlCatalog:
        return catalog
    catalog.engine.dispose()
    return _CompareAndSwapSqlCatalog("headgate", **catalog.properties)


def _apply(updates: Sequence[TableUpdate], metadata: TableMetadata) -> TableMetadata:
    """Return the metadata after the updates. It shares its unchanged parts with ``metadata``."""
    context = _TableMetadataUpdateContext()
    for one in updates:
        metadata = _apply_table_update(one, metadata, context)
    return metadata


class SingleCommitTransaction(Transaction):
    """A transaction that applies its updates once, and commits once: it never repeats a rejected commit."""

    _known: tuple[TableMetadata, object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates so far."""
        before = self._table.metadata
        if self._known is None or self._known[0] is not before or self._known[1] is not self._updates:
            self._known = before, self._updates, _apply(self._updates, before)
        return self._known[2]

    @override
    def commit_transaction(self) -> Table:
        """Commit the updates. A commit that is rejected leaves files that no snapshot has.

        The library would repeat it on top of whatever another writer has committed, which may be a later owner.
        """
        requirements = (*self._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        self._table._do_commit(self._updates, requirements)
        return self._table


class _CompareAndSwapSqlCatalog(SqlCatalog):
    """An SQL catalogue that commits on top of the version that the table was read from, and reads nothing again.

    The row of the table names that version's file, and changes only if it still does: so the requirements hold.
    """

    @override
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates; raise ``CommitFailedException`` if the table has another version than ``table``."""
        if isinstance(table, StagedTable) or not self.engine.dialect.supports_sane_rowcount:
            return super().commit_table(table, requirements, updates)
        before = table.metadata
        for requirement in requirements:
            requirement.validate(before)
        after = _update_table_metadata_log(_apply(updates, before), table.metadata_location, before.last_updated_ms)
        after = after.model_copy(update={"last_updated_ms": max(before.last_updated_ms, time.time_ns() // 1_000_000)})
        location = table.location_provider().new_table_metadata_file_location(
            self._parse_metadata_version(table.metadata_location) + 1
        )
        self._write_metadata(after, table.io, location)
        *namespace, name = table.name()
        statement = (
            update(IcebergTables)
            .where(
                IcebergTables.catalog_name == self.name,
                IcebergTables.table_namespace == ".".join(namespace),
                IcebergTables.table_name == name,
                IcebergTables.metadata_location == table.metadata_location,
            )
            .values(metadata_location=location, previous_metadata_location=table.metadata_location)
        )
        with self.engine.begin() as connection:
            if connection.execute(statement).rowcount < 1:
                raise CommitFailedException(f"another writer has committed to {'.'.join(table.name())}")
        return CommitTableResponse.model_validate({"metadata": after, "metadata-location": location})
