"""The part of a service's settings that names the destination of its documents. Imports little, as all documents do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, JsonValue

from streamcore.service.config.documents import Document, Positive
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec, OpenSearchSettings
from streamcore.sinks.sink import RetryPolicy

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


class IndexDocument(Document):
    """One lane's index; see ``IndexSpec``."""

    alias: Annotated[str, Field(description="Alias of the index, by which readers name it.")]
    id: Annotated[tuple[str, ...], Field(description="Columns that make a document's id.")]
    deleted: Annotated[
        str | None,
        Field(description="Boolean column that marks a deletion; without it nothing is deleted."),
    ] = None
    properties: Annotated[
        dict[str, JsonValue],
        Field(description="Mapping of the fields, as OpenSearch takes it."),
    ] = Field(default_factory=dict)
    settings: Annotated[
        dict[str, JsonValue],
        Field(description="Settings of the index, as OpenSearch takes them."),
    ] = Field(default_factory=dict)
    template_version: Annotated[
        Positive,
        Field(description="Version of mapping and settings; a higher one replaces the template."),
    ] = 1
    gc_deletes_ms: Annotated[
        Positive,
        Field(description="Time in milliseconds for which OpenSearch remembers the version of a deleted document."),
    ] = 3_600_000
    refresh_ms: Annotated[
        Positive,
        Field(description="Time in milliseconds after which written documents are visible to searches."),
    ] = 1_000

    def spec(self) -> IndexSpec:
        """Return the engine's value."""
        return IndexSpec(**self.model_dump())


class OpenSearchDocument(Document):
    """A cluster and the indexes of an app. The password is named (a file, an environment variable), never written."""

    hosts: Annotated[tuple[str, ...], Field(description="Addresses of the cluster, as URLs.")]
    indexes: Annotated[
        dict[str, IndexDocument],
        Field(description="Index of each lane, by the lane's name."),
    ]
    name: Annotated[str, Field(description="Name of the sink, unique in the app.")] = "opensearch"
    user: Annotated[str | None, Field(description="User name.")] = None
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[
        str | None,
        Field(description="Environment variable with the password."),
    ] = None
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[
        Path | None,
        Field(description="PEM file of the key of the client's certificate."),
    ] = None
    request_timeout_ms: Annotated[
        Positive,
        Field(description="Time in milliseconds after which a request has failed."),
    ] = 30_000
    request_documents: Annotated[
        Positive,
        Field(description="Largest number of documents in a request."),
    ] = 5_000
    request_bytes: Annotated[Positive, Field(description="Largest size of a request in bytes.")] = 8 * 1024 * 1024
    requests_in_flight: Annotated[
        Positive,
        Field(description="Requests that are sent side by side."),
    ] = 2
    recovery_ms: Annotated[
        Positive,
        Field(description="Time in milliseconds for which writing is retried when the cluster is unreachable."),
    ] = 120_000

    def settings(self) -> OpenSearchSettings:
        """Return the engine's value; ``ConfigError`` for entries that cannot work together."""
        return OpenSearchSettings(
            hosts=self.hosts,
            indexes={lane: index.spec() for lane, index in self.indexes.items()},
            name=self.name,
            user=self.user,
            password_file=self.password_file,
            password_env=self.password_env,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            request_timeout_ms=self.request_timeout_ms,
            limits=BulkLimits(self.request_documents, self.request_bytes, self.requests_in_flight),
            patience=RetryPolicy(recovery_ms=self.recovery_ms),
        )

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Of the sink. ``columns``: those of each lane."""
        from streamcore.sinks.opensearch.sink import OpenSearchSink

        settings = self.settings()
        return lambda hooks: OpenSearchSink(settings, columns, hooks)
