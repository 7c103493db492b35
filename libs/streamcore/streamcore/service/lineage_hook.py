"""Builds the lineage of a service from its settings and its app. With lineage off its package is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamcore.service.config.settings import ServiceSettings
from streamcore.service.config.sinks import SinkDocuments, SinkSettings
from streamcore.sinks.delta.settings import DeltaSettings
from streamcore.sinks.iceberg.settings import IcebergSettings
from streamcore.sinks.opensearch.settings import OpenSearchSettings
from streamcore.sinks.parquet.settings import ParquetSettings
from streamcore.sinks.postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.lineage.events import LineageJob
    from streamcore.lineage.reporter import LineageReporter


@contextmanager
def lineage_for(settings: ServiceSettings) -> Iterator[LineageReporter | None]:
    """Yield the reporter of lineage for as long as the app runs; None if lineage is off."""
    if settings.lineage is None:
        yield None
        return
    from streamcore.lineage.reporter import LineageReporter

    with LineageReporter(settings.lineage) as lineage:
        yield lineage


def lineage_job(settings: ServiceSettings, app: App) -> LineageJob:
    """Return an app as a job of OpenLineage: its topics, and where its lanes end."""
    from streamcore.lineage.events import Dataset, LineageJob, schema_fields

    assert settings.lineage is not None, "lineage is on"
    kafka = f"kafka://{settings.kafka.bootstrap.partition(',')[0].strip()}"
    fields: dict[str, list[tuple[str, str]]] = {app.control_topic: []}
    for source in app.sources:
        known = fields.setdefault(source.topic, [])
        known += [field for field in schema_fields(source.schema) if field not in known]
    outputs = {lane: Dataset(kafka, topic) for lane, topic in app.lanes.items()}
    for name in SinkDocuments.model_fields:
        sink: SinkSettings | None = getattr(settings, name, None)
        if sink is not None:
            outputs |= {lane: Dataset(*names) for lane, names in _sink_names(sink).items()}
    inputs = {topic: Dataset(kafka, topic, tuple(known)) for topic, known in fields.items()}
    return LineageJob(settings.lineage.namespace, app.name, inputs, outputs)


def _sink_names(sink: SinkSettings) -> Mapping[str, tuple[str, str]]:
    """Return the namespace and the name of the dataset of each lane of a sink, by OpenLineage's rules of naming.

    OpenSearch and webhooks have no rule there: theirs are the address, and the index or the path.
    """
    match sink:
        case PostgresSettings():
            place = f"postgres://{sink.host}:{sink.port}"
            return {lane: (place, f"{sink.database}.{spec.table}") for lane, spec in sink.tables.items()}
        case IcebergSettings():
            catalog = sink.catalog.options.get("uri", "iceberg")
            return {lane: (catalog, spec.table) for lane, spec in sink.tables.items()}
        case DeltaSettings() | ParquetSettings():
            return {lane: _location(str(spec.uri)) for lane, spec in sink.tables.items()}
        case OpenSearchSettings():
            host = urlsplit(sink.hosts[0]).netloc or sink.hosts[0]
            return {lane: (f"opensearch://{host.rpartition('@')[2]}", one.alias) for lane, one in sink.indexes.items()}
        case _:
            return {lane: _endpoint(spec.url) for lane, spec in sink.endpoints.items()}


def _location(uri: str) -> tuple[str, str]:
    """Return the names of a folder: of a bucket and the key in it, or of the file system and the path."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")


def _endpoint(url: str) -> tuple[str, str]:
    """Return the names of an endpoint, without the query, which may have a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path or "/"
