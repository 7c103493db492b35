"""Measures a sequence rule in the whole app: three failed logins and then a large purchase, in unordered events.

Users, events and rule are those of ``bench.kernels.sequences``, as JSON of the benchmark's eleven fields in four
partitions. The last event of each partition is a minute later than all others, so that all sequences end. The events of
each alert are compared with those that a plain loop over each user's events finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import polars as pl

from bench.harness.child import CutSample, number
from bench.harness.cpu import process_cpu_s
from bench.harness.environment import Environment, Load, create_topic
from bench.harness.events import STATUSES, STREAM, TYPES, EventSet, batches
from bench.harness.result import Result, throughput
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from bench.kernels import sequences as model
from bench.spark.throughput import reject_odd_lanes
from streamcore.kafka.readers import Record
from streamcore.kafka.topics import TopicSpec, delete_topics

_LIMIT_S, _PARTITIONS, _AFTER_MS = 1_800, 4, 60_000
_RULE = "failed-then-large"
#: By ``model.FAILED``, ``OK``, ``PAYMENT``, ``OTHER``.
_TYPES = [TYPES.index(name) for name in ("login", "login", "payment", "view")]
_STATUS = [STATUSES.index(name) for name in ("failed", "ok", "ok", "ok")]


def sequences(environment: Environment, count: int, options: Mapping[str, object]) -> Result:
    """Measure a backlog of ``count`` events. ``options``: further settings of the app."""
    events = model.events(count=count)
    columns = _columns(events)
    topic = environment.new_name("sequences")
    _fill(environment, topic, columns)
    control = model.rule(_RULE, model.NEXT_MS // 1_000, STREAM)
    app = AppUnderTest.prepare(environment, "sequences", topic, [(_RULE, control)], options)
    broker = process_cpu_s(environment.broker_pid)
    with Yardstick() as yardstick, app.start() as child:
        child.wait_for_events(columns.height, _LIMIT_S)
        figures = throughput(child, columns.height)
        broker = process_cpu_s(environment.broker_pid) - broker
    reject_odd_lanes(child.cuts)
    app.raise_if_rejected()
    checked = _check_alerts(app.alerts(), events, columns)
    app.remove()
    delete_topics(environment.kafka, [topic])
    return {
        "workload": "sequences",
        "events": columns.height,
        "keys": model.USERS,
        "disorder": {"share": model.DISORDERED, "up_to_ms": model.DISORDER_MS},
        **figures,
        "broker_cpu_seconds_per_million": round(broker * 1e6 / columns.height, 2),
        "state": _state([c for c in child.cuts if c.events]),
        **yardstick.figures(),
        **checked,
    }


def _columns(events: model.Events) -> pl.DataFrame:
    """Return columns as ``EventSet.columns`` does, with the fields that the rule reads taken from ``events``.

    Each partition gets one more event at its end.
    """
    count = len(events.user)
    frame = EventSet(count + _PARTITIONS, partitions=_PARTITIONS).columns()
    last_ms, ends = int(events.event_ms.max()) + _AFTER_MS, np.arange(_PARTITIONS)
    kind = np.concatenate([events.kind, np.full(_PARTITIONS, model.OTHER)])
    user = pl.Series(np.concatenate([events.user, ends]), dtype=pl.Int32)
    placed = frame.with_columns(
        ts=pl.Series(np.concatenate([events.event_ms, np.full(_PARTITIONS, last_ms)])),
        user=user,
        type=pl.Series(np.array(_TYPES)[kind], dtype=pl.Int8),
        status=pl.Series(np.array(_STATUS)[kind], dtype=pl.Int8),
        amount=pl.Series(np.concatenate([events.cents, np.zeros(_PARTITIONS, np.int64)]), dtype=pl.Int32),
        partition=user % _PARTITIONS,
    ).drop("offset")
    return placed.with_columns(offset=pl.int_range(pl.len(), dtype=pl.Int64).over("partition"))


def _fill(environment: Environment, topic: str, columns: pl.DataFrame) -> None:
    create_topic(environment.kafka, TopicSpec(topic, _PARTITIONS))
    load = Load(environment.kafka, topic)
    for partitions, keys, values in batches(columns):
        load.send(partitions, keys, values)
    load.close()


def _state(cuts: Sequence[CutSample]) -> Result:
    """Return the state bytes that a cut writes, and the most stored events and begun sequences."""
    counted = [c.report["counted"] for c in cuts]
    max_stored = {
        name: max(number(c, f"sequence.{name}") for c in counted if isinstance(c, dict) and c) for name in _STORED
    }
    written = [number(c.report, "state_bytes") for c in cuts]
    return {"bytes_written_most": max(written), "bytes_written_last": written[-1], "most_kept": max_stored}


_STORED = ("events", "partials")


def _check_alerts(alerts: Sequence[Record], events: model.Events, columns: pl.DataFrame) -> Result:
    """Raise ``RuntimeError`` unless each alert has the events of one match of the oracle, and each match one alert."""
    partition, offset = columns["partition"].to_list(), columns["offset"].to_list()
    expected = {tuple((partition[n], offset[n]) for n in match) for match in model.expected_matches(events)}
    alert_events = [orjson.loads(alert.value or b"{}")["events"] for alert in alerts]
    found = [tuple((event["partition"], event["offset"]) for event in members) for members in alert_events]
    missing, unexpected = expected - set(found), set(found) - expected
    if missing or unexpected or len(set(found)) != len(found):
        raise RuntimeError(f"wrong: {len(missing)} missing, {len(unexpected)} unexpected, {len(found)} alerts")
    return {"alerts": len(found), "checked": True}
