"""The settings of the search app as one document: YAML or JSON, checked before anything starts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from streamcore.service.config.documents import Document, NotNegative, Positive, StreamDocument
from streamcore.service.config.settings import AppName, ServiceSettings
from streamcore.sinks.opensearch.settings import OpenSearchSettings

_HOUR_MS = 3_600_000

#: The lane of rows for the index: ``id``, ``deleted`` and the columns of a document, null in a deletion.
DOCUMENTS = "documents"


class SpanDocument(Document):
    """A span of event time that popularity is counted over."""

    name: Annotated[str, Field(pattern="^[a-z0-9_]{1,16}$")] = Field(
        description="Suffix of the span's columns, such as 1h in views_1h."
    )
    span_ms: Positive = Field(
        description="Length of the span in milliseconds of event time; a whole multiple of step_ms."
    )
    step_ms: Positive = Field(description="Resolution in milliseconds: events leave the span in steps of this length.")

    @model_validator(mode="after")
    def _check_step(self) -> SpanDocument:
        if self.span_ms % self.step_ms:
            raise ValueError(f"span_ms {self.span_ms} is not a whole number of step_ms {self.step_ms}")
        return self


class SearchSettings(ServiceSettings):
    """Settings of the search app."""

    preload: ClassVar[tuple[str, ...]] = (
        "headgate_search.popularity",
        "headgate_search.products",
        "streamcore.topology.kernel",
        "streamcore.operators.rolling.operator",
        "streamcore.operators.joins",
    )

    app: AppName = Field(
        default="search",
        description="Name of the app: the prefix of its topics and the key of its checkpoint and savepoints.",
    )
    trigger_ms: NotNegative = Field(
        default=1_000,
        description="Shortest interval in milliseconds between two cuts; the index is updated at most that often, "
        "which leaves the machine to the server meanwhile.",
    )
    products: StreamDocument = Field(description="Stream of product changes: its schema file and topic.")
    events: StreamDocument = Field(description="Stream of shop events: its schema file and topic.")
    opensearch: OpenSearchSettings = Field(
        description="OpenSearch sink that the documents are written to; it has exactly one index, for the lane "
        "documents."
    )
    spans: Annotated[tuple[SpanDocument, ...], Field(min_length=1)] = Field(
        default=(
            SpanDocument(name="1h", span_ms=_HOUR_MS, step_ms=60_000),
            SpanDocument(name="1d", span_ms=24 * _HOUR_MS, step_ms=900_000),
        ),
        description="Spans of event time that views, units and revenue are counted over.",
    )
    refresh_ms: NotNegative = Field(
        default=10_000,
        description="Interval in milliseconds of processing time after which a product's document is sent again if "
        "only its popularity has changed.",
    )
    max_products: Positive = Field(
        default=5_000_000, description="Most products that one shard keeps, deleted ones included."
    )
    max_steps: Positive = Field(
        default=20_000_000, description="Most pairs of a product and a step of a span that one shard keeps."
    )
    publish_changes: bool = Field(
        default=False, description="Whether every document is also sent to the Kafka lane changes."
    )

    @model_validator(mode="after")
    def _check_span_names(self) -> SearchSettings:
        names = [span.name for span in self.spans]
        if len(set(names)) < len(names):
            raise ValueError(f"spans: a name appears twice in {names}")
        return self

    @model_validator(mode="after")
    def _check_index(self) -> SearchSettings:
        index = self.opensearch.indexes.get(DOCUMENTS)
        if index is None or len(self.opensearch.indexes) > 1:
            raise ValueError(f"opensearch.indexes: name the index of lane {DOCUMENTS!r}, and no other")
        if index.id != ("id",) or index.deleted != "deleted":
            raise ValueError(f"opensearch.indexes.{DOCUMENTS}: must have id: [id] and deleted: deleted")
        return self
