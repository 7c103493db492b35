"""Measures how long an app is away after ``kill -9`` of its driver: from the kill to the first committed cut of the
process that is started at once, and the CPU time of that process and its children until then."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from bench.harness.child import Child
from bench.harness.cpu import Cpu
from bench.harness.environment import Environment, create_topic
from bench.harness.events import EventSet
from bench.harness.generated_rules import event_rules
from bench.harness.paced import PacedLoad
from bench.harness.result import Result, spread
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from bench.spark.latency import SMALL_CUTS
from bench.spark.throughput import event_pairs_found, reject_odd_lanes
from streamcore.kafka.topics import TopicSpec, delete_topics

_RATE = 300
_RULES = 100
_CUTS = 5
_SETTLE_S = 1.0
_LIMIT_S = 300.0


def recovery(environment: Environment, kills: int, options: Mapping[str, object]) -> list[Result]:
    """Kill the driver ``kills`` times while events arrive at a steady rate, also while the app does not run."""
    topic = environment.new_name("paced")
    create_topic(environment.kafka, TopicSpec(topic, 2))
    events = EventSet(50_000, partitions=2)
    rules = event_rules(_RULES, events.users)
    app = AppUnderTest.prepare(environment, "recovery", topic, rules.control_records(), {**SMALL_CUTS, **options})
    seconds, cpu = [], []
    with PacedLoad(environment.kafka, topic, events, _RATE), Yardstick() as yardstick:
        child = app.start()
        try:
            for _ in range(kills):
                _settle(child)
                killed_s = time.monotonic()
                child.kill_leader()
                child = app.start()
                _wait_for_cuts(child, 1)
                seconds.append(child.cuts[0].at_s - killed_s)
                cpu.append(child.cuts[0].cpu)
            _settle(child)
            reject_odd_lanes(child.cuts)
        finally:
            child.kill()
    pairs = event_pairs_found(app.alerts())
    if pairs.unique().height != pairs.height:
        raise RuntimeError("an alert is on the topic twice")
    app.remove()
    delete_topics(environment.kafka, [topic])
    return [
        {
            "workload": "recovery",
            "rules": _RULES,
            "seconds": spread(seconds),
            "cpu_seconds": _median(cpu),
            "alerts": pairs.height,
            "checked": True,
            **yardstick.figures(),
        }
    ]


def _settle(child: Child) -> None:
    """Wait until the app has run for some cuts."""
    _wait_for_cuts(child, _CUTS)
    time.sleep(_SETTLE_S)


def _wait_for_cuts(child: Child, count: int) -> None:
    child.wait(lambda: len(child.cuts) >= count, _LIMIT_S)


def _median(starts: list[Cpu]) -> dict[str, float]:
    """Return the median CPU-seconds of the starts, whole and by component."""
    return {
        name: round(statistics.median(getattr(cpu, name) for cpu in starts), 2)
        for name in ("total", "driver", "jvm", "workers")
    }
