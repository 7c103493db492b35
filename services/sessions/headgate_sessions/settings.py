"""What the sessions app can be told, as one document: YAML or JSON, checked before anything starts.

What an event *means* is said here and nowhere else: which field names the user, which types of events are steps of the
funnel, bring money or keep a session open for longer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamcore.service.documents import Document, NotNegative, Positive, StreamDocument, load_document
from streamcore.service.postgres import PostgresDocument
from streamcore.service.settings import ServiceSettings

MINUTE_MS = 60_000
#: The type of all events where no field says one.
EVENT = "event"

Names = tuple[str, ...]
SomeNames = Annotated[Names, Field(min_length=1)]


class FieldsDocument(Document):
    """Which fields of the stream say what; its event time is the stream's own.

    ``amount``: several are multiplied, such as quantity and price. ``currency``: without it all amounts are of one.
    """

    user: str = "user_id"
    event_id: str | None = "event_id"
    type: str | None = "type"
    page: str = "product_id"
    amount: SomeNames = ("amount",)
    currency: str | None = "currency"


class FailedDocument(Document):
    """Events that did not succeed: they are events, but no steps, and no money was moved."""

    field: str = "status"
    values: SomeNames = ("declined", "failed")


class RevenueDocument(Document):
    """Types of events whose amount is added, and of those whose amount is taken off."""

    adds: SomeNames = ("payment",)
    subtracts: Names = ("refund",)


class BounceDocument(Document):
    """A bounce is a session of at most so many events, or different pages, that did not convert."""

    of: Literal["events", "pages"] = "events"
    at_most: Positive = 1


class GapDocument(Document):
    """A session ends when nothing has come for ``gap_ms`` after its last event; ``by_type``: after events of a type."""

    gap_ms: Positive = 30 * MINUTE_MS
    by_type: dict[str, Positive] = Field(default_factory=dict)


class FiguresDocument(Document):
    """Figures for a dashboard. ``every_ms``: what is counted by the minute; said anew each ``early_ms``, by the clock.

    ``active_ms``: who was there in the last so many milliseconds, each ``active_every_ms``. ``top_ms``: the ``top``
    pages of the last so many, each ``top_every_ms``.
    """

    every_ms: Positive = MINUTE_MS
    early_ms: NotNegative = 5_000
    active_ms: Positive = 5 * MINUTE_MS
    active_every_ms: Positive = MINUTE_MS
    top_ms: Positive = 60 * MINUTE_MS
    top_every_ms: Positive = 5 * MINUTE_MS
    top: Positive = 10

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for size, slide in (("active_ms", "active_every_ms"), ("top_ms", "top_every_ms")):
            if getattr(self, size) % getattr(self, slide):
                raise ValueError(f"{size} must be a multiple of {slide}, so that each of its windows ends with another")
        return self


class SessionsSettings(ServiceSettings):
    """The sessions app.

    ``lateness_ms``: how far behind the watermark an event is still taken; a session's final record comes when the
    watermark is so far past its end. ``early_ms``: how long after a change a session is said anew before that, by the
    clock, and at once when it has ended; 0: it has its final record and no other. ``deduplicate_ms``: how far apart in
    event time two events with one id may be and still be the same; 0: ids are not looked at. ``postgres``: where rows
    go besides; its ``tables`` name the lanes (``topics.table_lane``).
    """

    preload: ClassVar[tuple[str, ...]] = (
        "streamcore.topology.kernel",
        "streamcore.operators.revise",
        "streamcore.operators.window",
        "streamcore.operators.deduplicate",
    )

    app: str = "sessions"
    stream: StreamDocument
    fields: FieldsDocument = FieldsDocument()
    gap: GapDocument = GapDocument()
    funnel: Annotated[SomeNames, Field(max_length=30)] = ("view", "cart_add", "checkout", "payment")
    conversion: str = "payment"
    revenue: RevenueDocument = RevenueDocument()
    failed: FailedDocument | None = FailedDocument()
    bounce: BounceDocument = BounceDocument()
    lateness_ms: NotNegative = 10 * MINUTE_MS
    early_ms: NotNegative = MINUTE_MS
    deduplicate_ms: NotNegative = 60 * MINUTE_MS
    max_ids: Positive = 10_000_000
    max_pages: Positive = 10_000
    figures: FiguresDocument | None = FiguresDocument()
    postgres: PostgresDocument | None = None

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if len(set(self.funnel)) < len(self.funnel):
            raise ValueError("funnel: a type of event is one step, so each may stand there once")
        if both := sorted(set(self.revenue.adds).intersection(self.revenue.subtracts)):
            raise ValueError(f"revenue: {both[0]!r} is both added and subtracted; leave it out of one")
        if 0 < self.deduplicate_ms < self.lateness_ms:
            raise ValueError(
                f"deduplicate_ms ({self.deduplicate_ms}) must not be below lateness_ms ({self.lateness_ms}), or events "
                "that may still be taken would be too late to be told apart; raise it, or set it to 0: no deduplication"
            )
        if self.deduplicate_ms and self.fields.event_id is None:
            raise ValueError("deduplicate_ms needs fields.event_id; set it to 0 for events without ids")
        return self


def load_settings(path: Path) -> SessionsSettings:
    """Settings from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return load_document(path, SessionsSettings)
