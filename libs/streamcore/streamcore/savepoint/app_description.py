"""Describes an app for the compatibility check: its sources, stages and state tables. Builds the kernels, but runs
nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from streamcore.app import App
from streamcore.errors import StreamError
from streamcore.kernel import Kernel
from streamcore.savepoint.compatibility import CompatibilityReport, RestoreDecisions, check_compatibility
from streamcore.savepoint.manifest import (
    AppDescription,
    OperatorDescription,
    SavepointManifest,
    StateTableDescription,
    StoredTable,
)
from streamcore.savepoint.state_files import column_types
from streamcore.state.row_versions import Versions
from streamcore.state.scope import ScopeKind
from streamcore.state.table import StateTable
from streamcore.topology.kernel import TopologyStage


def describe(app: App, stored: Iterable[StoredTable] = ()) -> AppDescription:
    """Describe the app. ``stored``: tables to request from the kernels besides those that they always have, because
    some are made on demand."""
    names = {table.name for table in stored}
    return AppDescription(
        name=app.name,
        shards=app.shards,
        stages=len(app.stages),
        topics=app.topics,
        control_topic=app.control_topic,
        watermark_groups=tuple(tuple(app.topics[source] for source in group) for group in app.watermark_groups),
        tables=tuple(table for stage in range(len(app.stages)) for table in _tables(app, stage, names)),
        operators=tuple(_operators(app)),
        key_groups=app.key_groups,
    )


def check_app_compatibility(
    stored: SavepointManifest, app: App, decisions: RestoreDecisions | None = None
) -> CompatibilityReport:
    """Check whether the savepoint can be restored as this app, with the streams that were published before.

    ``ConfigError`` if these do not fit the settings of the app.
    """
    return check_compatibility(stored, describe(app.with_streams(stored.streams), stored.tables), decisions)


def _operators(app: App) -> Iterator[OperatorDescription]:
    """Yield the operators with state of a stream program; none for other apps."""
    topology = next((stage.topology for stage in app.stages if isinstance(stage, TopologyStage)), None)
    for node in () if topology is None else topology.stateful_nodes:
        assert topology is not None
        topics = tuple(app.topics[source] for source in sorted(topology.levels.sources[node]))
        yield OperatorDescription(topology.node_name(node), topics, topology.levels.delays[node])


def _tables(app: App, stage: int, names: Iterable[str]) -> Iterator[StateTableDescription]:
    """Yield the tables of a stage's kernel, also those in ``names`` that the kernel creates on demand."""
    kernel = app.stages[stage]()
    tables = dict(kernel.tables())
    for name in sorted(set(names) - tables.keys()):
        if (table := _on_demand(kernel, name)) is not None:
            tables[name] = table
    for name, table in sorted(tables.items()):
        versions = getattr(table, "versions", None)
        row_versions = versions if isinstance(versions, Versions) else None
        yield StateTableDescription(
            name,
            stage,
            column_types(_layout(table)),
            None if row_versions is None else row_versions.current,
            () if row_versions is None else tuple(_readable(row_versions)),
            kernel.scope(name).kind is ScopeKind.REPLICATED,
        )


def _on_demand(kernel: Kernel, name: str) -> StateTable | None:
    """Return the kernel's table of that name; None if the kernel rejects the name, which may be of another stage."""
    try:
        return kernel.table(name)
    except (StreamError, LookupError, ValueError):
        return None


def _layout(table: StateTable) -> pl.DataFrame:
    """Return a frame with the columns of the table's stored rows."""
    return table.rows(0, 1)


def _readable(versions: Versions[object]) -> Iterator[int]:
    """Yield the older versions of rows that migrations convert to the current one."""
    for stored in range(1, versions.current):
        if all(step in versions.migrations for step in range(stored, versions.current)):
            yield stored
