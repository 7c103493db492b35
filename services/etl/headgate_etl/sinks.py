"""The sinks of the routes to tables, indexes and endpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from headgate_etl.documents import EtlDocument, RouteTarget
from streamcore.service.config import sinks

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


def sink_lanes(settings: EtlDocument) -> Mapping[RouteTarget, tuple[str, Collection[str]]]:
    """Return for each sink that the document has, by target, the entry with its lanes and the lanes that are there."""
    return {RouteTarget(name): sinks.sink_lanes(sink) for name, sink in settings.sinks.items()}


def sink_factories(settings: EtlDocument, columns: Mapping[str, pa.Schema]) -> Iterator[SinkFactory]:
    """Yield a factory for each sink of the document. ``columns``: the Arrow schema of each lane's rows, by lane."""
    for name, sink in settings.sinks.items():
        lanes = [route.name for route in settings.routes if route.to == name]
        yield sinks.sink_factory(sink, {lane: columns[lane] for lane in lanes})
