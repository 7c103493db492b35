"""What the search app can be told, as one document: YAML or JSON, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from streamcore.service.documents import Document, NotNegative, Positive, StreamDocument, load_document
from streamcore.service.opensearch import OpenSearchDocument
from streamcore.service.settings import ServiceSettings

_HOUR_MS = 3_600_000

#: The lane of rows for the index: ``id``, ``deleted`` and the columns of a document, null in a deletion.
DOCUMENTS = "documents"


class SpanDocument(Document):
    """A span of event time that popularity is counted over. ``name`` ends the names of its columns; ``step_ms``: how
    exactly it rolls, a whole number of times in the span."""

    name: Annotated[str, Field(pattern="^[a-z0-9_]{1,16}$")]
    span_ms: Positive
    step_ms: Positive

    @model_validator(mode="after")
    def _whole(self) -> SpanDocument:
        if self.span_ms % self.step_ms:
            raise ValueError(f"span_ms {self.span_ms} is not a whole number of step_ms {self.step_ms}")
        return self


class SearchSettings(ServiceSettings):
    """The search app. ``trigger_ms``: a cut that often at most; an index shows nothing new more often than that, and
    what cuts leave of the machine is the server's. ``refresh_ms``: how often a product's document is sent again for
    its popularity alone, by the clock. ``max_products``: what a shard keeps, deleted products included.
    ``max_steps``: pairs of a product and a step of a span that a shard keeps. ``publish_changes``: send every
    document to the lane ``changes`` too."""

    preload: ClassVar[tuple[str, ...]] = (
        "headgate_search.popularity",
        "headgate_search.products",
        "streamcore.topology.kernel",
        "streamcore.operators.rolling",
        "streamcore.operators.joins",
    )

    app: str = "search"
    trigger_ms: NotNegative = 1_000
    products: StreamDocument
    events: StreamDocument
    opensearch: OpenSearchDocument
    spans: Annotated[tuple[SpanDocument, ...], Field(min_length=1)] = (
        SpanDocument(name="1h", span_ms=_HOUR_MS, step_ms=60_000),
        SpanDocument(name="1d", span_ms=24 * _HOUR_MS, step_ms=900_000),
    )
    refresh_ms: NotNegative = 10_000
    max_products: Positive = 5_000_000
    max_steps: Positive = 20_000_000
    publish_changes: bool = False

    @model_validator(mode="after")
    def _distinct(self) -> SearchSettings:
        names = [span.name for span in self.spans]
        if len(set(names)) < len(names):
            raise ValueError(f"spans: a name appears twice in {names}")
        return self

    @model_validator(mode="after")
    def _one_index(self) -> SearchSettings:
        index = self.opensearch.indexes.get(DOCUMENTS)
        if index is None or len(self.opensearch.indexes) > 1:
            raise ValueError(f"opensearch.indexes: name the index of lane {DOCUMENTS!r}, and no other")
        if index.id != ("id",) or index.deleted != "deleted":
            raise ValueError(f"opensearch.indexes.{DOCUMENTS}: must have id: [id] and deleted: deleted")
        return self


def load_settings(path: Path) -> SearchSettings:
    """Settings from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return load_document(path, SearchSettings)
