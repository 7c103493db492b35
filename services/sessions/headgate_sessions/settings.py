"""The settings of the sessions app as one document: YAML or JSON, checked before anything starts.

Only these settings define the meaning of an event: which field names the user, which types of events are steps of the
funnel, bring money or keep a session open for longer.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamcore.service.config.documents import Document, NotNegative, Positive, StreamDocument
from streamcore.service.config.settings import AppName, ServiceSettings
from streamcore.sinks.postgres.settings import PostgresSettings

MINUTE_MS = 60_000
#: The type of every event of a stream without a type field.
DEFAULT_TYPE = "event"

Names = tuple[str, ...]
NonEmptyNames = Annotated[Names, Field(min_length=1)]


class FieldsDocument(Document):
    """Fields of the stream that the app reads; event time is declared by the stream itself."""

    user: str = Field(default="user_id", description="Field with the user; events without a user belong to no session.")
    event_id: str | None = Field(
        default="event_id", description="Field with the event's id, for deduplication; null if events have none."
    )
    type: str | None = Field(
        default="type", description="Field with the type of the event; null if the stream has none."
    )
    page: str = Field(default="product_id", description="Field with the page or product that was viewed.")
    amount: NonEmptyNames = Field(
        default=("amount",), description="Fields whose product is the amount, such as quantity and price."
    )
    currency: str | None = Field(
        default="currency", description="Field with the currency; null if all amounts have the same currency."
    )


class FailedDocument(Document):
    """Which events have failed. A failed event is counted, but is no step of the funnel and does not change the
    revenue."""

    field: str = Field(default="status", description="Field that shows whether the event failed.")
    values: NonEmptyNames = Field(default=("declined", "failed"), description="Values of that field that mean failure.")


class RevenueDocument(Document):
    """Event types whose amount is added to the revenue or subtracted from it."""

    adds: NonEmptyNames = Field(default=("payment",), description="Event types whose amount is added to the revenue.")
    subtracts: Names = Field(
        default=("refund",), description="Event types whose amount is subtracted from the revenue."
    )


class BounceDocument(Document):
    """A bounce is a session with few events, or few distinct pages, that did not convert."""

    of: Literal["events", "pages"] = Field(default="events", description="What is counted: events, or distinct pages.")
    at_most: Positive = Field(default=1, description="Highest count of a bounce.")


class GapDocument(Document):
    """Inactivity that ends a session."""

    gap_ms: Positive = Field(
        default=30 * MINUTE_MS, description="Milliseconds without an event after which a session ends."
    )
    by_type: dict[str, Positive] = Field(
        default_factory=dict, description="Gap in milliseconds after an event of this type, instead of gap_ms."
    )


class DashboardMetricsDocument(Document):
    """Metrics for a dashboard."""

    every_ms: Positive = Field(default=MINUTE_MS, description="Length of the counting windows in milliseconds.")
    early_ms: NotNegative = Field(
        default=5_000,
        description="Interval in milliseconds of processing time between early results of an open counting window; "
        "0: only the final one.",
    )
    active_ms: Positive = Field(
        default=5 * MINUTE_MS,
        description="Length in milliseconds of the sliding window that active users are counted in; a multiple of "
        "active_every_ms.",
    )
    active_every_ms: Positive = Field(
        default=MINUTE_MS, description="Interval in milliseconds between counts of active users."
    )
    top_ms: Positive = Field(
        default=60 * MINUTE_MS,
        description="Length in milliseconds of the sliding window that pages are ranked in; a multiple of "
        "top_every_ms.",
    )
    top_every_ms: Positive = Field(
        default=5 * MINUTE_MS, description="Interval in milliseconds between rankings of pages."
    )
    top: Positive = Field(default=10, description="Number of pages in a ranking.")

    @model_validator(mode="after")
    def _check_slides(self) -> Self:
        for size, slide in (("active_ms", "active_every_ms"), ("top_ms", "top_every_ms")):
            if getattr(self, size) % getattr(self, slide):
                raise ValueError(f"{size} must be a multiple of {slide}")
        return self


class SessionsSettings(ServiceSettings):
    """Settings of the sessions app."""

    preload: ClassVar[tuple[str, ...]] = (
        "streamcore.topology.kernel",
        "streamcore.operators.windows.revised_operator",
        "streamcore.operators.windows.operator",
        "streamcore.operators.deduplication.operator",
    )

    app: AppName = Field(
        default="sessions",
        description="Name of the app: the prefix of its topics and the key of its checkpoint and savepoints.",
    )
    stream: StreamDocument = Field(description="Stream of user events: its schema file and topic.")
    fields: FieldsDocument = Field(default=FieldsDocument(), description="Fields of the stream that the app reads.")
    gap: GapDocument = Field(default=GapDocument(), description="Inactivity that ends a session.")
    funnel: Annotated[NonEmptyNames, Field(max_length=30)] = Field(
        default=("view", "cart_add", "checkout", "payment"),
        description="Event types that are the steps of the funnel, in order, each once.",
    )
    conversion: str = Field(default="payment", description="Event type that makes a session converted.")
    revenue: RevenueDocument = Field(default=RevenueDocument(), description="Event types that change the revenue.")
    failed: FailedDocument | None = Field(
        default=FailedDocument(), description="How failed events are recognised; null if none fail."
    )
    bounce: BounceDocument = Field(default=BounceDocument(), description="When a session counts as a bounce.")
    lateness_ms: NotNegative = Field(
        default=10 * MINUTE_MS,
        description="How far behind the watermark, in milliseconds, an event is still accepted; a session is final "
        "when the watermark is this far past its end.",
    )
    early_ms: NotNegative = Field(
        default=MINUTE_MS,
        description="Milliseconds of processing time after a change until a session is emitted again before it is "
        "final, and at once when it has ended; 0: only the final record.",
    )
    deduplicate_ms: NotNegative = Field(
        default=60 * MINUTE_MS,
        description="Most milliseconds of event time between two events with the same id for the second to be a "
        "duplicate; 0 turns deduplication off.",
    )
    max_ids: Positive = Field(default=10_000_000, description="Most event ids that one shard keeps for deduplication.")
    max_pages: Positive = Field(
        default=10_000, description="Most distinct pages that are counted exactly in one session."
    )
    dashboard_metrics: DashboardMetricsDocument | None = Field(
        default=DashboardMetricsDocument(), description="Metrics for a dashboard; null turns them off."
    )
    postgres: PostgresSettings | None = Field(
        default=None, description="PostgreSQL sink for the same rows; its tables name the lanes with the suffix _table."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if len(set(self.funnel)) < len(self.funnel):
            raise ValueError("funnel: an event type appears twice; each may be one step only")
        if both := sorted(set(self.revenue.adds).intersection(self.revenue.subtracts)):
            raise ValueError(f"revenue: {both[0]!r} is both added and subtracted; leave it out of one")
        if 0 < self.deduplicate_ms < self.lateness_ms:
            raise ValueError(
                f"deduplicate_ms ({self.deduplicate_ms}) must not be below lateness_ms ({self.lateness_ms}), or events "
                "that are still accepted could not be checked for duplicates; raise it, or turn deduplication off (0)"
            )
        if self.deduplicate_ms and self.fields.event_id is None:
            raise ValueError("deduplicate_ms needs fields.event_id; set it to 0 for events without ids")
        return self
