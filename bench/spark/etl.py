"""Compares the etl app, Kafka to Kafka, with a Spark job that only copies.

Both read JSON, know every field with its type, and write JSON. Spark's job (``spark_copy --json``) is ``from_json`` and
``to_json`` between its own source and sink: it delivers at least once, passes duplicates, and writes nulls for invalid
JSON. The etl app checks and maps every field, removes duplicates within an hour, stores its state, and writes each cut
in one transaction.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping

import orjson

from bench.harness.child import Child
from bench.harness.cpu import process_cpu_s
from bench.harness.environment import Environment
from bench.harness.events import SCHEMA, EventSet, batches
from bench.harness.result import Result, throughput
from bench.harness.yardstick import Yardstick
from bench.spark import copies
from bench.spark.throughput import reject_odd_lanes
from headgate_etl.service import SERVICE
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import delete_topics
from streamcore.service.topics import topics_of_service

_LIMIT_S = 1_800
_HORIZON_MS = 3_600_000
_ROUTE = "clean"
_RATIOS = ("cpu_seconds_per_million", "cpu_seconds_per_million_steady")


def compare_with_spark(environment: Environment, events: int, options: Mapping[str, object]) -> list[Result]:
    """Measure Spark's job, then the etl app, and add the ratios. ``options``: further settings of the app."""
    spark = copies.copy(environment, events, json=True) | {"side": "spark"}
    ours = _etl(environment, events, options)
    return [spark, ours | {"ratio_to_spark": _ratios(ours, spark)}]


def _ratios(headgate: Result, spark: Result) -> Result:
    """Return the ratios of CPU-seconds: as measured, and with each figure divided by the yardstick of its run."""
    ratios: Result = {}
    for name in _RATIOS:
        cost, spark_cost, yardstick, spark_yardstick = (
            headgate[name],
            spark[name],
            headgate["yardstick_ms"],
            spark["yardstick_ms"],
        )
        if all(isinstance(figure, int | float) and figure for figure in (cost, spark_cost, yardstick, spark_yardstick)):
            ratio = float(str(cost)) / float(str(spark_cost))
            by_yardstick = ratio / (float(str(yardstick)) / float(str(spark_yardstick)))
            ratios |= {name: round(ratio, 2), f"{name}_by_yardstick": round(by_yardstick, 2)}
    return ratios


def _etl(environment: Environment, events: int, options: Mapping[str, object]) -> Result:
    events_sent = EventSet(events)
    source, name = environment.fill_topic(events_sent), environment.new_name("etl")
    folder = environment.run_folder(name)
    path = folder / "settings.json"
    path.write_bytes(orjson.dumps(_settings(environment, name, source, str(folder / "checkpoint"), options)))
    settings = SERVICE.load_settings(path)
    broker = process_cpu_s(environment.broker_pid)
    with (
        Yardstick() as yardstick,
        Child("headgate_etl", ["--settings", str(path), "--reports"], folder / "stderr.log") as child,
    ):
        child.wait_for_events(events, _LIMIT_S)
        figures = throughput(child, events)
        broker = process_cpu_s(environment.broker_pid) - broker
    reject_odd_lanes(child.cuts)
    checked = _check_output(environment, settings.lane_topic(_ROUTE), events_sent)
    delete_topics(environment.kafka, [spec.name for spec in topics_of_service(settings, (_ROUTE, "deadletters"))])
    shutil.rmtree(folder, ignore_errors=True)
    head: Result = {"workload": "etl", "side": "headgate", "events": events, "keys": events_sent.users, **figures}
    cost = round(broker * 1e6 / events, 2)
    return head | {"broker_cpu_seconds_per_million": cost, **yardstick.figures(), **checked}


def _settings(
    environment: Environment, name: str, source: str, checkpoint: str, options: Mapping[str, object]
) -> dict[str, object]:
    """Return the app's settings, which map every field to a field of its name."""
    fields = SCHEMA["fields"]
    assert isinstance(fields, dict)
    stream = {"schema_file": str(environment.schema_file()), "topic": source, "map": {field: field for field in fields}}
    return {
        "app": name,
        "kafka": {"bootstrap": environment.kafka.bootstrap},
        "checkpoint": checkpoint,
        "jars": str(environment.jars),
        "inputs": [stream],
        "model": fields,
        "id": ["event_id"],
        "rules": {"amount-positive": "amount > 0"},
        "deduplicate": {"horizon_ms": _HORIZON_MS},
        "routes": [{"name": _ROUTE, "key": ["user_id"]}],
        **options,
    }


def _check_output(environment: Environment, topic: str, events_sent: EventSet) -> Result:
    """Raise ``RuntimeError`` unless the lane has each event once. Sums of checksums are compared: its order differs."""
    sent = sum(_digest(v.encode()) for _, _, values in batches(events_sent.columns()) for v in values)
    digests = [_digest(r.value or b"") for r in scan_topic(environment.kafka, topic)]
    if len(digests) != events_sent.events or sum(digests) != sent:
        raise RuntimeError(
            f"topic {topic}: the {len(digests)} records differ from the {events_sent.events} events that were sent"
        )
    return {"checked": True}


def _digest(value: bytes) -> int:
    """Return a checksum of an event's values. Decimals may be text (in the source) or numbers (in the output)."""
    event = orjson.loads(value)
    return zlib.crc32(f"{event['event_id']} {round(float(event['amount']) * 100)} {event['user_id']}".encode())
