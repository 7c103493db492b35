"""Measures the time from event to alert at a steady rate, as the difference of their append times at the broker.

Readers of committed records see an alert only when its transaction ends, some milliseconds after its append time.
``visible_ms`` is measured at such a reader, so it includes the delays of the reader.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import orjson

from bench.harness import generated_rules as rules
from bench.harness import rules_oracle as oracle
from bench.harness.child import Child, CutSample
from bench.harness.cpu import process_cpu_s
from bench.harness.environment import APPEND_TIME, Environment, create_topic
from bench.harness.events import EventSet
from bench.harness.paced import PacedLoad
from bench.harness.result import Result, phases, spread
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from bench.spark.throughput import compare, event_pairs_found, reject_odd_lanes
from headgate.demo.stack import PARALLELISM, SHARDS
from streamcore.kafka.readers import Follower, Record, scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics
from streamcore.wire.lanes import ALERTS

_PARTITIONS = 2
#: The settings of `headgate up`: at this rate the fixed cost of a task dominates.
SMALL_CUTS: Mapping[str, object] = {"parallelism": PARALLELISM, "shards": SHARDS}
_SETTLE_S = 60


def latency(
    environment: Environment, rate: int, warm_up_s: int, measured_s: int, rule_count: int, options: Mapping[str, object]
) -> Result:
    """Measure event rules, which one event in a hundred matches, at ``rate`` events per second."""
    events = EventSet(100_000, partitions=_PARTITIONS)
    rule_set = rules.event_rules(rule_count, events.users)
    topic = environment.new_name("paced")
    create_topic(environment.kafka, TopicSpec(topic, _PARTITIONS, config=APPEND_TIME))
    app = AppUnderTest.prepare(environment, "latency", topic, rule_set.control_records(), {**SMALL_CUTS, **options})
    with Yardstick() as yardstick, app.start() as child:
        child.wait(lambda: bool(child.cuts), 300)
        with PacedLoad(environment.kafka, topic, events, rate) as load, _alert_reader(app) as reader:
            received = _watch(reader, warm_up_s)
            begin_ms, cpu, broker = time.time() * 1000, child.cpu, process_cpu_s(environment.broker_pid)
            received += _watch(reader, measured_s)
            end_ms, cpu, broker = time.time() * 1000, child.cpu - cpu, process_cpu_s(environment.broker_pid) - broker
        child.wait_for_events(load.sent, _SETTLE_S)
    appended = {(r.partition, r.offset): r.timestamp_ms for r in scan_topic(environment.kafka, topic)}
    alerts = app.alerts()
    reject_odd_lanes(child.cuts)
    checked = compare(event_pairs_found(alerts), oracle.event_pairs(load.columns(), rule_set))
    delays = _delays(alerts, appended, begin_ms, end_ms)
    visible = _delays([_with_receive_time(r, at_ms) for r, at_ms in received], appended, begin_ms, end_ms)
    app.remove()
    delete_topics(environment.kafka, [topic])
    cuts = [c for c in child.cuts if begin_ms <= c.at_ms <= end_ms]
    return {
        "workload": "latency",
        "events": load.sent,
        "rules": rule_count,
        "keys": events.users,
        "events_per_second": rate,
        "latency_ms": spread(delays),
        "visible_ms": spread(visible),
        "cpu_seconds_per_million": cpu.per_million(rate * measured_s),
        "cores_used": round(cpu.total / measured_s, 2),
        "broker_cores_used": round(broker / measured_s, 2),
        "load_behind_ms": round(load.behind_s * 1000),
        **cut_figures(child, cuts),
        **yardstick.figures(),
        **checked,
    }


def cut_figures(child: Child, cuts: Sequence[CutSample]) -> Result:
    """Return the number of cuts, the median time of each phase, and the CPU time per cut in milliseconds."""
    cpu = cuts[-1].cpu - cuts[0].cpu if len(cuts) > 1 else child.cpu
    each = max(1, len(cuts) - 1)
    costs = {"total": cpu.total, "driver": cpu.driver, "jvm": cpu.jvm, "workers": cpu.workers}
    return {
        "batches": len(cuts),
        "fixed_cost_ms": phases(child, cuts),
        "cpu_ms_per_cut": {name: round(seconds * 1000 / each, 1) for name, seconds in costs.items()},
    }


def _alert_reader(app: AppUnderTest) -> Follower:
    return Follower(app.environment.kafka, [app.settings.lane_topic(ALERTS)])


def _watch(reader: Follower, seconds: float) -> list[tuple[Record, float]]:
    """Read alerts for ``seconds``. Return each with the epoch milliseconds at which the reader received it."""
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        records = reader.poll(50)
        now_ms = time.time() * 1000
        found += [(r, now_ms) for r in records]
    return found


def _with_receive_time(record: Record, at_ms: float) -> Record:
    """Return the record with the time of its arrival at the reader in place of its timestamp."""
    return Record(record.topic, record.partition, record.offset, round(at_ms), record.key, record.value)


def _delays(
    alerts: Sequence[Record], appended: Mapping[tuple[int, int], int], begin_ms: float, end_ms: float
) -> list[float]:
    """Return the milliseconds from the append of an event to that of its alert, for events between the two times."""
    delays = []
    for alert in alerts:
        source = orjson.loads(alert.value or b"{}")["source"]
        event_ms = appended[source["partition"], source["offset"]]
        if begin_ms <= event_ms < end_ms:
            delays.append(float(alert.timestamp_ms - event_ms))
    return delays
