"""Measures the time from a rule's publication to its first alert, in ms and in cuts, at a low load and at overload.

A rule that is published while cut n runs is in cut n + 1 at the earliest, and its first alert is visible after the
commit of that cut, so 2 cuts are the least. Versions are published at random times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import orjson

from bench.harness.child import Child
from bench.harness.cpu import load_average
from bench.harness.environment import Environment, create_topic
from bench.harness.events import EventSet
from bench.harness.generated_rules import record
from bench.harness.paced import PacedLoad
from bench.harness.result import Result, spread
from bench.harness.rules_app import AppUnderTest
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.readers import Follower
from streamcore.kafka.topics import TopicSpec, delete_topics
from streamcore.wire.lanes import ALERTS

_RULE = "probe"
_LIMIT_S = 120.0


def measure_idle(environment: Environment, samples: int, warm_up_s: int, options: Mapping[str, object]) -> Result:
    """Measure at 100 events per second, all of which match."""
    topic = environment.new_name("paced")
    create_topic(environment.kafka, TopicSpec(topic, 2))
    app = AppUnderTest.prepare(environment, "propagation", topic, [_version(1, 0)], options)
    with app.start() as child, PacedLoad(environment.kafka, topic, EventSet(20_000, partitions=2), 100):
        child.wait(lambda: bool(child.cuts), 300)
        time.sleep(warm_up_s)
        result = _measure(app, child, samples, 0, lambda: True)
    app.remove()
    delete_topics(environment.kafka, [topic])
    return {"workload": "rule-latency", "load": "idle", **result}


def measure_saturated(environment: Environment, samples: int, events: int, options: Mapping[str, object]) -> Result:
    """Measure while the app reads a backlog; one event in a thousand matches."""
    wanted = EventSet(events)
    topic = environment.fill_topic(wanted)
    app = AppUnderTest.prepare(environment, "propagation", topic, [_version(1, 999_000)], options)
    with app.start() as child:
        child.wait(lambda: sum(1 for c in child.cuts if c.events) >= 2, 300)
        result = _measure(app, child, samples, 999_000, lambda: sum(c.events for c in child.cuts) < events - 400_000)
        result |= {"backlog_left": events - sum(c.events for c in child.cuts)}
    app.remove()
    return {"workload": "rule-latency", "load": "saturated", **result}


def _version(number: int, risk: int) -> tuple[str, bytes]:
    return _RULE, record(_RULE, version=number, where=f"risk >= {risk / 1e6:.6f}")


def _measure(app: AppUnderTest, child: Child, samples: int, risk: int, more: Callable[[], bool]) -> Result:
    draw, before = random.Random(3), load_average()
    began = time.monotonic()
    took_ms: list[float] = []
    took_cuts: list[float] = []
    with (
        ControlLog(app.environment.kafka, app.settings.control_topic) as control,
        Follower(app.environment.kafka, [app.settings.lane_topic(ALERTS)]) as reader,
    ):
        for version in range(2, samples + 2):
            time.sleep(draw.uniform(0.2, 1.2))
            if not more():
                break
            done = child.cuts[-1].batch
            sent_ms = time.time() * 1000
            control.publish(*_version(version, risk))
            batch, at_ms = _first_alert(reader, version)
            took_ms.append(at_ms - sent_ms)
            took_cuts.append(batch - done)
    cut_ms = [(b.at_s - a.at_s) * 1000 for a, b in pairwise(c for c in child.cuts if c.at_s >= began)]
    return {
        "samples": len(took_ms),
        "rules": 1,
        "published_to_alert_ms": spread(took_ms),
        "published_to_alert_cuts": spread(took_cuts),
        "cut_ms": spread(cut_ms),
        "load_average": [before, load_average()],
        # The oracle is the version number: no alert of a version comes before its publication.
        "checked": bool(took_ms) and min(took_cuts) >= 1,
    }


def _first_alert(reader: Follower, version: int) -> tuple[int, float]:
    """Return the batch of the first alert of that version, and the time of its append."""
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        for alert in reader.poll(50):
            body = orjson.loads(alert.value or b"{}")
            if body["version"] > version:
                raise RuntimeError(f"an alert of version {body['version']}, which is not published yet")
            if body["version"] == version:
                return int(alert.header("batch") or b"-1"), float(alert.timestamp_ms)
    raise RuntimeError(f"no alert of version {version} within {_LIMIT_S} s")
