"""Compares Headgate's topologies with Spark's operators: both run one job over one set of events.

Both read JSON from the broker, keep their state in RocksDB and write JSON to the broker; each side's output is compared
with the oracle. They differ: Spark delivers at least once, its watermark follows the latest event of all partitions, it
drops late events without a record of them, and it closes a window one batch after the batch whose watermark passed the
window's end.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields

import polars as pl

from bench.harness import operator_oracle
from bench.harness.child import Child, CutSample
from bench.harness.environment import Environment
from bench.harness.events import EventSet
from bench.harness.jobs import Job, Kind, apply_options
from bench.harness.result import Figure, Result
from bench.harness.yardstick import Yardstick
from bench.spark.throughput import compare, reject_odd_lanes
from headgate.local import jars
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics

_LIMIT_S = 1_800
#: The share of the events before the steady state: the first quarter, rounded to whole cuts.
_COLD_SHARE = 0.24
#: Seconds that the last windows may take after the last event was read.
_CLOSING_S = 120
_LANE = "results"


@dataclass(frozen=True, slots=True)
class Sides:
    """The settings of the two sides.

    ``parallelism`` and ``shards``: settings of Headgate's side. ``variant``: Spark's Python interface, ``rows`` or
    ``pandas``. ``spark`` and ``headgate``: whether the side runs.
    """

    parallelism: int = 2
    shards: int = 4
    variant: str = "rows"
    spark: bool = True
    headgate: bool = True


def compare_with_spark(
    environment: Environment, workload: str, job: Job, count: int, options: Mapping[str, object]
) -> list[Result]:
    """Measure Spark's side, then Headgate's, and add the ratios. ``options``: fields of the job or of ``Sides``."""
    job = apply_options(job, options)
    sides = Sides(**{f.name: options.get(f.name, f.default) for f in fields(Sides)})  # type: ignore[arg-type]
    events = job.events(count)
    environment.fill_topic(events)
    makers = [_spark] * sides.spark + [_headgate] * sides.headgate
    results = [_measure(environment, workload, job, events, sides, make) for make in makers]
    if job.kind is Kind.PROCESS and sides.spark:
        results[0]["variant"] = sides.variant
    if len(results) == 2:
        results[1]["ratio_to_spark"] = _ratios(results[1], results[0])
    return results


def _ratios(headgate: Result, spark: Result) -> Result:
    """Return the ratios of CPU-seconds: as measured, and with each figure divided by the yardstick of its run."""
    ratios: Result = {}
    for name in ("cpu_seconds_per_million", "cpu_seconds_per_million_steady"):
        cost, spark_cost = _float(headgate[name]), _float(spark[name])
        if cost and spark_cost:
            by_yardstick = cost / _float(headgate["yardstick_ms"]) / (spark_cost / _float(spark["yardstick_ms"]))
            ratios |= {name: round(cost / spark_cost, 2), f"{name}_by_yardstick": round(by_yardstick, 2)}
    return ratios


def _float(figure: Figure) -> float:
    return float(figure) if isinstance(figure, int | float) else 0.0


# --- the sides ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison.

    ``module`` and ``command``: the program, and its arguments beside those of both sides. ``output``: the topic of the
    results; ``other_topics``: further topics of the side. ``latest_ms``: the event time that its watermark follows when
    all events are read. ``touching_merge``: whether two events that are exactly a gap apart are in one session.
    """

    name: str
    module: str
    command: list[str]
    output: str
    other_topics: tuple[str, ...]
    latest_ms: int
    touching_merge: bool


def _spark(environment: Environment, name: str, sides: Sides, latest_ms: pl.Series) -> _Side:
    """Prepare Spark's side, whose watermark follows the partition with the latest event."""
    library = jars.ensure(jars.JarSet.COPY, environment.java, environment.print_message)
    ensure_topics(environment.kafka, [TopicSpec(name, 1)])
    command = ["--target", name, "--jars", str(library), "--variant", sides.variant]
    return _Side(
        "spark", "bench.spark.spark_operators", command, name, (), _number(latest_ms.max()), touching_merge=True
    )


def _headgate(environment: Environment, name: str, sides: Sides, latest_ms: pl.Series) -> _Side:
    """Prepare Headgate's side, whose watermark follows the partition that is furthest behind."""
    command = ["--name", name, "--jars", str(environment.jars)]
    command += ["--parallelism", str(sides.parallelism), "--shards", str(sides.shards)]
    other_topics = tuple(f"{name}.{end}" for end in ("deadletters", "control", "markers"))
    latest = _number(latest_ms.min())
    return _Side(
        "headgate", "bench.spark.topologies", command, f"{name}.{_LANE}", other_topics, latest, touching_merge=False
    )


def _number(value: object) -> int:
    assert isinstance(value, int), "there are events"
    return value


def _measure(
    environment: Environment, workload: str, job: Job, events: EventSet, sides: Sides, make: Callable[..., _Side]
) -> Result:
    """Run a side until it has read all events and written all rows, and compare the rows with the oracle."""
    columns = events.columns()
    name = environment.new_name(f"{make.__name__.strip('_')}-{job.kind}")
    side = make(environment, name, sides, columns.group_by("partition").agg(pl.col("ts").max())["ts"])
    expected = operator_oracle.expected_rows(
        job, columns, watermark_ms=side.latest_ms - job.delay_ms, touching_merge=side.touching_merge
    )
    folder = environment.run_folder(name)
    command = ["--bootstrap", environment.kafka.bootstrap, "--source", events.topic, "--job", job.to_json()]
    command += ["--checkpoint", str(folder / "checkpoint"), *side.command]
    with Yardstick() as yardstick, Child(side.module, command, folder / "stderr.log") as child:
        child.wait_for_events(events.events, _LIMIT_S)
        child.wait(lambda: sum(c.lane(_LANE) for c in child.cuts) >= expected.height, _CLOSING_S)
        cuts = child.cuts
        figures = yardstick.figures()
    reject_odd_lanes(cuts)
    rows_found = operator_oracle.read_rows(job, (record.value for record in scan_topic(environment.kafka, side.output)))
    rows = compare(rows_found, expected)["alerts"]
    delete_topics(environment.kafka, [side.output, *side.other_topics])
    shutil.rmtree(folder, ignore_errors=True)
    head: Result = {"workload": workload, "side": side.name, "job": asdict(job)}
    size: Result = {"events": events.events, "keys": events.users, "rows": rows, "checked": True}
    return {**head, **size, **_figures(child, cuts, events.events), **figures}


def _figures(child: Child, cuts: list[CutSample], events: int) -> Result:
    """Return figures as ``result.throughput`` does, up to the last cut that wrote rows.

    Spark may write rows in a batch without events.
    """
    last = max(n for n, cut in enumerate(cuts) if cut.events or cut.lane(_LANE))
    events_done = list(itertools.accumulate(cut.events for cut in cuts))
    first = next(n for n, count in enumerate(events_done) if count >= events * _COLD_SHARE)
    begin, end, steady = cuts[first], cuts[last], events_done[last] - events_done[first]
    cpu = end.cpu - begin.cpu
    return {
        "seconds": round(end.at_s - child.started_s, 1),
        "cpu_seconds_per_million": end.cpu.per_million(events)["total"],
        "cpu_seconds_per_million_steady": cpu.per_million(steady)["total"] if steady else None,
        "events_per_second_steady": round(steady / (end.at_s - begin.at_s)) if steady else None,
        "steady": {"events": steady, "cpu_seconds_per_million": cpu.per_million(steady) if steady else None},
        "cuts": last + 1,
    }
