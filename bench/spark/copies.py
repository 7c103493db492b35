"""Measures a Spark job that copies the events of the rules app, as a comparison for the figures of the app."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import orjson

from bench.harness.child import Child
from bench.harness.cpu import process_cpu_s
from bench.harness.environment import Environment
from bench.harness.events import EventSet, batches
from bench.harness.result import Result, throughput
from bench.harness.yardstick import Yardstick
from headgate.local import jars
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_PER_CUT = 200_000
_LIMIT_S = 1_800


def copy(environment: Environment, events: int, *, json: bool) -> Result:
    """Measure a copy of the events from topic to topic. ``json``: the job parses and writes JSON."""
    events_sent = EventSet(events)
    source = environment.fill_topic(events_sent)
    name = environment.new_name("copy-json" if json else "copy")
    folder = environment.run_folder(name)
    ensure_topics(environment.kafka, [TopicSpec(name, events_sent.partitions)])
    broker = process_cpu_s(environment.broker_pid)
    arguments = ["--bootstrap", environment.kafka.bootstrap, "--source", source, "--target", name]
    library = jars.ensure(jars.JarSet.COPY, environment.java, environment.print_message)
    arguments += ["--checkpoint", str(folder / "checkpoint"), "--jars", str(library), "--per-cut", str(_PER_CUT)]
    command = arguments + (["--json"] if json else [])
    with Yardstick() as yardstick, Child("bench.spark.spark_copy", command, folder / "stderr.log") as child:
        child.wait_for_events(events, _LIMIT_S)
        figures = throughput(child, events)
        broker = process_cpu_s(environment.broker_pid) - broker
    checked = _check_copy(environment, name, events_sent, _digest_json if json else zlib.crc32)
    delete_topics(environment.kafka, [name])
    return {
        "workload": "copy-json" if json else "copy",
        "events": events,
        "rules": 0,
        "keys": events_sent.users,
        **figures,
        "broker_cpu_seconds_per_million": round(broker * 1e6 / events, 2),
        **yardstick.figures(),
        **checked,
    }


def _digest_json(value: bytes) -> int:
    """Return a checksum of an event's values that does not depend on how its JSON is written."""
    event = orjson.loads(value)
    return zlib.crc32(f"{event['event_id']} {round(event['amount'] * 100)} {event['user_id']}".encode())


def _check_copy(environment: Environment, topic: str, events_sent: EventSet, digest: Callable[[bytes], int]) -> Result:
    """Raise ``RuntimeError`` unless the copy has each event once. Sums of checksums are compared: its order differs."""
    sent = sum(digest(v.encode()) for _, _, values in batches(events_sent.columns()) for v in values)
    digests = [digest(r.value or b"") for r in scan_topic(environment.kafka, topic)]
    if len(digests) != events_sent.events or sum(digests) != sent:
        raise RuntimeError(
            f"topic {topic}: the {len(digests)} records differ from the {events_sent.events} events that were sent"
        )
    return {"checked": True}
