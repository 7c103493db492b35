"""An app as a plan sees it: its sources, stages and state tables. Makes the app's kernels, and no more of it."""

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
        domains=tuple(tuple(app.topics[source] for source in domain) for domain in app.watermark_groups),
        tables=tuple(one for stage in range(len(app.stages)) for one in _tables(app, stage, names)),
        operators=tuple(_operators(app)),
    )


def check_app_compatibility(
    stored: SavepointManifest, app: App, decisions: RestoreDecisions | None = None
) -> CompatibilityReport:
    """Whether the savepoint can be restored as this app (``plan``)."""
    return check_compatibility(stored, describe(app, stored.tables), decisions)


def _operators(app: App) -> Iterator[OperatorDescription]:
    topology = next((stage.topology for stage in app.stages if isinstance(stage, TopologyStage)), None)
    for node in () if topology is None else topology.stateful_nodes:
        assert topology is not None
        topics = tuple(app.topics[source] for source in sorted(topology.levels.sources[node]))
        yield OperatorDescription(topology.node_name(node), topics, topology.levels.delays[node])


def _tables(app: App, stage: int, names: Iterable[str]) -> Iterator[StateTableDescription]:
    kernel = app.stages[stage]()
    found = dict(kernel.tables())
    for name in sorted(set(names) - found.keys()):
        if (table := _on_demand(kernel, name)) is not None:
            found[name] = table
    for name, table in sorted(found.items()):
        versions = getattr(table, "versions", None)
        counted = versions if isinstance(versions, Versions) else None
        yield StateTableDescription(
            name,
            stage,
            column_types(_layout(table)),
            None if counted is None else counted.current,
            () if counted is None else tuple(_readable(counted)),
        )


def _on_demand(kernel: Kernel, name: str) -> StateTable | None:
    """Return the table that the kernel makes for a name; None on any error, because any name may be stored."""
    try:
        return kernel.table(name)
    except (StreamError, LookupError, ValueError):
        return None


def _layout(table: StateTable) -> pl.DataFrame:
    return table.rows(0, 1)


def _readable(versions: Versions[object]) -> Iterator[int]:
    """Older versions that migrations lead up from."""
    for stored in range(1, versions.current):
        if all(step in versions.migrations for step in range(stored, versions.current)):
            yield stored
