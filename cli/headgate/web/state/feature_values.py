"""The values of features, as the API answers with them and pages show them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from headgate.web.state.values import Value


class FeatureDefinition(Value):
    """The definition of a feature."""

    of: Annotated[str, Field(description="The aggregate of earlier events.")]
    where: Annotated[str | None, Field(description="Which earlier events count; null: all.")]
    by: Annotated[tuple[str, ...], Field(description="The fields and expressions whose values they share.")]
    size_ms: Annotated[int, Field(description="How far back it reads, in milliseconds.")]
    pane_ms: Annotated[int, Field(description="The length of a pane, in milliseconds.")]
    type: Annotated[str, Field(description="Type of its value.")]
    other_key: Annotated[
        bool, Field(description="Whether it is computed in the stage for features, for a rule of another key.")
    ]
    complete_ms: Annotated[
        int | None,
        Field(description="Event time from which it is complete: it is warming before. Null: it is not known to warm."),
    ]


class PublishedVersion(Value):
    """A published feature."""

    feature: Annotated[str, Field(description="Its name.")]
    version: Annotated[int, Field(description="Its version.")]
    owner: Annotated[str, Field(description="Who is responsible.")]
    description: Annotated[str, Field(description="What it means.")]
    state: Annotated[str, Field(description="kept, or why it is in quarantine.")]


class FeatureUse(Value):
    """A rule that reads a feature."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Its version.")]
    mode: Annotated[str, Field(description="Its mode.")]
    owner: Annotated[str, Field(description="Who is responsible for the rule.")]
    name: Annotated[str, Field(description="The feature's name in the rule.")]
    size_ms: Annotated[int, Field(description="How far back the rule reads it, in milliseconds.")]
    including_this: Annotated[bool, Field(description="Whether the event itself counts.")]


class SharedFeatureValue(Value):
    """A feature that an app computes once for all that read it."""

    definition: Annotated[FeatureDefinition, Field(description="What it is, with the longest time back.")]
    names: Annotated[tuple[str, ...], Field(description="Published names, then those that rules give it.")]
    stream: Annotated[str, Field(description="The stream, or several joined by +.")]
    order: Annotated[str, Field(description="on_arrival or in_order.")]
    published: Annotated[tuple[PublishedVersion, ...], Field(description="The published features that it is.")]
    rules: Annotated[tuple[FeatureUse, ...], Field(description="The rules that read it.")]


class FeatureDetail(Value):
    """All features of a name."""

    feature: Annotated[str, Field(description="The name.")]
    etag: Annotated[str, Field(description="For If-Match: it changes with every control record about the feature.")]
    yaml: Annotated[str | None, Field(description="The document that is published; null: none of this name.")]
    features: Annotated[tuple[SharedFeatureValue, ...], Field(description="Features with this name.")]


class RuleFeatureValue(Value):
    """A feature of a rule."""

    definition: Annotated[FeatureDefinition, Field(description="What it is.")]
    name: Annotated[str, Field(description="Its name in the rule.")]
    published: Annotated[bool, Field(description="Whether it is a published feature that the rule names.")]
    including_this: Annotated[bool, Field(description="Whether the event itself counts.")]
    others: Annotated[int, Field(description="Number of other rules that share it.")]


class FeatureReadingValue(Value):
    """The value of a published feature for a key."""

    feature: Annotated[str, Field(description="Its name.")]
    version: Annotated[int, Field(description="Its version.")]
    key: Annotated[dict[str, JsonValue], Field(description="The key.")]
    at_ms: Annotated[int, Field(description="The time of the event that would read it, in epoch milliseconds.")]
    value: Annotated[JsonValue, Field(description="The value; null: no event counts.")]
    type: Annotated[str, Field(description="Type of the value.")]
    from_ms: Annotated[int, Field(description="The earliest time that it reads, in epoch milliseconds.")]
    counted: Annotated[int, Field(description="Events that count.")]
    notes: Annotated[tuple[str, ...], Field(description="On what the value is based.")]
