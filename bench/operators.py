"""Headgate's topologies beside Spark's own operators: the same job over the same events, one after the other.

Both read JSON from the broker, keep their state in RocksDB and write JSON to the broker; each side's output is compared
with the oracle. What differs is said in the results: Spark delivers at least once, its watermark is the latest event of
all partitions and drops what is late without a word, and its windows close one batch after the one that passed them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import polars as pl

from bench import operator_oracle
from bench.child import Child, CutSample
from bench.cpu import Cpu
from bench.events import EventSet
from bench.jobs import Job, Kind, changed
from bench.place import Place
from bench.result import Result
from bench.throughput import compared, refuse_odd_lanes
from bench.yardstick import Yardstick
from headgate.local import jars
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_LIMIT_S = 1_800
_COLD_SHARE = 0.25
_LANE = "results"


@dataclass(frozen=True, slots=True)
class Sides:
    """How each side runs. ``variant``: which of Spark's Python interfaces; ``spark``, ``headgate``: whether at all."""

    parallelism: int = 2
    shards: int = 4
    variant: str = "rows"
    spark: bool = True
    headgate: bool = True


def paired(place: Place, workload: str, job: Job, count: int, options: Mapping[str, object]) -> list[Result]:
    """Spark's own run, then Headgate's with the ratio. ``options``: fields of the job or of ``Sides``."""
    job = changed(job, options)
    sides = Sides(**{f.name: options.get(f.name, f.default) for f in fields(Sides)})  # type: ignore[arg-type]
    events = job.events(count)
    place.fill(events)
    results = []
    if sides.spark:
        results.append(_spark(place, workload, job, events, sides))
    if sides.headgate:
        results.append(_headgate(place, workload, job, events, sides))
    if len(results) == 2:
        results[1]["ratio_to_spark"] = _ratios(results[1], results[0])
    return results


def _ratios(one: Result, other: Result) -> Result:
    """Of CPU-seconds, as measured and with each divided by its own yardstick."""
    ratios: Result = {}
    for name in ("cpu_seconds_per_million", "cpu_seconds_per_million_steady"):
        a, b, at, bt = (one[name], other[name], one["yardstick_ms"], other["yardstick_ms"])
        if all(isinstance(value, float) and value for value in (a, b, at, bt)):
            assert isinstance(a, float) and isinstance(b, float)  # noqa: PT018 - for the types
            assert isinstance(at, float) and isinstance(bt, float)  # noqa: PT018
            ratios |= {name: round(a / b, 2), f"{name}_by_yardstick": round(a / at / (b / bt), 2)}
    return ratios


# --- the sides ------------------------------------------------------------------------------------------------------


def _spark(place: Place, workload: str, job: Job, events: EventSet, sides: Sides) -> Result:
    name = place.new_name(f"spark-{job.kind}")
    folder = place.run_folder(name)
    ensure_topics(place.kafka, [TopicSpec(name, 1)])
    library = jars.ensure(jars.JarSet.COPY, place.java, place.say)
    command = ["--bootstrap", place.kafka.bootstrap, "--source", events.topic, "--target", name]
    command += ["--checkpoint", str(folder / "checkpoint"), "--jars", str(library)]
    command += ["--job", job.to_json(), "--variant", sides.variant]
    columns = events.columns()
    latest_ms = columns["ts"].max()
    assert isinstance(latest_ms, int), "there are events"
    wanted = operator_oracle.expected(job, columns, watermark_ms=latest_ms - job.delay_ms, touching_merge=True)
    result = _run(place, "bench.spark_operators", command, folder.name, wanted, events)
    result |= _checked(place, job, name, wanted)
    delete_topics(place.kafka, [name])
    shutil.rmtree(folder, ignore_errors=True)
    variant = {"variant": sides.variant} if job.kind is Kind.PROCESS else {}
    return {"workload": workload, "side": "spark", "job": asdict(job), **variant, **result}


def _headgate(place: Place, workload: str, job: Job, events: EventSet, sides: Sides) -> Result:
    name = place.new_name(f"headgate-{job.kind}")
    folder = place.run_folder(name)
    command = ["--bootstrap", place.kafka.bootstrap, "--source", events.topic, "--name", name]
    command += ["--checkpoint", str(folder / "checkpoint"), "--jars", str(place.jars), "--job", job.to_json()]
    command += ["--parallelism", str(sides.parallelism), "--shards", str(sides.shards)]
    columns = events.columns()
    latest = columns.group_by("partition").agg(pl.col("ts").max())["ts"].min()
    assert isinstance(latest, int), "there are events"
    wanted = operator_oracle.expected(job, columns, watermark_ms=latest - job.delay_ms, touching_merge=False)
    result = _run(place, "bench.topologies", command, folder.name, wanted, events)
    result |= _checked(place, job, f"{name}.{_LANE}", wanted)
    delete_topics(place.kafka, [f"{name}.{end}" for end in (_LANE, "deadletters", "control", "markers")])
    shutil.rmtree(folder, ignore_errors=True)
    return {"workload": workload, "side": "headgate", "job": asdict(job), **result}


def _run(place: Place, module: str, command: list[str], folder: str, wanted: pl.DataFrame, events: EventSet) -> Result:
    """Run until all events have been read and all rows have come out."""
    log = place.folder / "runs" / folder / "stderr.log"
    with Yardstick() as yardstick, Child(module, command, log) as child:
        child.wait_for_events(events.events, _LIMIT_S)
        child.wait(lambda: sum(c.lane(_LANE) for c in child.cuts) >= wanted.height, 120)
        cuts = child.cuts
        figures = yardstick.figures()
    refuse_odd_lanes(cuts)
    return {"events": events.events, "keys": events.users, **_figures(child, cuts, events.events), **figures}


def _figures(child: Child, cuts: list[CutSample], events: int) -> Result:
    """As ``result.throughput``, up to the last cut that gave rows: Spark's may have had no events of its own."""
    last = max(n for n, cut in enumerate(cuts) if cut.events or cut.lane(_LANE))
    cuts, done = cuts[: last + 1], 0
    begin = end = cuts[-1]
    for cut in cuts:
        done += cut.events
        if done >= events * _COLD_SHARE:
            begin = cut
            break
    steady = sum(cut.events for cut in cuts if cut.at_s > begin.at_s)
    cpu: Cpu = end.cpu - begin.cpu
    return {
        "seconds": round(end.at_s - child.started_s, 1),
        "cpu_seconds_per_million": end.cpu.per_million(events)["total"],
        "cpu_seconds_per_million_steady": cpu.per_million(steady)["total"] if steady else None,
        "events_per_second_steady": round(steady / (end.at_s - begin.at_s)) if steady else None,
        "steady": {"events": steady, "cpu_seconds_per_million": cpu.per_million(steady) if steady else None},
        "cuts": len(cuts),
    }


def _checked(place: Place, job: Job, topic: str, wanted: pl.DataFrame) -> Result:
    got = operator_oracle.found(job, (record.value for record in scan_topic(place.kafka, topic)))
    checked = compared(got, wanted)
    return {"rows": checked["alerts"], "checked": True}
