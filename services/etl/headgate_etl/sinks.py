"""The sinks of the routes to tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headgate_etl.documents import EtlDocument, RouteTarget
from streamcore.service.config.sinks import sink_factory

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.delta.settings import DeltaSettings
    from streamcore.sinks.postgres.settings import PostgresSettings
    from streamcore.sinks.sink import SinkFactory


def table_sinks(settings: EtlDocument) -> Mapping[RouteTarget, DeltaSettings | PostgresSettings]:
    """Return the settings of the Delta and PostgreSQL sinks that the document has, by target."""
    sinks = {RouteTarget.DELTA: settings.delta, RouteTarget.POSTGRES: settings.postgres}
    return {target: sink for target, sink in sinks.items() if sink is not None}


def sink_factories(settings: EtlDocument, columns: Mapping[str, pa.Schema]) -> Iterator[SinkFactory]:
    """Yield a factory for each sink of the document. ``columns``: the Arrow schema of each lane's rows, by lane."""
    for target, sink in table_sinks(settings).items():
        lanes = [route.name for route in settings.routes if route.to is target]
        yield sink_factory(sink, {lane: columns[lane] for lane in lanes})
