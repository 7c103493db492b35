"""The sinks that routes to tables end in: which entry of the settings says where, and what each sink is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from headgate_etl.settings import EtlSettings, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


class TablesDocument(Protocol):
    """What every sink's entry has: its tables by lane."""

    @property
    def tables(self) -> Mapping[str, object]:
        """By lane."""
        ...

    def settings(self) -> object:
        """The sink's value; ``ConfigError`` for what cannot be."""
        ...

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Makes the sink."""
        ...


def documents(settings: EtlSettings) -> Mapping[Target, TablesDocument]:
    """The entries that are there, by the target that they stand for."""
    found: dict[Target, TablesDocument | None] = {Target.DELTA: settings.delta, Target.POSTGRES: settings.postgres}
    return {target: document for target, document in found.items() if document is not None}


def factories(settings: EtlSettings, columns: Mapping[str, pa.Schema]) -> Iterator[SinkFactory]:
    """A sink for each entry. ``columns``: by lane, what its rows hold."""
    for target, document in documents(settings).items():
        lanes = [route.name for route in settings.routes if route.to is target]
        yield document.factory({lane: columns[lane] for lane in lanes})
