"""One version of a feature that is published by itself, so that many rules read it under one name.

Promises: a ``PublishedFeature`` has an entry that a rule could have declared itself; ``encode_feature`` returns the
same bytes for the same feature. ``rulecore.compile.published_feature`` checks it against its stream.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, model_validator

from rulecore.documents.features import MAX_KEY_COLUMNS, EventOrder, Feature, FeatureName, FeatureValue, find_fault
from rulecore.documents.scalars import MAX_TEXT, ColumnName, StreamNames

#: The entry that tells the document of a published feature from that of a rule.
FEATURE: Final = "feature"


class PublishedFeature(FeatureValue):
    """One immutable version of a published feature, a value about the past of a key of a stream."""

    feature: Annotated[
        FeatureName, Field(description="Name of the feature, by which rules read it; all of its versions share it.")
    ]
    version: Annotated[
        int, Field(ge=1, lt=2**31), Field(description="Number of this version; a new version has a higher number.")
    ]
    owner: Annotated[
        str,
        Field(min_length=1, max_length=200),
        Field(description="Team or person that is responsible for the feature."),
    ]
    description: Annotated[
        str, Field(max_length=MAX_TEXT), Field(description="What the feature means, for its readers.")
    ] = ""
    on: Annotated[StreamNames, Field(description="Name of the stream whose events it reads, or a list of several.")]
    by: Annotated[
        tuple[ColumnName, ...],
        Field(strict=False, min_length=1, max_length=MAX_KEY_COLUMNS),
        Field(description="Fields and expressions whose values earlier events share with the event."),
    ]
    order: Annotated[
        EventOrder,
        Field(strict=False),
        Field(description="The order of the rules that may read it: on arrival, or in order of event time."),
    ] = EventOrder.ON_ARRIVAL

    @model_validator(mode="after")
    def _check_entry(self) -> PublishedFeature:
        if (fault := find_fault(self.entry)) is not None:
            raise ValueError(fault)
        return self

    @property
    def entry(self) -> Feature:
        """The feature as an entry of a rule."""
        return Feature.model_construct(
            name=self.feature,
            of=self.of,
            where=self.where,
            by=self.by,
            within=self.within,
            including_this=self.including_this,
        )


def encode_feature(feature: PublishedFeature) -> bytes:
    """Return the value of the feature's control record: keys sorted, defaults written out, UTF-8, no blanks."""
    return feature.canonical_json()
