"""The features of a rule: values about the past of a key, which the rule's condition reads beside the event."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from pydantic import Discriminator, Field, Tag

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


#: The name of a feature: of one that a rule declares, and of a published one.
FeatureName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class FeatureValue(DocumentModel):
    """A value about the earlier events of a key.

    The value counts the events that arrived before the one being evaluated and that ``within`` reaches; with
    ``including_this`` also that one.
    """

    of: Annotated[
        Expression, Field(description="Aggregate of earlier events: avg(amount), seen(device_id), last(country).")
    ]
    where: Annotated[
        Expression | None, Field(description="Condition on each earlier event; only events that satisfy it count.")
    ] = None
    within: Annotated[
        Within, Field(description="How far back: {sliding: 30d, every: 1h}, or {tumbling: 1d} for the day so far.")
    ]
    including_this: Annotated[bool, Field(description="Whether the event itself counts, too.")] = False

    @property
    def span(self) -> TumblingSpec | SlidingSpec | None:
        """The window, if it is one that a feature may have."""
        return self.within if isinstance(self.within, TumblingSpec | SlidingSpec) else None


class Feature(FeatureValue):
    """A feature that a rule declares, with its name there."""

    name: Annotated[FeatureName, Field(description="Name by which `where` and the message read the value.")]
    by: Annotated[
        tuple[ColumnName, ...],
        Field(strict=False, max_length=MAX_KEY_COLUMNS),
        Field(description="Fields and expressions whose values earlier events share with it; by default group_by."),
    ] = ()


#: A feature of a rule: one that it declares, or the name of a published one.
FeatureItem = Annotated[
    Annotated[Feature, Tag("feature")] | Annotated[FeatureName, Tag("name")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "feature"),
]


def check_features(features: tuple[Feature | str, ...]) -> None:
    """Raise ``ValueError`` for features that do not go together, or a window that a feature cannot have."""
    names = [one if isinstance(one, str) else one.name for one in features]
    if repeated := [name for n, name in enumerate(names) if name in names[:n]]:
        second = len(names) - 1 - names[::-1].index(repeated[0])
        raise ValueError(f"features.{second}.name: two are named {repeated[0]}; give each a name of its own")
    for number, feature in enumerate(features):
        if isinstance(feature, Feature) and (fault := find_fault(feature)) is not None:
            raise ValueError(f"features.{number}.{fault}")


def find_fault(feature: Feature) -> str | None:
    """Return the name of an entry that a feature cannot have so, a colon and why; None without a fault."""
    if feature.span is None:
        return "within: is {sliding: 30d, every: 1h}, or {tumbling: 1d} for the day so far"
    return "by: names a column twice" if len(set(feature.by)) != len(feature.by) else None


def declared_features(features: tuple[Feature | str, ...]) -> tuple[Feature, ...]:
    """Return those that the rule declares itself."""
    return tuple(one for one in features if isinstance(one, Feature))
