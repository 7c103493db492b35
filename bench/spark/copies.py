"""Measures a Spark job that copies the events of the rules app, as a scale for the figures of the app."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import orjson

from bench.harness.child import Child
from bench.harness.cpu import of_process
from bench.harness.environment import Place
from bench.harness.events import EventSet, batches
from bench.harness.result import Result, throughput
from bench.harness.yardstick import Yardstick
from headgate.local import jars
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_PER_CUT = 200_000
_LIMIT_S = 1_800


def copy(place: Place, events: int, *, json: bool) -> Result:
    """Measure a copy of the events from topic to topic. ``json``: the job parses and writes JSON."""
    events_sent = EventSet(events)
    source = place.fill(events_sent)
    name = place.new_name("copy-json" if json else "copy")
    folder = place.run_folder(name)
    ensure_topics(place.kafka, [TopicSpec(name, events_sent.partitions)])
    broker = of_process(place.broker_pid)
    arguments = ["--bootstrap", place.kafka.bootstrap, "--source", source, "--target", name]
    library = jars.ensure(jars.JarSet.COPY, place.java, place.say)
    arguments += ["--checkpoint", str(folder / "checkpoint"), "--jars", str(library), "--per-cut", str(_PER_CUT)]
    command = arguments + (["--json"] if json else [])
    with Yardstick() as yardstick, Child("bench.spark.spark_copy", command, folder / "stderr.log") as child:
        child.wait_for_events(events, _LIMIT_S)
        figures = throughput(child, events)
        broker = of_process(place.broker_pid) - broker
    checked = _checked(place, name, events_sent, _digest_json if json else zlib.crc32)
    delete_topics(place.kafka, [name])
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


def _checked(place: Place, topic: str, events_sent: EventSet, digest: Callable[[bytes], int]) -> Result:
    """Check that the copy holds each event once, by a sum of checksums, because the copy is in another order."""
    sent = sum(digest(v.encode()) for _, _, values in batches(events_sent.columns()) for v in values)
    digests = [digest(r.value or b"") for r in scan_topic(place.kafka, topic)]
    if len(digests) != events_sent.events or sum(digests) != sent:
        raise RuntimeError(
            f"topic {topic}: {len(digests)} records that are not the {events_sent.events} that were sent"
        )
    return {"checked": True}
