"""The settings of the sessions app as one document: YAML or JSON, checked before anything starts.

Only these settings define the meaning of an event. ``headgate_sessions.plan`` checks the names and expressions.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from streamcore.service.config.documents import Document, NotNegative, Positive, StreamDocument
from streamcore.service.config.settings import AppName, ServiceSettings
from streamcore.service.config.sinks import SinkDocuments
from streamcore.windowing.assigners import MAX_GAP_MS

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]
GapMs = Annotated[int, Field(gt=0, le=MAX_GAP_MS)]


class FieldsDocument(Document):
    """What the app needs of every event, as expressions over the fields of the stream; a name is one."""

    user: str = Field(default="user_id", description="The user; events without a user belong to no session.")
    event_id: str | None = Field(
        default=None, description="The event's id, for deduplication; null: events are not deduplicated here."
    )


class GapDocument(Document):
    """Inactivity that ends a session."""

    gap_ms: GapMs = Field(
        default=30 * MINUTE_MS, description="Milliseconds without an event after which a session ends."
    )
    expression: str | None = Field(
        default=None,
        description="Gap in milliseconds after an event, instead of gap_ms, such as if(kind = 'form', 3600000, "
        "1800000). An event for which it is null or not from 1 to max_ms is a dead letter.",
    )
    max_ms: GapMs = Field(default=DAY_MS, description="Longest gap that expression may give, in milliseconds.")


class FunnelStepDocument(Document):
    """A step of the funnel."""

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(description="Name of the step, for views.")
    when: str = Field(description="Condition of the events that are this step; an event may be several steps.")


class DashboardMetricsDocument(Document):
    """Metrics for a dashboard."""

    page: str | None = Field(
        default=None, description="Page or product of an event, as an expression, for the lane top; null: no such lane."
    )
    amount: str | None = Field(
        default=None,
        description="Money of an event, as an expression with a long or decimal, for the lane revenue; null: no such "
        "lane. It is negative for a refund, and null for an event without money.",
    )
    currency: str | None = Field(
        default=None, description="Currency of amount, as an expression; null if all amounts have the same currency."
    )
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


class SessionsSettings(SinkDocuments, ServiceSettings):
    """Settings of the sessions app. A lane whose rows go to a sink, too, has an entry there: its name and _table."""

    preload: ClassVar[tuple[str, ...]] = (
        "headgate_sessions.session_records",
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
    fields: FieldsDocument = Field(default=FieldsDocument(), description="What the app needs of every event.")
    derive: dict[Name, str] = Field(
        default_factory=dict,
        description="Values of an event that several expressions need: name and expression over the stream's fields. "
        "Columns, steps and the like may read them by name.",
    )
    columns: dict[Name, str] = Field(
        default_factory=dict,
        description="Columns of a session of your own: name and expression with aggregates over the fields of its "
        "events, such as first(url), count(distinct device), count(kind = 'form') or sum(bytes) / 1024.",
    )
    gap: GapDocument = Field(default=GapDocument(), description="Inactivity that ends a session.")
    max_length_ms: Positive | None = Field(
        default=None,
        description="Longest session in milliseconds: sessions are cut at the multiples of it since 1970 (UTC), as at "
        "midnight for 86400000; null: no session is cut.",
    )
    funnel: Annotated[tuple[FunnelStepDocument, ...], Field(max_length=30)] = Field(
        default=(), description="Steps of the funnel in order; without any, sessions have no funnel_step."
    )
    lateness_ms: NotNegative = Field(
        default=10 * MINUTE_MS,
        description="How far behind the watermark, in milliseconds, an event is still accepted; a session is final "
        "when the watermark is this far past its end. Lateness is that of the event itself; Flink's is that of the end "
        "of the event's session, which is later by the gap.",
    )
    early_ms: NotNegative = Field(
        default=MINUTE_MS,
        description="Milliseconds of processing time after a change until a session is emitted again before it is "
        "final, and at once when it has ended; 0: only the final record.",
    )
    deduplicate_ms: NotNegative = Field(
        default=60 * MINUTE_MS,
        description="Most milliseconds of event time between two events with the same fields.event_id for the second "
        "to be a duplicate; 0 turns deduplication off.",
    )
    max_ids: Positive = Field(default=10_000_000, description="Most event ids that one shard keeps for deduplication.")
    max_distinct: Positive = Field(
        default=10_000, description="Most distinct values that count(distinct ...) counts exactly in one session."
    )
    dashboard_metrics: DashboardMetricsDocument | None = Field(
        default=DashboardMetricsDocument(), description="Metrics for a dashboard; null turns them off."
    )

    @property
    def deduplicates(self) -> bool:
        """Whether the app drops events with the same id."""
        return self.fields.event_id is not None and self.deduplicate_ms > 0

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        names = [step.name for step in self.funnel]
        if len(set(names)) < len(names):
            raise ValueError("funnel: two steps have the same name")
        if self.deduplicates and self.deduplicate_ms < self.lateness_ms:
            raise ValueError(
                f"deduplicate_ms ({self.deduplicate_ms}) must not be below lateness_ms ({self.lateness_ms}), or events "
                "that are still accepted could not be checked for duplicates; raise it, or turn deduplication off (0)"
            )
        if self.gap.gap_ms > (self.max_length_ms or self.gap.gap_ms):
            raise ValueError(f"max_length_ms: must not be below gap.gap_ms ({self.gap.gap_ms}); it would cut them all")
        return self
