"""Runs the events of tests through the kernel in this process: the runner of `headgate rules test`.

There is one shard. The first cut has the rules and the events; the second one only advances the watermark to the end of
time, which ends every window with data. With an absence rule, the watermark starts at the first event and ends just
after the last one: a listed key is armed at the first event, and silence after the last event is not an absence. The
kernel is that of production; the decoder is the reference, which gives the same events and loads no compiler. An event
that it rejects is an error of the test.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import orjson
import polars as pl
import pyarrow as pa

from rulecore.alerts.decisions import merge_decisions
from rulecore.documents.control_keys import DECISION_POLICY_KEY
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.rule import Rule, RuleKind, canonical_json
from rulecore.documents.yaml_reader import Json
from rulecore.errors import RuleError, RuleSetError
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from rulecore.testing.rule_tests import Alert, Event
from streamcore.decode.scalar import DecodeLimits, ExtraFields, RejectedRecord, decode_json_event, make_record
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.operators.deduplication.events import for_stream
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.timestamps import load_zone
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import ALERTS, SHADOW, STATUS, Record

#: A clock later than every event of a test: the decoder rejects events far ahead of the clock.
_CLOCK_MS: Final = 4_102_444_800_000  # 2100-01-01
_END_MS: Final = 2**53


def run_in_process(
    rules: Sequence[Rule],
    streams: Mapping[str, StreamSchema],
    events: Mapping[str, Sequence[Event]],
    lists: Sequence[tuple[str, bytes]] = (),
) -> Sequence[Alert]:
    """Return the alerts of the events (see ``RuleRunner``). Raise ``RuleError`` for an invalid rule or event.

    ``lists``: control records of lists; entries expired by the time of the last event do not count.
    """
    records, _ = _run(rules, streams, events, lists, ())
    return [_object(record) for record in records if record.lane in (ALERTS, SHADOW)]


def decide_in_process(
    policy: DecisionPolicy,
    rules: Sequence[Rule],
    streams: Mapping[str, StreamSchema],
    events: Mapping[str, Sequence[Event]],
    lists: Sequence[tuple[str, bytes]] = (),
) -> Sequence[Alert]:
    """Return the decisions about the events, in their order, as JSON objects; the arguments are those of
    ``run_in_process``."""
    _, rows = _run(rules, streams, events, lists, (policy,))
    return [_object(record) for lane in rows for record in merge_decisions(to_table(lane.rows))]


def _run(
    rules: Sequence[Rule],
    streams: Mapping[str, StreamSchema],
    events: Mapping[str, Sequence[Event]],
    lists: Sequence[tuple[str, bytes]],
    policies: Sequence[DecisionPolicy],
) -> tuple[list[Record], Sequence[LaneRows]]:
    """Return the records and the parts of decisions."""
    kernel = RulesFactory(tuple(RuleStream(schema, name) for name, schema in streams.items()), is_alone=True)()
    sources = {name: number * PARTITIONS_PER_TOPIC for number, name in enumerate(streams)}
    frames = {
        name: _once(streams[name], decode_test_events(streams[name], rows, sources[name]))
        for name, rows in events.items()
        if rows
    }
    latest = {name: int(frame[EVENT_MS].to_numpy().max()) for name, frame in frames.items()}
    published = [*lists, *((rule.id, canonical_json(rule)) for rule in rules)]
    published += [(DECISION_POLICY_KEY + one.decision_policy, encode_policy(one)) for one in policies]
    control = [ControlRecord(0, i, key.encode(), value) for i, (key, value) in enumerate(published)]
    routed = {StreamKey(name, 0): frame for name, frame in frames.items()}
    begin_ms, end_ms = _watermarks(rules, frames.values())
    clock_ms = max(latest.values(), default=_CLOCK_MS)
    first = Cut(0, routed, control, clock_ms, NO_WATERMARK, begin_ms, {})
    last = Cut(0, {}, (), _CLOCK_MS, begin_ms, end_ms, latest)
    outputs = [kernel.step(first), kernel.step(last)]
    records = [record for output in outputs for record in output.records]
    _raise_unless_accepted(records)
    return records, [rows for output in outputs for rows in output.lanes]


def _watermarks(rules: Sequence[Rule], frames: Collection[pl.DataFrame]) -> tuple[int, int]:
    """Return the watermarks before and after the last cut."""
    if not frames or all(rule.kind is not RuleKind.ABSENCE for rule in rules):
        return NO_WATERMARK, _END_MS
    times = [frame[EVENT_MS].to_numpy() for frame in frames]
    return int(min(t.min() for t in times)), int(max(t.max() for t in times)) + 1


def decode_test_events(schema: StreamSchema, events: Sequence[Event], partition: int) -> pl.DataFrame:
    """Return the events of a test as physical columns. ``RuleError`` for one that is no event of the stream."""
    zone, limits = load_zone(schema.zone), DecodeLimits()
    # an event of a test is one of its stream, and its times are ISO 8601
    whole = replace(schema, when=None, fields=tuple(replace(field, pattern="") for field in schema.fields))
    rows = []
    for number, event in enumerate(events):
        record = make_record(whole, event)
        found = decode_json_event(
            whole, record, clock_ms=_CLOCK_MS, zone=zone, limits=limits, extra_fields=ExtraFields.REJECT
        )
        if not isinstance(found, tuple):
            reason = found.reason if isinstance(found, RejectedRecord) else "it is a tombstone"
            raise RuleError(f"events[{number}] is not an event of {schema.name}: {reason}")
        values = dict(zip(schema.names, found, strict=True))
        rows.append({**values, PARTITION: partition, OFFSET: number, EVENT_MS: values[schema.event_time]})
    return pl.DataFrame(pa.Table.from_pylist(rows, schema=schema.arrow))


def _once(schema: StreamSchema, events: pl.DataFrame) -> pl.DataFrame:
    """Return the events without the duplicates that the app would not use."""
    deduplication = for_stream(schema)
    return events if deduplication is None else deduplication.filter(events)


def _raise_unless_accepted(records: Sequence[Record]) -> None:
    """Raise ``RuleSetError`` if a rule or list was not accepted."""
    for record in records:
        if record.lane == STATUS and (status := _object(record))["status"] != "accepted":
            raise RuleSetError(f"{status.get('rule', status.get('list'))} is {status['status']}: {status['reason']}")


def _object(record: Record) -> Mapping[str, Json]:
    value = orjson.loads(record.value or b"{}")
    assert isinstance(value, dict)
    return value
