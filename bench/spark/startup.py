"""Measures the time from a start to its first alert: the first start, a second start, and a start after kill -9."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.harness.child import Child
from bench.harness.environment import Environment, create_topic
from bench.harness.events import EventSet
from bench.harness.generated_rules import event_rules
from bench.harness.paced import PacedLoad
from bench.harness.result import Result
from bench.harness.rules_app import AppUnderTest
from bench.harness.yardstick import Yardstick
from bench.spark.latency import SMALL_CUTS
from bench.spark.throughput import event_pairs_found, reject_odd_lanes
from streamcore.kafka.readers import Follower, Record
from streamcore.kafka.topics import TopicSpec, delete_topics
from streamcore.wire.lanes import ALERTS

_RATE = 1_000
_SETTLE_S = 10
_LIMIT_S = 300.0


def startup(environment: Environment, options: Mapping[str, object]) -> list[Result]:
    """Measure the three starts while events arrive at a steady rate, also while the app does not run."""
    topic = environment.new_name("paced")
    create_topic(environment.kafka, TopicSpec(topic, 2))
    events = EventSet(50_000, partitions=2)
    rules = event_rules(1_000, events.users)
    app = AppUnderTest.prepare(environment, "startup", topic, rules.control_records(), {**SMALL_CUTS, **options})
    results: list[Result] = []
    with (
        PacedLoad(environment.kafka, topic, events, _RATE),
        Follower(environment.kafka, [app.settings.lane_topic(ALERTS)]) as reader,
    ):
        for start_kind in ("first start", "second start", "start after kill -9"):
            with Yardstick() as yardstick, app.start() as child:
                seconds, first = _wait_for_alert(reader, child)
                time.sleep(_SETTLE_S)
                cuts, cpu = child.cuts, child.cpu
                if start_kind == "second start":
                    child.kill()
            reject_odd_lanes(cuts)
            _drain_alerts(reader)
            results.append(
                {
                    "workload": "startup",
                    "what": start_kind,
                    "rules": 1_000,
                    "first_cut_s": round(cuts[0].at_s - child.started_s, 1),
                    "first_alert_s": round(seconds, 1),
                    "cpu_seconds": round(cpu.total, 1),
                    "alert": str((first.key or b"").decode()),
                    **yardstick.figures(),
                }
            )
    alert_pairs = event_pairs_found(app.alerts())
    no_duplicates = alert_pairs.unique().height == alert_pairs.height
    if not no_duplicates:
        raise RuntimeError("an alert is on the topic twice")
    app.remove()
    delete_topics(environment.kafka, [topic])
    return [r | {"checked": no_duplicates} for r in results]


def _wait_for_alert(reader: Follower, child: Child) -> tuple[float, Record]:
    """Return the first alert that a reader of committed records gets, and the seconds to it from the process start."""
    end = child.started_s + _LIMIT_S
    while time.monotonic() < end:
        if records := reader.poll(50):
            return time.monotonic() - child.started_s, records[0]
        if child.process.poll() is not None:
            raise RuntimeError(f"the app ended; see {child.log}")
    raise RuntimeError(f"no alert within {_LIMIT_S} s; see {child.log}")


def _drain_alerts(reader: Follower) -> None:
    """Read the remaining alerts of the ended app, so that the next alert is one of the next app."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        reader.poll(100)
