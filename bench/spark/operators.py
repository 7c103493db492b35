"""Headgate's topologies beside Spark's own operators: the same job over the same events, one after the other.

Both read JSON from the broker, keep their state in RocksDB and write JSON to the broker; each side's output is compared
with the oracle. What differs is said in the results: Spark delivers at least once, its watermark is the latest event of
all partitions and drops what is late without a word, and its windows close one batch after the one that passed them.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields

import polars as pl

from bench.harness import operator_oracle
from bench.harness.child import Child, CutSample
from bench.harness.environment import Place
from bench.harness.events import EventSet
from bench.harness.jobs import Job, Kind, changed
from bench.harness.result import Figure, Result
from bench.harness.yardstick import Yardstick
from bench.spark.throughput import compared, refuse_odd_lanes
from headgate.local import jars
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_LIMIT_S = 1_800
#: A quarter, if that is a whole number of cuts.
_COLD_SHARE = 0.24
#: How long the last windows may take after the last event was read.
_CLOSING_S = 120
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
    makers = [_spark] * sides.spark + [_headgate] * sides.headgate
    results = [_measured(place, workload, job, events, sides, make) for make in makers]
    if job.kind is Kind.PROCESS and sides.spark:
        results[0]["variant"] = sides.variant
    if len(results) == 2:
        results[1]["ratio_to_spark"] = _ratios(results[1], results[0])
    return results


def _ratios(one: Result, other: Result) -> Result:
    """Of CPU-seconds, as measured and with each divided by its own yardstick."""
    ratios: Result = {}
    for name in ("cpu_seconds_per_million", "cpu_seconds_per_million_steady"):
        mine, theirs = _float(one[name]), _float(other[name])
        if mine and theirs:
            by_yardstick = mine / _float(one["yardstick_ms"]) / (theirs / _float(other["yardstick_ms"]))
            ratios |= {name: round(mine / theirs, 2), f"{name}_by_yardstick": round(by_yardstick, 2)}
    return ratios


def _float(figure: Figure) -> float:
    return float(figure) if isinstance(figure, int | float) else 0.0


# --- the sides ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """``command``: what its module gets beside what both get. ``output``: the topic of the results, ``others``: its
    further ones. ``latest_ms``: the event time that its watermark follows, at the end of the events."""

    name: str
    module: str
    command: list[str]
    output: str
    others: tuple[str, ...]
    latest_ms: int
    touching_merge: bool


def _spark(place: Place, name: str, sides: Sides, latest_ms: pl.Series) -> _Side:
    """Its watermark follows the partition that is furthest."""
    library = jars.ensure(jars.JarSet.COPY, place.java, place.say)
    ensure_topics(place.kafka, [TopicSpec(name, 1)])
    command = ["--target", name, "--jars", str(library), "--variant", sides.variant]
    return _Side(
        "spark", "bench.spark.spark_operators", command, name, (), _number(latest_ms.max()), touching_merge=True
    )


def _headgate(place: Place, name: str, sides: Sides, latest_ms: pl.Series) -> _Side:
    """Its watermark follows the partition that is furthest behind."""
    command = ["--name", name, "--jars", str(place.jars)]
    command += ["--parallelism", str(sides.parallelism), "--shards", str(sides.shards)]
    others = tuple(f"{name}.{end}" for end in ("deadletters", "control", "markers"))
    latest = _number(latest_ms.min())
    return _Side("headgate", "bench.spark.topologies", command, f"{name}.{_LANE}", others, latest, touching_merge=False)


def _number(value: object) -> int:
    assert isinstance(value, int), "there are events"
    return value


def _measured(
    place: Place, workload: str, job: Job, events: EventSet, sides: Sides, make: Callable[..., _Side]
) -> Result:
    """Run until all events have been read and all rows have come out, and compare those with the oracle."""
    columns = events.columns()
    name = place.new_name(f"{make.__name__.strip('_')}-{job.kind}")
    side = make(place, name, sides, columns.group_by("partition").agg(pl.col("ts").max())["ts"])
    wanted = operator_oracle.expected(
        job, columns, watermark_ms=side.latest_ms - job.delay_ms, touching_merge=side.touching_merge
    )
    folder = place.run_folder(name)
    command = ["--bootstrap", place.kafka.bootstrap, "--source", events.topic, "--job", job.to_json()]
    command += ["--checkpoint", str(folder / "checkpoint"), *side.command]
    with Yardstick() as yardstick, Child(side.module, command, folder / "stderr.log") as child:
        child.wait_for_events(events.events, _LIMIT_S)
        child.wait(lambda: sum(c.lane(_LANE) for c in child.cuts) >= wanted.height, _CLOSING_S)
        cuts = child.cuts
        figures = yardstick.figures()
    refuse_odd_lanes(cuts)
    found = operator_oracle.found(job, (record.value for record in scan_topic(place.kafka, side.output)))
    rows = compared(found, wanted)["alerts"]
    delete_topics(place.kafka, [side.output, *side.others])
    shutil.rmtree(folder, ignore_errors=True)
    said: Result = {"workload": workload, "side": side.name, "job": asdict(job)}
    size: Result = {"events": events.events, "keys": events.users, "rows": rows, "checked": True}
    return {**said, **size, **_figures(child, cuts, events.events), **figures}


def _figures(child: Child, cuts: list[CutSample], events: int) -> Result:
    """As ``result.throughput``, up to the last cut that gave rows: Spark's may have had no events of its own."""
    last = max(n for n, cut in enumerate(cuts) if cut.events or cut.lane(_LANE))
    done = list(itertools.accumulate(cut.events for cut in cuts))
    first = next(n for n, count in enumerate(done) if count >= events * _COLD_SHARE)
    begin, end, steady = cuts[first], cuts[last], done[last] - done[first]
    cpu = end.cpu - begin.cpu
    return {
        "seconds": round(end.at_s - child.started_s, 1),
        "cpu_seconds_per_million": end.cpu.per_million(events)["total"],
        "cpu_seconds_per_million_steady": cpu.per_million(steady)["total"] if steady else None,
        "events_per_second_steady": round(steady / (end.at_s - begin.at_s)) if steady else None,
        "steady": {"events": steady, "cpu_seconds_per_million": cpu.per_million(steady) if steady else None},
        "cuts": last + 1,
    }
