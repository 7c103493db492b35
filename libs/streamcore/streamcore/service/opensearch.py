"""The part of a service's settings that says where its documents go. Imports little, as all documents do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, JsonValue

from streamcore.service.documents import Document, Positive
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec, OpenSearchSettings
from streamcore.sinks.sink import Patience

if TYPE_CHECKING:
    import pyarrow as pa

    from streamcore.sinks.sink import SinkFactory


class IndexDocument(Document):
    """One lane's index; see ``IndexSpec``."""

    alias: str
    id: tuple[str, ...]
    deleted: str | None = None
    properties: dict[str, JsonValue] = Field(default_factory=dict)
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    template_version: Positive = 1
    gc_deletes_ms: Positive = 3_600_000
    refresh_ms: Positive = 1_000

    def spec(self) -> IndexSpec:
        """The engine's value."""
        return IndexSpec(**self.model_dump())


class OpenSearchDocument(Document):
    """A cluster and the indexes of an app. The password is named (a file, an environment variable), never written."""

    hosts: tuple[str, ...]
    indexes: dict[str, IndexDocument]
    name: str = "opensearch"
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    request_timeout_ms: Positive = 30_000
    request_documents: Positive = 5_000
    request_bytes: Positive = 8 * 1024 * 1024
    requests_in_flight: Positive = 2
    recovery_ms: Positive = 120_000

    def settings(self) -> OpenSearchSettings:
        """The engine's value; ``ConfigError`` for what cannot work together."""
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
            patience=Patience(recovery_ms=self.recovery_ms),
        )

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Of the sink. ``columns``: those of each lane."""
        from streamcore.sinks.opensearch.sink import OpenSearchSink

        settings = self.settings()
        return lambda hooks: OpenSearchSink(settings, columns, hooks)
