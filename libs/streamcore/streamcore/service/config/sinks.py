"""The sinks that a document may have, and how they are made. A client library is imported when its sink is made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from streamcore.service.config.base import Document
from streamcore.sinks.delta.settings import DeltaSettings
from streamcore.sinks.iceberg.settings import IcebergSettings
from streamcore.sinks.opensearch.settings import OpenSearchSettings
from streamcore.sinks.parquet.settings import ParquetSettings
from streamcore.sinks.postgres.settings import PostgresSettings
from streamcore.sinks.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import Sink, SinkFactory, SinkHooks

SinkSettings = (
    PostgresSettings | DeltaSettings | IcebergSettings | OpenSearchSettings | ParquetSettings | WebhookSettings
)


class SinkDocuments(Document):
    """The part of a document with its sinks, each of which takes the rows of lanes with the names of its entries."""

    delta: Annotated[DeltaSettings | None, Field(description="Delta sink with the tables of its lanes.")] = None
    iceberg: Annotated[IcebergSettings | None, Field(description="Iceberg sink with the tables of its lanes.")] = None
    postgres: Annotated[PostgresSettings | None, Field(description="PostgreSQL sink with the tables of its lanes.")] = (
        None
    )
    opensearch: Annotated[
        OpenSearchSettings | None, Field(description="OpenSearch sink with the indexes of its lanes.")
    ] = None
    parquet: Annotated[ParquetSettings | None, Field(description="Parquet sink with the folders of its lanes.")] = None
    webhook: Annotated[WebhookSettings | None, Field(description="Webhook sink with the endpoints of its lanes.")] = (
        None
    )

    @property
    def sinks(self) -> Mapping[str, SinkSettings]:
        """The sinks that the document has, by the name of their entry."""
        return {name: sink for name in SinkDocuments.model_fields if (sink := getattr(self, name)) is not None}


def sink_lanes(settings: SinkSettings) -> tuple[str, Collection[str]]:
    """Return the name of the entry with the sink's lanes, and the lanes."""
    match settings:
        case OpenSearchSettings():
            return "indexes", settings.indexes
        case WebhookSettings():
            return "endpoints", settings.endpoints
        case _:
            return "tables", settings.tables


def named_lanes(document: SinkDocuments) -> Iterator[tuple[str, str]]:
    """Yield each lane that a sink of the document takes, with the path of its entry, such as ``delta.tables.sales``."""
    for name, sink in document.sinks.items():
        entry, lanes = sink_lanes(sink)
        for lane in lanes:
            yield f"{name}.{entry}.{lane}", lane


def sink_factories(document: SinkDocuments, columns: Mapping[str, pa.Schema]) -> list[SinkFactory]:
    """Return the factory of each sink of the document. ``columns``: as of ``sink_factory``, of all lanes of the app;
    a sink that names another lane raises ``ConfigError`` when it is made."""
    return [
        sink_factory(sink, {lane: columns[lane] for lane in sink_lanes(sink)[1] if lane in columns})
        for sink in document.sinks.values()
    ]


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
            case IcebergSettings():
                from streamcore.sinks.iceberg.sink import IcebergSink

                return IcebergSink(settings, columns, hooks)
            case OpenSearchSettings():
                from streamcore.sinks.opensearch.sink import OpenSearchSink

                return OpenSearchSink(settings, columns, hooks)
            case ParquetSettings():
                from streamcore.sinks.parquet.sink import ParquetSink

                return ParquetSink(settings, columns, hooks)
            case WebhookSettings():
                from streamcore.sinks.webhook.sink import WebhookSink

                return WebhookSink(settings, columns, hooks)

    return make
