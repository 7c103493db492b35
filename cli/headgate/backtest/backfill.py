"""Backfill of a rule: counts the events from before its new aggregates began, and sends the counts to the app.

The app reports on the status topic from which offsets on a version counts. This module counts the events before those
offsets, with the app's own code, from the topic or from files; duplicates count once if the stream has ``deduplicate``.
Promises: with the topic as source the result is exact, whatever the app reads meanwhile. Files are not checked: they
must hold every earlier event exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl

from headgate.backtest.run import Progress
from headgate.backtest.sources import TopicRange, count_events, file_batches, files_by_stream, topic_batches
from headgate.errors import InputError
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.records.inputs import find_input
from headgate.rules.history import read_history
from headgate.rules.publish import AppTopics, ChangeNote, ControlChange, PublishedChange, publish_in_steps
from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import CompiledRule
from rulecore.documents.control_keys import STAGED_KEY, parse_key
from rulecore.groups.windows.members import rows_column
from rulecore.lists.fill_columns import with_list_columns
from rulecore.streams import RuleInput
from rulecore.union_events import unite_events
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition
from streamcore.operators.deduplication.events import for_stream
from streamcore.schema import EVENT_MS


@dataclass(frozen=True, slots=True)
class MissingAggregates:
    """Aggregates of a version that began at the same offsets. ``since_ms``: the event time from which each aggregate,
    by its name, is complete without a backfill. ``topics``: those that the app counts; ``counts_from``: the first
    offset that it counted, by topic and partition."""

    since_ms: Mapping[str, int]
    topics: frozenset[str]
    counts_from: Mapping[TopicPartition, int]


#: The topics that the app counts, and the first offset by topic and partition.
_Start = tuple[frozenset[str], tuple[tuple[TopicPartition, int], ...]]


@dataclass(frozen=True, slots=True)
class BackfillSource:
    """The source of the past events: ``parquet``, files or folders; without any: ``topics``. Both are the values of
    the options. ``start_ms``: the event time of the first events to count. ``now_ms``: the time of the command."""

    topics: tuple[str, ...]
    start_ms: int
    now_ms: int
    parquet: tuple[str, ...] = ()
    formats: RecordFormats = ALL_JSON


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """One part of a backfill: the aggregates that began at the same offsets. ``events``: the number read;
    ``aggregates``: the number sent; ``published``: the sent records with the app's response."""

    rule: str
    version: int
    events: int
    aggregates: int
    published: PublishedChange


def backfill_rule(
    kafka: KafkaSettings,
    topics: AppTopics,
    rule_id: str,
    history: BackfillSource,
    streams: Path | None,
    note: ChangeNote,
    wait_ms: int,
    progress: Progress,
) -> list[BackfillResult]:
    """Backfill the version of a rule that is on trial, or else the live one.

    Returns one result for each group of aggregates that began at the same offsets, at least one. Raises ``InputError``
    if there is no such rule, or nothing to backfill.
    """
    known = read_history(kafka, topics, streams)
    rule = known.rules.candidate(rule_id) or known.rules.live(rule_id)
    if rule is None:
        raise InputError(f"app {topics.app} has no rule {rule_id!r}; publish it first, for example in shadow mode")
    if rule.window is None and not rule.features:
        raise InputError(f"{rule_id} has neither windows nor features to backfill")
    source = find_input(rule.rule.on, known.rules.streams, history.topics, history.formats)
    contents = known.lists.contents(history.now_ms)
    results = []
    for missing in _missing_aggregates(kafka, topics, rule):
        collector, events = BackfillCollector(rule, source.schema), 0
        deduplication = {one.schema.name: for_stream(one.schema) for one in source.streams}
        total, batches = _past_events(kafka, history, missing, source)
        with progress(f"backfill {rule_id}", total) as on_progress:
            for count, frames in batches:
                once = {
                    name: frame if (kept := deduplication[name]) is None else kept.filter(frame)
                    for name, frame in frames.items()
                }
                past = unite_events(source, once).filter(pl.col(EVENT_MS) >= history.start_ms)
                collector.add(with_list_columns(past, rule.columns, contents))
                events += count
                on_progress(events)
        records = backfill_records(collector, history.start_ms, missing.since_ms, STAGED_KEY)
        changes = [ControlChange(k, v, parse_key(k)[1], rule.rule.version) for k, v in records]
        sent = publish_in_steps(kafka, topics, changes, note, wait_ms)
        results.append(BackfillResult(rule_id, rule.rule.version, events, len(missing.since_ms), sent[-1]))
    return results


def _missing_aggregates(kafka: KafkaSettings, topics: AppTopics, rule: CompiledRule) -> list[MissingAggregates]:
    """Read from the status topic where each aggregate of the rule began, and group the aggregates by that."""
    latest: dict[str, tuple[int, _Start]] = {}
    records = read_topic(kafka, topics.status)
    for record in sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset)):
        incomplete = orjson.loads(record.value or b"{}").get("incomplete")
        if incomplete is not None:
            by_topic = incomplete["counts_from"].items()
            offsets = sorted(((topic, int(p)), int(o)) for topic, places in by_topic for p, o in places.items())
            start = frozenset(incomplete["counts_from"]), tuple(offsets)
            latest |= {name: (since, start) for name, since in incomplete["since_ms"].items()}
    names = [*(spec.column for spec in rule.aggregates), *(feature.fingerprint for feature in rule.features)]
    rows = [name for name in latest if name.startswith("rows_")]
    by_start: dict[_Start, dict[str, int]] = {}
    for name in [*names, *rows]:
        if name in latest and (name in names or latest[name][1] in by_start):
            by_start.setdefault(latest[name][1], {})[name] = latest[name][0]
    if not by_start:
        raise InputError(
            f"app {topics.app} has not reported from which offsets {rule.rule.id} version {rule.rule.version} counts: "
            "its aggregates existed before, or the app has read no event since; there is nothing to backfill"
        )
    own = {*names, rows_column(rule)}
    return [
        MissingAggregates({n: s for n, s in since.items() if n in own}, topics, dict(offsets))
        for (topics, offsets), since in by_start.items()
    ]


def _past_events(
    kafka: KafkaSettings, history: BackfillSource, missing: MissingAggregates, source: RuleInput
) -> tuple[int, Iterator[tuple[int, Mapping[str, pl.DataFrame]]]]:
    """Return the number of past events, and an iterator of pairs: the number of events read, and the events by
    stream."""
    if history.parquet:
        files = files_by_stream(history.parquet, source)
        frames = ((count, batch.events) for count, batch in file_batches(files, source, history.now_ms))
        return sum(map(count_events, files.values())), frames
    past = _range_before_start(kafka, [*dict.fromkeys(source.topics)], history.start_ms, missing)
    read = topic_batches(kafka, past, source, history.now_ms, history.formats)
    return past.records, ((count, batch.events) for count, batch in read)


def _range_before_start(
    kafka: KafkaSettings, topics: Sequence[str], start_ms: int, missing: MissingAggregates
) -> TopicRange:
    """Return the range from the first record at or after ``start_ms`` to the offsets from which the app counted.

    Raises ``InputError`` if a topic no longer holds its beginning, or if it is not one that the app counts.
    """
    if missing.topics != {*topics}:
        counted = ", ".join(sorted(missing.topics))
        raise InputError(f"the app counts the events of {counted}, not of {', '.join(topics)}; correct --topic")
    ends = KafkaPartitionOffsets(kafka, topics)
    first, start, latest = ends.earliest(), ends.for_timestamp(start_ms), ends.latest()
    stop = {partition: min(missing.counts_from.get(partition, 0), latest[partition]) for partition in latest}
    begin = {partition: min(max(start[partition], first[partition]), stop[partition]) for partition in latest}
    if lost := [
        partition
        for partition in latest
        if first[partition] > 0 and first[partition] >= start[partition] and stop[partition]
    ]:
        oldest = ", ".join(f"{name}-{partition}" for name, partition in sorted(lost))
        raise InputError(
            f"{oldest}: the topic no longer holds the events from --from on; choose a later time, or name files with"
            " --parquet"
        )
    return TopicRange(begin, stop)


def render_results(results: Sequence[BackfillResult]) -> list[str]:
    """Render one line for each result."""
    lines = []
    for result in results:
        response = result.published.response
        status = "no answer" if response is None else response.status
        reason = "" if response is None or response.reason is None else f": {response.reason}"
        counted = f"{result.aggregates} aggregates from {result.events} events"
        lines.append(f"{status:10} {result.rule} version {result.version}: {counted}{reason}")
    return lines
