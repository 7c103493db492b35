"""Makes sinks from their settings. A sink's client library is imported when the sink is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamcore.sinks.delta.settings import DeltaSettings
from streamcore.sinks.opensearch.settings import OpenSearchSettings
from streamcore.sinks.postgres.settings import PostgresSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import Sink, SinkFactory, SinkHooks

SinkSettings = PostgresSettings | DeltaSettings | OpenSearchSettings


def sink_factory(settings: SinkSettings, columns: Mapping[str, pa.Schema]) -> SinkFactory:
    """Return the factory of a sink. ``columns``: the schema of the rows of each lane, by the lane's name."""

    def make(hooks: SinkHooks) -> Sink:
        match settings:
            case PostgresSettings():
                from streamcore.sinks.postgres.sink import PostgresSink

                return PostgresSink("postgres", settings, columns, hooks)
            case DeltaSettings():
                from streamcore.sinks.delta.sink import DeltaSink

                return DeltaSink(settings, columns, hooks)
            case OpenSearchSettings():
                from streamcore.sinks.opensearch.sink import OpenSearchSink

                return OpenSearchSink(settings, columns, hooks)

    return make
