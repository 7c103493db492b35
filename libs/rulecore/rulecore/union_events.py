"""Puts the events of several streams into one frame, for the rules that read their union."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rulecore.streams import EVENT_TIME, STREAM, RuleInput, is_union, stream_names
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, Field, StreamSchema


def unite_events(source: RuleInput, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the events of the input of a rule. ``frames``: of at least one of its streams, by name."""
    name = source.schema.name
    if not is_union(name):
        return frames[name]
    events = union_events(source.schema, {one.schema.name: one.schema for one in source.streams}, frames)
    assert events is not None, "frames of its streams"
    return events


def union_events(
    union: StreamSchema, streams: Mapping[str, StreamSchema], frames: Mapping[str, pl.DataFrame]
) -> pl.DataFrame | None:
    """Return the events of a union in order of event time; None if there are none. ``frames``: those of its streams."""

    def column(field: Field, member: StreamSchema) -> pl.Expr:
        if field.name == STREAM:
            return pl.lit(member.name).alias(STREAM)
        if field.name == EVENT_TIME:
            return pl.col(EVENT_MS).alias(EVENT_TIME)
        absent = field.name not in frames[member.name].columns  # no field of the stream, or one that no rule reads
        return pl.lit(None, polars_type(field.type)).alias(field.name) if absent else pl.col(field.name)

    members = [streams[name] for name in stream_names(union.name) if name in frames]
    parts = [
        frames[member.name].select(*(column(field, member) for field in union.fields), PARTITION, OFFSET, EVENT_MS)
        for member in members
    ]
    return pl.concat(parts).sort(EVENT_MS, PARTITION, OFFSET, maintain_order=True) if parts else None
