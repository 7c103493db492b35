"""ETL, Kafka to Kafka: this app exactly once and with deduplication, beside a plain Spark job that promises nothing.

Both read JSON, know every field with its type, and write JSON. Spark's job (``spark_copy --json``) is ``from_json`` and
``to_json`` between its own source and sink: at least once, duplicates stay, what is no JSON becomes nulls. Ours checks
and maps every field, tells ids apart within an hour, keeps its state, and writes in one transaction a cut.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Mapping

import orjson

from bench.harness.child import Child
from bench.harness.cpu import of_process
from bench.harness.environment import Place
from bench.harness.events import SCHEMA, EventSet, batches
from bench.harness.result import Result, throughput
from bench.harness.yardstick import Yardstick
from bench.spark import copies
from bench.spark.throughput import refuse_odd_lanes
from headgate_etl.service import SERVICE
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import delete_topics
from streamcore.service.topics import topics_of_service

_LIMIT_S = 1_800
_HORIZON_MS = 3_600_000
_ROUTE = "clean"
_RATIOS = ("cpu_seconds_per_million", "cpu_seconds_per_million_steady")


def paired(place: Place, events: int, options: Mapping[str, object]) -> list[Result]:
    """Spark's run, then ours with the ratios. ``options``: further entries of our settings."""
    plain = copies.copy(place, events, json=True) | {"side": "spark"}
    ours = _etl(place, events, options)
    return [plain, ours | {"ratio_to_spark": _ratios(ours, plain)}]


def _ratios(one: Result, other: Result) -> Result:
    """Of CPU-seconds, as measured and with each divided by its own yardstick."""
    found: Result = {}
    for name in _RATIOS:
        mine, theirs, slow, fast = one[name], other[name], one["yardstick_ms"], other["yardstick_ms"]
        if all(isinstance(f, int | float) and f for f in (mine, theirs, slow, fast)):
            ratio = float(str(mine)) / float(str(theirs))
            by_yardstick = ratio / (float(str(slow)) / float(str(fast)))
            found |= {name: round(ratio, 2), f"{name}_by_yardstick": round(by_yardstick, 2)}
    return found


def _etl(place: Place, events: int, options: Mapping[str, object]) -> Result:
    wanted = EventSet(events)
    source, name = place.fill(wanted), place.new_name("etl")
    folder = place.run_folder(name)
    path = folder / "settings.json"
    path.write_bytes(orjson.dumps(_settings(place, name, source, str(folder / "checkpoint"), options)))
    settings = SERVICE.load_settings(path)
    broker = of_process(place.broker_pid)
    with Yardstick() as yardstick, Child("headgate_etl", ["--settings", str(path)], folder / "stderr.log") as child:
        child.wait_for_events(events, _LIMIT_S)
        figures = throughput(child, events)
        broker = of_process(place.broker_pid) - broker
    refuse_odd_lanes(child.cuts)
    checked = _checked(place, settings.lane_topic(_ROUTE), wanted)
    delete_topics(place.kafka, [spec.name for spec in topics_of_service(settings, (_ROUTE, "deadletters"))])
    shutil.rmtree(folder, ignore_errors=True)
    said: Result = {"workload": "etl", "side": "headgate", "events": events, "keys": wanted.users, **figures}
    cost = round(broker * 1e6 / events, 2)
    return said | {"broker_cpu_seconds_per_million": cost, **yardstick.figures(), **checked}


def _settings(
    place: Place, name: str, source: str, checkpoint: str, options: Mapping[str, object]
) -> dict[str, object]:
    """Every field as it is, under its own name."""
    fields = SCHEMA["fields"]
    assert isinstance(fields, dict)
    stream = {"schema_file": str(place.schema_file()), "topic": source, "map": {field: field for field in fields}}
    return {
        "app": name,
        "kafka": {"bootstrap": place.kafka.bootstrap},
        "checkpoint": checkpoint,
        "jars": str(place.jars),
        "inputs": [stream],
        "model": fields,
        "id": ["event_id"],
        "rules": {"amount-positive": "amount > 0"},
        "deduplicate": {"horizon_ms": _HORIZON_MS},
        "routes": [{"name": _ROUTE, "key": ["user_id"]}],
        **options,
    }


def _checked(place: Place, topic: str, wanted: EventSet) -> Result:
    """Check that the lane holds each event once, by a sum of checksums, because it is in another order."""
    sent = sum(_digest(v.encode()) for _, _, values in batches(wanted.columns()) for v in values)
    found = [_digest(r.value or b"") for r in scan_topic(place.kafka, topic)]
    if len(found) != wanted.events or sum(found) != sent:
        raise RuntimeError(f"topic {topic}: {len(found)} records that are not the {wanted.events} that were sent")
    return {"checked": True}


def _digest(value: bytes) -> int:
    """Return a checksum number of the value: decimals are text in one and numbers in the other."""
    event = orjson.loads(value)
    return zlib.crc32(f"{event['event_id']} {round(float(event['amount']) * 100)} {event['user_id']}".encode())
