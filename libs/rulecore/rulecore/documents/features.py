"""The features of a rule: values about the past of a key, which the rule's condition reads beside the event."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from pydantic import Field

from rulecore.documents.base import DocumentModel
from rulecore.documents.scalars import ColumnName, Expression
from rulecore.documents.windows import SlidingSpec, TumblingSpec, Within

MAX_FEATURES: Final = 32
MAX_KEY_COLUMNS: Final = 16


class EventOrder(enum.StrEnum):
    """When a feature rule evaluates an event: when it arrives, on what had arrived; or in order of event time, when the
    watermark has passed it, on what has an earlier time."""

    ON_ARRIVAL = "on_arrival"
    IN_ORDER = "in_order"


class Feature(DocumentModel):
    """A named value about the earlier events of a key.

    The value counts the events that arrived before the one being evaluated and that ``within`` reaches; with
    ``including_this`` also that one.
    """

    name: Annotated[
        str,
        Field(pattern=r"^[a-z][a-z0-9_]{0,62}$"),
        Field(description="Name by which `where` and the message read the value."),
    ]
    of: Annotated[
        Expression, Field(description="Aggregate of earlier events: avg(amount), seen(device_id), last(country).")
    ]
    where: Annotated[
        Expression | None, Field(description="Condition on each earlier event; only events that satisfy it count.")
    ] = None
    by: Annotated[
        tuple[ColumnName, ...],
        Field(strict=False, max_length=MAX_KEY_COLUMNS),
        Field(description="Fields and expressions whose values earlier events share with it; by default group_by."),
    ] = ()
    within: Annotated[
        Within, Field(description="How far back: {sliding: 30d, every: 1h}, or {tumbling: 1d} for the day so far.")
    ]
    including_this: Annotated[bool, Field(description="Whether the event itself counts, too.")] = False

    @property
    def span(self) -> TumblingSpec | SlidingSpec | None:
        """The window, if it is one that a feature may have."""
        return self.within if isinstance(self.within, TumblingSpec | SlidingSpec) else None


def check_features(features: tuple[Feature, ...]) -> None:
    """Raise ``ValueError`` for features that do not go together, or a window that a feature cannot have."""
    names = [feature.name for feature in features]
    if repeated := [name for n, name in enumerate(names) if name in names[:n]]:
        second = len(names) - 1 - names[::-1].index(repeated[0])
        raise ValueError(f"features.{second}.name: two are named {repeated[0]}; give each a name of its own")
    for number, feature in enumerate(features):
        if feature.span is None:
            accepted = "{sliding: 30d, every: 1h}, or {tumbling: 1d} for the day so far"
            raise ValueError(f"features.{number}.within: is {accepted}")
        if len(set(feature.by)) != len(feature.by):
            raise ValueError(f"features.{number}.by: names a column twice")
