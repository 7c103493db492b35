"""The values of a rule's features at past events."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.documents.features import EventOrder
from rulecore.groups.base import GroupId
from rulecore.groups.features.group import FeatureGroup
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

_PLACE = "__place"


def with_feature_values(
    rule: CompiledRule, schema: StreamSchema, events: pl.DataFrame, contents: Mapping[str, ListContent]
) -> pl.DataFrame:
    """Return the events, which are in order of arrival, with a column for each feature, under its name.

    ``events``: all of the keys in question; their past begins with the first of them. ``contents``: of lists.
    """
    group_id = GroupId.for_rule(rule)
    assert group_id is not None, "a feature rule has state"
    group = FeatureGroup(group_id, schema, GroupSettings())
    group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    if rule.rule.order is EventOrder.IN_ORDER:
        place = pl.arange(events.height).alias(_PLACE)
        events = events.with_columns(place).sort(EVENT_MS, PARTITION, OFFSET)
    values = group.values(with_list_columns(events, rule.columns, contents))
    found = events.with_columns(values[feature.column].alias(feature.name) for feature in rule.features)
    return found.sort(_PLACE).drop(_PLACE) if _PLACE in found.columns else found
