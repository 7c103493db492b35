"""The sinks of routes to tables: the settings entry that names each target, and the input of each sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from headgate_etl.settings import EtlSettings, RouteTarget

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


class TablesDocument(Protocol):
    """The common part of every sink's entry: its tables by lane."""

    @property
    def tables(self) -> Mapping[str, object]:
        """By lane."""
        ...

    def settings(self) -> object:
        """Return the sink's settings; ``ConfigError`` if they are invalid."""
        ...

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Return the sink's factory."""
        ...


def documents(settings: EtlSettings) -> Mapping[RouteTarget, TablesDocument]:
    """Return the entries that are present, by target."""
    found: dict[RouteTarget, TablesDocument | None] = {
        RouteTarget.DELTA: settings.delta,
        RouteTarget.POSTGRES: settings.postgres,
    }
    return {target: document for target, document in found.items() if document is not None}


def factories(settings: EtlSettings, columns: Mapping[str, pa.Schema]) -> Iterator[SinkFactory]:
    """Yield a sink factory for each entry. ``columns``: the schema of each lane's rows."""
    for target, document in documents(settings).items():
        lanes = [route.name for route in settings.routes if route.to is target]
        yield document.factory({lane: columns[lane] for lane in lanes})
