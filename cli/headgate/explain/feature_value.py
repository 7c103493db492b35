"""The value of a published feature for one key: as an event of the key would find it at a time.

It is computed from the events of the key on the topic, by the code of production. The app is not asked, and its state
may begin later than the topic: then the app's value lacks the events before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # values are JSON of any content

import polars as pl

from headgate.errors import InputError
from headgate.explain.event_selection import find_key_events
from headgate.explain.evidence import drop_duplicates, drop_late_events
from headgate.explain.kafka_reader import KafkaReader
from headgate.explain.keys import parse_key
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.records.inputs import find_input
from headgate.time_arguments import show_time
from rulecore.alerts.alerts import to_json_value
from rulecore.compile.feature import CompiledFeature
from rulecore.compile.published_feature import compile_published
from rulecore.compile.rule import CompiledRule
from rulecore.documents.published_feature import PublishedFeature
from rulecore.explain.features import with_feature_values
from rulecore.key_columns import keyed_schema
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.fill_columns import with_list_columns
from rulecore.ruleset.history import RuleHistory
from rulecore.union_events import unite_events
from streamcore.durations import render_duration
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema, Type
from streamcore.wire.lanes import LATE

_LATE_RECORDS = 50_000
_COUNTS = "__counts"


@dataclass(frozen=True, slots=True)
class FeatureQuery:
    """``key``: ``COLUMN=VALUE`` for each column of `by`; of one column the value is enough. ``at_ms``: the event time
    of the event that would read the feature; None: ``now_ms``, the time of the command. ``scan``: the most records
    to read of a topic."""

    name: str
    key: Sequence[str]
    at_ms: int | None
    topics: Sequence[str]
    scan: int
    now_ms: int
    formats: RecordFormats = ALL_JSON


@dataclass(frozen=True, slots=True)
class FeatureReading:
    """A value of a feature. ``key``, ``value``: JSON. ``from_ms``: the earliest time that it reads; ``counted``: the
    number of events that it counts. ``notes``: on what the value is based."""

    feature: PublishedFeature
    key: Mapping[str, object]
    at_ms: int
    value: object
    type: str
    from_ms: int
    counted: int
    notes: Sequence[str]


def read_feature(kafka: KafkaSettings, app: str, history: RuleHistory, query: FeatureQuery) -> FeatureReading:
    """Return the value of a published feature. Raises ``InputError``, naming what is missing, if that is not
    possible."""
    keeper = _find_keeper(app, history, query.name)
    document, feature = history.rules.features.documents[query.name], keeper.features[0]
    source = find_input(keeper.rule.on, history.rules.streams, query.topics, query.formats)
    texts = _name_columns(query.key, document)
    key = parse_key(texts, keeper, source.schema)
    schema, at_ms = keyed_schema(source.schema, keeper.group_by), query.now_ms if query.at_ms is None else query.at_ms
    reader = KafkaReader(kafka, query.formats)
    evidence = find_key_events(reader, source, keeper, texts, at_ms, query.scan, query.now_ms)
    evidence = drop_late_events(reader, f"{app}.{LATE}", evidence, min(query.scan, _LATE_RECORDS))
    evidence = drop_duplicates(evidence)
    contents = history.lists.contents(at_ms)
    events = unite_events(source, evidence.frames).filter(pl.col(EVENT_MS) <= at_ms)
    events = with_list_columns(events, keeper.columns, contents)
    events = events.filter(pl.all_horizontal(pl.col(n).eq_missing(pl.lit(v)) for n, v in key.items()))
    probed = pl.concat([events, _probe(events, key, at_ms)], how="vertical")
    value = with_feature_values(keeper, schema, probed, contents)[feature.name][-1]
    from_ms = (at_ms // feature.pane_ms - feature.panes + 1) * feature.pane_ms
    return FeatureReading(
        feature=document,
        key={name: to_json_value(one, _type(schema, name)) for name, one in key.items()},  # type: ignore[arg-type]
        at_ms=at_ms,
        value=to_json_value(value, feature.type),
        type=str(feature.type),
        from_ms=from_ms,
        counted=_count(events.filter(pl.col(EVENT_MS) >= from_ms), feature),
        notes=evidence.notes,
    )


def _find_keeper(app: str, history: RuleHistory, name: str) -> CompiledRule:
    """Return the rule that keeps a published feature; its feature does not count the event that reads it."""
    features = history.rules.features
    if name not in features.documents:
        known = ", ".join(sorted(features.documents)) or "none"
        raise InputError(f"app {app} has no published feature {name}; there are {known}")
    document = features.documents[name]
    if name not in features.keepers:
        raise InputError(f"feature {name} does not compile with the present streams; see headgate features list")
    if not document.including_this:
        return features.keepers[name]
    before = document.model_copy(update={"including_this": False})
    rules = history.rules
    return compile_published(before, rules.streams, rules.limits, rules.lists)


def _name_columns(texts: Sequence[str], document: PublishedFeature) -> list[str]:
    """Return the key as ``COLUMN=VALUE`` of each column. Raises ``InputError`` unless each is there once."""
    (first, *others) = document.by
    if len(texts) == 1 and not others and not texts[0].startswith(f"{first}="):
        return [f"{first}={texts[0]}"]
    if sorted(text.partition("=")[0] for text in texts) != sorted(document.by) or not all("=" in t for t in texts):
        needed = " ".join(f"{name}=VALUE" for name in document.by)
        raise InputError(f"key {' '.join(texts)!r}: feature {document.feature} needs {needed}")
    return [*texts]


def _probe(events: pl.DataFrame, key: Mapping[str, object], at_ms: int) -> pl.DataFrame:
    """Return an event of the key that comes after all others, with nothing but the key and its time."""
    after = 0 if not events.height else int(events[OFFSET].max()) + 1  # type: ignore[arg-type]
    partition = 0 if not events.height else int(events[PARTITION].max())  # type: ignore[arg-type]
    own = {**key, EVENT_MS: at_ms, PARTITION: partition, OFFSET: after}
    kinds = events.schema.items()
    return pl.DataFrame([pl.Series(name, [own.get(name)], dtype=kind, strict=False) for name, kind in kinds])


def _count(events: pl.DataFrame, feature: CompiledFeature) -> int:
    if feature.where is None:
        return events.height
    where = to_polars(feature.where).fill_null(value=False) & pl.int_range(pl.len()).is_not_null()
    return int(events.select(where.alias(_COUNTS))[_COUNTS].sum())


def _type(schema: StreamSchema, name: str) -> Type:
    field = schema.get(name)
    assert field is not None, "the columns of a key are fields of its schema"
    return field.type


def reading_json(reading: FeatureReading) -> dict[str, Any]:
    """Return the JSON of a value."""
    own, feature = reading, reading.feature
    return {
        "feature": feature.feature,
        "version": feature.version,
        "key": dict(own.key),
        "at_ms": own.at_ms,
        "value": own.value,
        "type": own.type,
        "from_ms": own.from_ms,
        "counted": own.counted,
        "notes": [*own.notes],
    }


def reading_text(reading: FeatureReading) -> str:
    """Render a value: the feature and its key, the value, and the events that it counts."""
    feature = reading.feature
    key = ", ".join(f"{name}={value}" for name, value in reading.key.items())
    shown = "NULL" if reading.value is None else reading.value
    assert feature.span is not None, "a feature has a length"
    back = render_duration(feature.span.size_ms)
    lines = [
        f"{feature.feature} version {feature.version} of {key} at {show_time(reading.at_ms)} UTC: {shown}",
        f"  {feature.of}" + (f" where {feature.where}" if feature.where else ""),
        f"  {reading.counted:,} events since {show_time(reading.from_ms)} UTC, {back} back",
    ]
    return "\n".join([*lines, *(f"  {note}" for note in reading.notes)])
