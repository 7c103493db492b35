"""Backfill of a rule: computes the part of its new aggregates that the app has not seen, and sends it to the app.

The app reports on the status topic from which offsets on a version counts. Everything before them is counted here, by
the code of production, from the topic's history or from files. Promises: with the topic as source the result is exact,
whatever the app reads meanwhile. Does not check files: they must hold every earlier event exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl

from headgate.backtest.run import Progress
from headgate.backtest.sources import TopicRange, count_events, file_batches, parquet_files, topic_batches
from headgate.errors import InputError
from headgate.rules.bundle import load_streams
from headgate.rules.history import read_history
from headgate.rules.publish import AppTopics, ChangeNote, ControlChange, PublishedChange, publish_in_steps
from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import CompiledRule
from rulecore.documents.control_keys import STAGED_KEY, parse_key
from rulecore.groups.windows.members import rows_column
from rulecore.lists.fill_columns import with_list_columns
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import EVENT_MS


@dataclass(frozen=True, slots=True)
class MissingAggregates:
    """Aggregates of a version that began together. ``counts_from``: by partition, the offset."""

    since_ms: Mapping[str, int]
    counts_from: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class BackfillSource:
    """Where the history is: ``parquet``, or a topic (None: of the stream's name). ``start_ms``: where it begins."""

    topic: str | None
    start_ms: int
    now_ms: int
    parquet: Path | None = None


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """``events``: that were read. ``response``: the reply of the app; None when none came in time."""

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
    """Backfill the newest version of a rule that is evaluated: the one on trial, or the live one."""
    known = read_history(kafka, topics, streams)
    rule = known.rules.candidate(rule_id) or known.rules.live(rule_id)
    if rule is None:
        raise InputError(f"app {topics.app} has no rule {rule_id!r}; publish it first, in shadow for example")
    if rule.window is None:
        raise InputError(f"{rule_id} is no windowed rule: there is nothing to count")
    schema = load_streams(streams)[rule.rule.on]
    contents = known.lists.contents(history.now_ms)
    done = []
    for missing in _missing(kafka, topics, rule):
        collector, events = BackfillCollector(rule, schema), 0
        total, batches = _batches(kafka, history, missing, rule, streams)
        with progress(f"backfill {rule_id}", total) as on_progress:
            for count, frame in batches:
                some = frame.filter(pl.col(EVENT_MS) >= history.start_ms)
                collector.add(with_list_columns(some, rule.list_columns, contents))
                events += count
                on_progress(events)
        records = backfill_records(collector, history.start_ms, missing.since_ms, STAGED_KEY)
        changes = [ControlChange(k, v, parse_key(k)[1], rule.rule.version) for k, v in records]
        sent = publish_in_steps(kafka, topics, changes, note, wait_ms)
        done.append(BackfillResult(rule_id, rule.rule.version, events, len(missing.since_ms), sent[-1]))
    return done


def _missing(kafka: KafkaSettings, topics: AppTopics, rule: CompiledRule) -> list[MissingAggregates]:
    """Read the last reported start of each of the rule's aggregates; group those that began at the same offsets."""
    last: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
    records = read_topic(kafka, topics.status)
    for record in sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset)):
        incomplete = orjson.loads(record.value or b"{}").get("incomplete")
        if incomplete is not None:
            place = tuple(sorted((int(p), int(o)) for p, o in incomplete["counts_from"].items()))
            last |= {name: (since, place) for name, since in incomplete["since_ms"].items()}
    names = [spec.column for spec in rule.aggregates]
    rows = [name for name in last if name.startswith("rows_")]
    together: dict[tuple[tuple[int, int], ...], dict[str, int]] = {}
    for name in [*names, *rows]:
        if name in last and (name in names or last[name][1] in together):
            together.setdefault(last[name][1], {})[name] = last[name][0]
    if not together:
        raise InputError(
            f"app {topics.app} has not reported from which offsets {rule.rule.id} version {rule.rule.version} counts: "
            "its aggregates were there before, or no event had come yet; there is nothing to backfill"
        )
    own = {*names, rows_column(rule)}
    return [
        MissingAggregates({n: s for n, s in since.items() if n in own}, dict(place))
        for place, since in together.items()
    ]


def _batches(
    kafka: KafkaSettings, history: BackfillSource, missing: MissingAggregates, rule: CompiledRule, streams: Path | None
) -> tuple[int, Iterator[tuple[int, pl.DataFrame]]]:
    """How many there are, and frames of events with their number."""
    schema = load_streams(streams)[rule.rule.on]
    if history.parquet is not None:
        files = parquet_files(history.parquet)
        found = ((count, batch.events) for count, batch in file_batches(files, schema, history.now_ms))
        return count_events(files), found
    before = _before(kafka, history.topic or schema.name, history.start_ms, missing)
    return before.records, ((n, batch.events) for n, batch in topic_batches(kafka, before, schema, history.now_ms))


def _before(kafka: KafkaSettings, topic: str, start_ms: int, missing: MissingAggregates) -> TopicRange:
    """From the first record of the time to where the app began to count."""
    ends = KafkaPartitionOffsets(kafka, [topic])
    first, start, last = ends.earliest(), ends.for_time(start_ms), ends.latest()
    stop = {place: min(missing.counts_from.get(place[1], 0), last[place]) for place in last}
    begin = {place: min(max(start[place], first[place]), stop[place]) for place in last}
    if lost := [place for place in last if first[place] > 0 and first[place] >= start[place] and stop[place]]:
        oldest = ", ".join(f"{name}-{partition}" for name, partition in sorted(lost))
        raise InputError(f"{oldest}: the topic no longer holds what came at --from; choose a later time, or --parquet")
    return TopicRange(topic, begin, stop)


def render_results(done: Sequence[BackfillResult]) -> list[str]:
    """Lines for a person."""
    lines = []
    for one in done:
        response = one.published.response
        status = "no answer" if response is None else response.status
        reason = "" if response is None or response.reason is None else f": {response.reason}"
        counted = f"{one.aggregates} aggregates from {one.events} events"
        lines.append(f"{status:10} {one.rule} version {one.version}: {counted}{reason}")
    return lines
