"""The sinks of the routes to tables and indexes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from headgate_etl.documents import EtlDocument, RouteTarget
from streamcore.service.config.sinks import SinkSettings, sink_factory
from streamcore.sinks.opensearch.settings import OpenSearchSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


def sink_lanes(settings: EtlDocument) -> Mapping[RouteTarget, tuple[str, Collection[str]]]:
    """Return for each sink that the document has, by target, the entry with its lanes and the lanes that are there."""
    return {
        target: ("indexes", sink.indexes) if isinstance(sink, OpenSearchSettings) else ("tables", sink.tables)
        for target, sink in _sinks(settings).items()
    }


def sink_factories(settings: EtlDocument, columns: Mapping[str, pa.Schema]) -> Iterator[SinkFactory]:
    """Yield a factory for each sink of the document. ``columns``: the Arrow schema of each lane's rows, by lane."""
    for target, sink in _sinks(settings).items():
        lanes = [route.name for route in settings.routes if route.to is target]
        yield sink_factory(sink, {lane: columns[lane] for lane in lanes})


def _sinks(settings: EtlDocument) -> Mapping[RouteTarget, SinkSettings]:
    sinks = {
        RouteTarget.DELTA: settings.delta,
        RouteTarget.POSTGRES: settings.postgres,
        RouteTarget.OPENSEARCH: settings.opensearch,
    }
    return {target: sink for target, sink in sinks.items() if sink is not None}
