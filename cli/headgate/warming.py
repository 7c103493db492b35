"""Warm start of a rule: counts what its new aggregates have missed, and sends it to the app as a fill.

The app says on the status topic from which offsets on a version counts what. Everything before them is counted here, by
the code of production, from the topic's history or from files. Promises: with the topic as source the result is exact,
whatever the app reads meanwhile. Refuses to judge files: they must hold what came before, and no event twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl

from headgate.backtest_sources import Range, count_events, file_batches, parquet_files, topic_batches
from headgate.backtesting import Progress
from headgate.errors import InputError
from headgate.history import read_history
from headgate.publishing import AppTopics, Change, Note, Published, publish_in_steps
from headgate.rulebook import load_streams
from rulecore.compiled import CompiledRule
from rulecore.control_keys import STAGED_KEY, subject_of
from rulecore.fills import Collector, fill_records
from rulecore.lists.columns import with_list_columns
from rulecore.members import rows_column
from streamcore.kafka.ends import Ends
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import EVENT_MS


@dataclass(frozen=True, slots=True)
class Missing:
    """Aggregates of a version that began together. ``counts_from``: by partition, the offset."""

    since_ms: Mapping[str, int]
    counts_from: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class History:
    """Where the history is: ``parquet``, or a topic (None: of the stream's name). ``start_ms``: where it begins."""

    topic: str | None
    start_ms: int
    now_ms: int
    parquet: Path | None = None


@dataclass(frozen=True, slots=True)
class Warmed:
    """``events``: that were read. ``answer``: what the app said to the fill; None when it did not in time."""

    rule: str
    version: int
    events: int
    aggregates: int
    published: Published


def warm(
    kafka: KafkaSettings,
    topics: AppTopics,
    rule_id: str,
    history: History,
    streams: Path | None,
    note: Note,
    wait_ms: int,
    progress: Progress,
) -> list[Warmed]:
    """Fill the newest version of a rule that counts: the one on trial, or the live one."""
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
        collector, events = Collector(rule, schema), 0
        total, batches = _batches(kafka, history, missing, rule, streams)
        with progress(f"warm {rule_id}", total) as told:
            for count, frame in batches:
                some = frame.filter(pl.col(EVENT_MS) >= history.start_ms)
                collector.add(with_list_columns(some, rule.list_columns, contents))
                events += count
                told(events)
        records = fill_records(collector, history.start_ms, missing.since_ms, STAGED_KEY)
        changes = [Change(k, v, subject_of(k)[1], rule.rule.version) for k, v in records]
        sent = publish_in_steps(kafka, topics, changes, note, wait_ms)
        done.append(Warmed(rule_id, rule.rule.version, events, len(missing.since_ms), sent[-1]))
    return done


def _missing(kafka: KafkaSettings, topics: AppTopics, rule: CompiledRule) -> list[Missing]:
    """What the app last said of each of the rule's aggregates; those that began at the same place together."""
    last: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
    records = read_topic(kafka, topics.status)
    for record in sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset)):
        warming = orjson.loads(record.value or b"{}").get("warming")
        if warming is not None:
            place = tuple(sorted((int(p), int(o)) for p, o in warming["counts_from"].items()))
            last |= {name: (since, place) for name, since in warming["since_ms"].items()}
    names = [spec.column for spec in rule.aggregates]
    rows = [name for name in last if name.startswith("rows_")]
    together: dict[tuple[tuple[int, int], ...], dict[str, int]] = {}
    for name in [*names, *rows]:
        if name in last and (name in names or last[name][1] in together):
            together.setdefault(last[name][1], {})[name] = last[name][0]
    if not together:
        raise InputError(
            f"app {topics.app} has not said from where on {rule.rule.id} version {rule.rule.version} counts: its "
            "aggregates were there before, or no event had come yet; there is nothing to fill"
        )
    own = {*names, rows_column(rule)}
    return [Missing({n: s for n, s in since.items() if n in own}, dict(place)) for place, since in together.items()]


def _batches(
    kafka: KafkaSettings, history: History, missing: Missing, rule: CompiledRule, streams: Path | None
) -> tuple[int, Iterator[tuple[int, pl.DataFrame]]]:
    """How many there are, and frames of events with their number."""
    schema = load_streams(streams)[rule.rule.on]
    if history.parquet is not None:
        files = parquet_files(history.parquet)
        found = ((count, batch.events) for count, batch in file_batches(files, schema, history.now_ms))
        return count_events(files), found
    before = _before(kafka, history.topic or schema.name, history.start_ms, missing)
    return before.records, ((n, batch.events) for n, batch in topic_batches(kafka, before, schema, history.now_ms))


def _before(kafka: KafkaSettings, topic: str, start_ms: int, missing: Missing) -> Range:
    """From the first record of the time to where the app began to count."""
    ends = Ends(kafka, [topic])
    first, start, last = ends.first(), ends.at(start_ms), ends.last()
    stop = {place: min(missing.counts_from.get(place[1], 0), last[place]) for place in last}
    begin = {place: min(max(start[place], first[place]), stop[place]) for place in last}
    if lost := [place for place in last if first[place] > 0 and first[place] >= start[place] and stop[place]]:
        oldest = ", ".join(f"{name}-{partition}" for name, partition in sorted(lost))
        raise InputError(f"{oldest}: the topic no longer holds what came at --from; choose a later time, or --parquet")
    return Range(topic, begin, stop)


def said(done: Sequence[Warmed]) -> list[str]:
    """Lines for a person."""
    lines = []
    for one in done:
        answer = one.published.answer
        status = "no answer" if answer is None else answer.status
        reason = "" if answer is None or answer.reason is None else f": {answer.reason}"
        counted = f"{one.aggregates} aggregates from {one.events} events"
        lines.append(f"{status:10} {one.rule} version {one.version}: {counted}{reason}")
    return lines
