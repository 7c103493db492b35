"""The settings of the search app as one document: YAML or JSON, checked before anything starts.

``documents`` declares the streams whose changes make documents, ``counters`` the streams whose events are counted for
them. Names, expressions and properties are checked by ``headgate_search.plan``.
"""

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
    """A span of event time that events are counted over."""

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


class HalfLifeDocument(Document):
    """A half-life with which counts decay."""

    name: Annotated[str, Field(pattern="^[a-z0-9_]{1,16}$")] = Field(
        description="Suffix of the columns, such as trend in views_trend."
    )
    half_life_ms: Annotated[int, Field(ge=8)] = Field(
        description="Time in milliseconds of event time after which an event counts half."
    )


class ChangesDocument(StreamDocument):
    """A stream of changes of documents. The first one decides which documents exist; each further one adds fields to
    the documents with its ids."""

    id: str = Field(default="id", description="Expression of the document's id, a text of at most 512 bytes.")
    deleted: str | None = Field(
        default=None,
        description="Condition of the changes that delete: the document, or the fields that this stream adds to it.",
    )
    fields: dict[str, str] | None = Field(
        default=None,
        description="Fields of the document, each with its expression; without it all fields of the stream but the id.",
    )
    rules: dict[str, str] = Field(
        default_factory=dict,
        description="Conditions by name that a change must not violate; one that does is a dead letter.",
    )
    partial: bool = Field(
        default=False,
        description="Whether a field that is null in a change keeps its value of before. All changes of an id must be "
        "in one partition then.",
    )


class CountDocument(Document):
    """A number that is counted for each document and span."""

    when: str | None = Field(default=None, description="Condition of the events that are counted; without it all.")
    add: str = Field(default="1", description="Expression of what an event adds: a whole number or a decimal.")


class CounterDocument(StreamDocument):
    """A stream of events that are counted for documents."""

    id: str = Field(
        default="id", description="Expression of the id of the event's document; an event without one is not counted."
    )
    counts: Annotated[dict[str, CountDocument], Field(min_length=1)] = Field(
        description="What is counted, by name; with the span's name it is that of a column, such as views_1h."
    )


class SearchDocument(ServiceSettings):
    """The form of the settings of the search app."""

    preload: ClassVar[tuple[str, ...]] = (
        "headgate_search.changes",
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
    documents: Annotated[tuple[ChangesDocument, ...], Field(min_length=1)] = Field(
        description="Streams of changes of documents: the one that decides which documents exist, then those that add "
        "fields."
    )
    counters: tuple[CounterDocument, ...] = Field(
        default=(), description="Streams of events that are counted for documents."
    )
    opensearch: OpenSearchSettings = Field(
        description="OpenSearch sink that the documents are written to; it has exactly one index, for the lane "
        "documents."
    )
    spans: Annotated[tuple[SpanDocument, ...], Field(min_length=1)] = Field(
        default=(
            SpanDocument(name="1h", span_ms=_HOUR_MS, step_ms=60_000),
            SpanDocument(name="1d", span_ms=24 * _HOUR_MS, step_ms=900_000),
        ),
        description="Spans of event time that events are counted over.",
    )
    half_lives: tuple[HalfLifeDocument, ...] = Field(
        default=(),
        description="Half-lives: for each a score of every count, by which documents are ordered as by their decayed "
        "counts.",
    )
    refresh_ms: NotNegative = Field(
        default=10_000,
        description="Interval in milliseconds of processing time after which a document is sent again if only its "
        "counts have changed.",
    )
    max_documents: Positive = Field(
        default=5_000_000, description="Most documents that one shard keeps of each stream, deleted ones included."
    )
    max_steps: Positive = Field(
        default=20_000_000, description="Most pairs of a document and a step of a span that one shard keeps."
    )
    publish_changes: bool = Field(
        default=False, description="Whether every document is also sent to the Kafka lane changes."
    )

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the columns of counts: of the spans, then of the half-lives."""
        return (*(span.name for span in self.spans), *(each.name for each in self.half_lives))

    @property
    def streams(self) -> tuple[StreamDocument, ...]:
        """The streams of documents, then those of counters; a stream that is read twice is there twice."""
        return (*self.documents, *self.counters)

    @model_validator(mode="after")
    def _check_span_names(self) -> SearchDocument:
        names = self.suffixes
        if len(set(names)) < len(names):
            raise ValueError(f"spans: a name appears twice in {', '.join(names)}, with the half-lives")
        return self

    def find_index_fault(self) -> tuple[str, str] | None:
        """Return the entry of the index that is wrong, and why; None if it is right."""
        index = self.opensearch.indexes.get(DOCUMENTS)
        if index is None or len(self.opensearch.indexes) > 1:
            return "opensearch.indexes", f"name the index of lane {DOCUMENTS!r}, and no other"
        if index.id != ("id",) or index.deleted != "deleted":
            return f"opensearch.indexes.{DOCUMENTS}", "must have id: [id] and deleted: deleted"
        return None


class SearchSettings(SearchDocument):
    """Settings of the search app."""

    @model_validator(mode="after")
    def _check_index(self) -> SearchSettings:
        if (fault := self.find_index_fault()) is not None:
            raise ValueError(": ".join(fault))
        return self
