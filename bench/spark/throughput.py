"""Measures the cost per million events of a backlog, with event rules and with windowed rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
import polars as pl

from bench.harness import generated_rules as rules
from bench.harness import rules_oracle as oracle
from bench.harness.child import CutSample
from bench.harness.cpu import process_cpu_s
from bench.harness.environment import Environment
from bench.harness.events import EventSet
from bench.harness.result import Result, phases, throughput
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from streamcore.kafka.readers import Record
from streamcore.wire.lanes import DEAD_LETTERS, LATE

_LIMIT_S = 3_600


def measure_event_rules(
    environment: Environment,
    events: int,
    rule_count: int,
    options: Mapping[str, object],
    stream: Mapping[str, object] | None = None,
    *,
    with_context: bool = False,
) -> Result:
    """Measure event rules. ``options``: further settings of the app. ``stream``: further entries of the stream file.
    ``with_context``: of the events."""
    events_sent = EventSet(events, with_context=with_context)
    topic = environment.fill_topic(events_sent)
    rule_set = rules.event_rules(rule_count, events_sent.users)
    app = AppUnderTest.prepare(environment, f"event{rule_count}", topic, rule_set.control_records(), options, stream)
    result = _run(app, events_sent)
    app.raise_if_rejected()
    expected = oracle.event_pairs(events_sent.columns(), rule_set)
    checked = compare(event_pairs_found(app.alerts()), expected)
    app.remove()
    return {"workload": "per-event", "rules": rule_count, **result, **checked}


def measure_window_rules(
    environment: Environment,
    events: int,
    rule_count: int,
    options: Mapping[str, object],
    aggregates: Sequence[rules.WindowAggregate] = rules.FIVE,
) -> Result:
    """Measure rules over sliding windows of an hour. A million events are an hour of 100,000 users."""
    events_sent = EventSet(events, span_ms=max(1, events * 3_600_000 // 1_000_000))
    topic = environment.fill_topic(events_sent)
    totals = oracle.window_totals(events_sent.columns(), aggregates)
    rules_per_aggregate, hits = rule_count // len(aggregates), rules.HITS / len(aggregates)
    rule_list = rules.window_rules(
        {aggregate: oracle.bounds(totals, aggregate.column, rules_per_aggregate, hits) for aggregate in aggregates}
    )
    app = AppUnderTest.prepare(environment, "windowed", topic, rules.window_control_records(rule_list), options)
    result = _run(app, events_sent)
    app.raise_if_rejected()
    expected = oracle.window_firings(totals, rule_list)
    checked = compare(window_firings_found(app.alerts()), expected)
    app.remove()
    return {"workload": "windowed", "rules": len(rule_list), "aggregates": len(aggregates), **result, **checked}


def _run(app: AppUnderTest, events_sent: EventSet) -> Result:
    broker = process_cpu_s(app.environment.broker_pid)
    with Yardstick() as yardstick, app.start() as child:
        child.wait_for_events(events_sent.events, _LIMIT_S)
        figures = throughput(child, events_sent.events)
        broker = process_cpu_s(app.environment.broker_pid) - broker
    cuts = child.cuts
    reject_odd_lanes(cuts)
    return {
        "events": events_sent.events,
        "keys": events_sent.users,
        **figures,
        "broker_cpu_seconds_per_million": round(broker * 1e6 / events_sent.events, 2),
        "phases_ms": phases(child, [c for c in cuts if c.events][1:]),
        "state_bytes_per_cut": max((int(str(c.report["state_bytes"])) for c in cuts), default=0),
        **yardstick.figures(),
    }


def reject_odd_lanes(cuts: Sequence[CutSample]) -> None:
    """Raise ``RuntimeError`` if the app wrote dead letters or late records."""
    odd = {lane: n for lane in (DEAD_LETTERS, LATE) if (n := sum(c.lane(lane) for c in cuts))}
    if odd:
        raise RuntimeError(f"records on lanes that should be empty: {odd}")


def event_pairs_found(alerts: Sequence[Record]) -> pl.DataFrame:
    """Return rule, partition and offset of each alert of an event rule."""
    bodies = [orjson.loads(a.value or b"{}") for a in alerts]
    return pl.DataFrame(
        {
            "rule": [int(b["rule"].rsplit("-", 1)[1]) for b in bodies],
            "partition": [b["source"]["partition"] for b in bodies],
            "offset": [b["source"]["offset"] for b in bodies],
        },
        schema={"rule": pl.Int64, "partition": pl.Int64, "offset": pl.Int64},
    )


def window_firings_found(alerts: Sequence[Record]) -> pl.DataFrame:
    """Return rule, user and last pane of each alert of a windowed rule."""
    bodies = [orjson.loads(a.value or b"{}") for a in alerts]
    return pl.DataFrame(
        {
            "rule": [b["rule"] for b in bodies],
            "user": [int(b["key"]["user_id"][1:]) for b in bodies],
            "pane": [b["window"]["end_ms"] // rules.PANE_MS - 1 for b in bodies],
        },
        schema={"rule": pl.String, "user": pl.Int64, "pane": pl.Int64},
    )


def compare(found: pl.DataFrame, expected: pl.DataFrame) -> Result:
    """Raise ``RuntimeError``, with the differences, unless both frames contain equal rows, each once."""
    missing, unexpected = (
        expected.join(found, on=expected.columns, how="anti"),
        found.join(expected, on=expected.columns, how="anti"),
    )
    repeated = found.height - found.unique().height
    expected_twice = expected.height - expected.unique().height
    if missing.height or unexpected.height or repeated or expected_twice:
        raise RuntimeError(
            f"the output is wrong: {missing.height} missing, {unexpected.height} not expected, {repeated} twice "
            f"({expected_twice} in the oracle), of {expected.height}\n{missing.head()}\n{unexpected.head()}"
        )
    return {"alerts": found.height, "checked": True}
