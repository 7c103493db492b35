"""The metrics of an app: each with its kind, unit, labels and description, and with the function that reads it.

``METRICS`` has all exported metrics; ``docs/reference/metrics.md`` is generated from it.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streamcore.engine.lag import Lag
from streamcore.memory.memory_use import MemoryUse
from streamcore.outages import OUTAGES
from streamcore.telemetry.totals import NAMES, MetricTotals

#: A value of a metric, and the values of its labels in the order of ``MetricDefinition.labels``.
Sample = tuple[float, tuple[str | int, ...]]
Reader = Callable[[MetricTotals, Callable[[], Lag]], Iterable[Sample]]
_PROMETHEUS_UNITS = {"s": "_seconds", "By": "_bytes", "": ""}


class MetricKind(enum.StrEnum):
    """The kind of a metric, as OpenTelemetry and Prometheus name it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. ``unit``: OpenTelemetry's code: ``s``, ``By`` (bytes), or empty for a count.

    ``read`` returns the samples at the moment of an export. A histogram has none: it is recorded when a cut ends.
    """

    kind: MetricKind
    name: str
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    read: Reader = lambda _totals, _lag: ()

    @property
    def prometheus_name(self) -> str:
        """The name of the metric in Prometheus, which has the unit and the kind in it."""
        total = "_total" if self.kind is MetricKind.COUNTER else ""
        return f"{self.name.replace('.', '_')}{_PROMETHEUS_UNITS[self.unit]}{total}"


def _value(read: Callable[[MetricTotals], float]) -> Reader:
    return lambda totals, _lag: [(read(totals), ())]


def _by_name(read: Callable[[MetricTotals], Mapping[str, int]]) -> Reader:
    return lambda totals, _lag: [(count, (name,)) for name, count in [*read(totals).items()]]


def _by_step(read: Callable[[MetricTotals], Mapping[str, int]]) -> Reader:
    return lambda totals, _lag: [(count, _step_and_name(name)) for name, count in [*read(totals).items()]]


def _step_and_name(name: str) -> tuple[str, str]:
    step, _, metric = name.rpartition(".")
    return step, metric


def _seconds_by_name(read: Callable[[MetricTotals], Mapping[str, int]]) -> Reader:
    return lambda totals, _lag: [(us / 1_000_000, (name,)) for name, us in [*read(totals).items()]]


def _partition_delays(totals: MetricTotals, _lag: object) -> Iterable[Sample]:
    return [(ms / 1000, partition) for partition, ms in [*totals.partition_delay_ms.items()]]


def _savepoint_age(totals: MetricTotals, _lag: object) -> Iterable[Sample]:
    at_ms = totals.savepoint_at_ms
    return [] if at_ms is None else [(time.time() - at_ms / 1000, ())]


def _memory(read: Callable[[MemoryUse], int]) -> Reader:
    def samples(totals: MetricTotals, _lag: object) -> Iterable[Sample]:
        use = totals.memory()
        return [] if use is None else [(read(use), ())]

    return samples


_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
_MANY_RULES = f"The first {NAMES} rules have their names, all others together are `other`."

#: Recorded once for each phase of a cut.
CUT_DURATION = MetricDefinition(
    MetricKind.HISTOGRAM,
    "headgate.cut.duration",
    "s",
    "Time that a phase of a cut takes: `run`, `commit`, `sink <name>`, and Spark's own phases as `spark <name>`.",
    ("phase",),
)

#: Recorded once for each lane that a cut writes to.
LANE_LATENCY = MetricDefinition(
    MetricKind.HISTOGRAM,
    "headgate.lane.latency",
    "s",
    "Time from the broker's timestamp of the oldest record of a cut, in the topics that feed the lane, until the "
    "output of the cut is committed: the longest that an event took. The time that a window waits is not in it.",
    ("lane",),
)

METRICS = (
    CUT_DURATION,
    LANE_LATENCY,
    MetricDefinition(
        _COUNTER,
        "headgate.operator.busy",
        "s",
        f"Time in which a step of a stream program runs, of all shards and tasks. The first {NAMES} steps have their "
        "names, all others together are `other`.",
        ("operator",),
        _seconds_by_name(lambda t: t.busy_us),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.operator.waiting",
        "s",
        "Time of the shards in cuts in which the step does not run: it waits for its input, for other steps and for "
        "slower shards.",
        ("operator",),
        _seconds_by_name(lambda t: t.waiting_us),
    ),
    MetricDefinition(_COUNTER, "headgate.events", "", "Events that were decoded.", (), _value(lambda t: t.events)),
    MetricDefinition(
        _COUNTER, "headgate.cuts", "", "Cuts that were committed.", ("outcome",), _by_name(lambda t: t.cuts)
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.records",
        "",
        "Records and rows that a lane got; `late` and `deadletters` are lanes too.",
        ("lane",),
        _by_name(lambda t: t.lanes),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.deadletters",
        "",
        "Dead letters by their reason code.",
        ("reason",),
        _by_name(lambda t: t.reasons),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.counters",
        "",
        "Counters of operators and rules, such as rows that are late, dropped or rejected by a limit.",
        ("counter",),
        _by_name(lambda t: t.counters),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.duplicates",
        "",
        "Events of a stream with `deduplicate` that are not used, because an event with their id was: `content` is "
        "`same` if all their fields are equal to those of the event that was used, else `other`.",
        ("stream", "content"),
        _by_step(lambda t: t.duplicates),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.deduplication.ids",
        "",
        "Event ids of a stream with `deduplicate` that all shards remember.",
        ("stream",),
        _by_name(lambda t: t.event_ids),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.deduplication.state",
        "By",
        "Memory that these ids take in all shards, without those on disk.",
        ("stream",),
        _by_name(lambda t: t.event_id_bytes),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.deduplication.forgotten",
        "",
        "Event ids that a shard forgets before their horizon ends, because it reaches `max_event_ids`. Events as old "
        "as these are late from then on.",
        ("stream",),
        _by_name(lambda t: t.ids_forgotten),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.function.count",
        "",
        "Counters of functions in programs, which they make with `RuntimeContext.counter`.",
        ("step", "name"),
        _by_step(lambda t: t.function_counts),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.function.gauge",
        "",
        "Gauges of functions in programs, which they make with `RuntimeContext.gauge`: the sum over the shards.",
        ("step", "name"),
        _by_step(lambda t: t.function_gauges),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.oversized",
        "",
        "Output records that are larger than a topic takes, and are cut to fit.",
        (),
        _value(lambda t: t.oversized),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.rule.candidates",
        "",
        f"Events on which a rule is evaluated: the cost of the rule. {_MANY_RULES}",
        ("rule",),
        _by_name(lambda t: t.candidates),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.rule.matches",
        "",
        f"Events that a rule matches. {_MANY_RULES}",
        ("rule",),
        _by_name(lambda t: t.matches),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.rules.state.entries",
        "",
        "Entries of the state that rules keep in all shards, by the kind of rule; `suppressed` are the values that "
        "`suppress` keeps silent. Expired entries may count for a while.",
        ("kind",),
        _by_name(lambda t: t.rule_state_entries),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.rules.state",
        "By",
        "Size of the state that rules keep in all shards, as their budgets count it.",
        ("kind",),
        _by_name(lambda t: t.rule_state_bytes),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.rules.budget.reached",
        "",
        "Rules that go into quarantine because of a budget of state: that of the `rule`, its `group` or the `shard`.",
        ("budget",),
        _by_name(lambda t: t.budgets_reached),
    ),
    MetricDefinition(
        _COUNTER, "headgate.sink.rows", "", "Rows that a sink takes.", ("sink",), _by_name(lambda t: t.sink_rows)
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.sink.rejected",
        "",
        "Rows that the system behind a sink rejects; each becomes a dead letter.",
        ("sink",),
        _by_name(lambda t: t.sink_rejected),
    ),
    MetricDefinition(
        _COUNTER, "headgate.state.written", "By", "State that cuts change.", (), _value(lambda t: t.state_bytes)
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.state.paged",
        "",
        "Size of the tables whose keys can be on disk, with `state_memory_bytes`: `disk_rows` and `disk_bytes` on "
        "disk, with old rows until they are merged away, and about `memory_bytes` in memory.",
        ("kind",),
        _by_name(lambda t: t.cold),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.state.moves",
        "",
        "Keys that move to disk (`evicted`) and back into memory (`recalled`).",
        ("kind",),
        _by_name(lambda t: t.cold_moves),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.state.loads",
        "",
        "Shards whose state is read from storage because it is not in memory.",
        (),
        _value(lambda t: t.loaded),
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.restarts",
        "",
        "Failures after which the process starts its query again.",
        (),
        _value(lambda t: t.restarts),
    ),
    MetricDefinition(_GAUGE, "headgate.epoch", "", "Epoch of the checkpoint.", (), _value(lambda t: t.epoch)),
    MetricDefinition(_GAUGE, "headgate.batch", "", "Last batch that was committed.", (), _value(lambda t: t.batch)),
    MetricDefinition(
        _GAUGE, "headgate.marker", "", "Last batch that a sink has.", ("sink",), _by_name(lambda t: t.markers)
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.cut.clock",
        "s",
        "The machine's clock when the last cut was planned, as seconds since 1970.",
        (),
        _value(lambda t: t.cut_at_ms / 1000),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.clock.ahead",
        "s",
        "Time by which the clock of the last cut is ahead of the machine's clock; above 0 after the machine's clock "
        "was set back, and processing time stands still until the machine's clock is there.",
        (),
        _value(lambda t: t.clock_ahead_ms / 1000),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.watermark.delay",
        "s",
        "Time by which the watermark is behind the clock.",
        (),
        _value(lambda t: t.delay_ms / 1000),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.partition.watermark.delay",
        "s",
        f"Time by which the watermark of a source partition is behind the clock, for the {NAMES} partitions that are "
        "furthest behind.",
        ("topic", "partition"),
        _partition_delays,
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.lag.rows",
        "",
        "Records in the source topics that are not committed yet.",
        (),
        lambda _totals, lag: [(lag().rows, ())],
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.lag.time",
        "s",
        "Age of the oldest record that is not committed yet.",
        (),
        lambda _totals, lag: [(lag().ms / 1000, ())],
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.control.lag.rows",
        "",
        "Control records that are not committed yet; above 0 after a cut that reached `control_records_per_cut`.",
        (),
        lambda _totals, lag: [(lag().control_records, ())],
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.memory.used",
        "By",
        "Memory that the container of the driver has in use, without cache that can be dropped; none without a limit.",
        (),
        _memory(lambda use: use.used),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.memory.limit",
        "By",
        "Limit of that memory, beyond which the system ends a process: `memory_limit_bytes` or the container's.",
        (),
        _memory(lambda use: use.limit),
    ),
    MetricDefinition(
        _GAUGE,
        "headgate.dependency.unavailable",
        "s",
        "Time for which a system that the app needs has been unavailable, such as its brokers or its schema registry; "
        "none for systems that answer.",
        ("system",),
        lambda _totals, _lag: [(away.seconds, (away.dependency.name,)) for away in OUTAGES.unavailable()],
    ),
    MetricDefinition(
        _COUNTER,
        "headgate.lineage.events",
        "",
        "Lineage events that the server has (`sent`), attempts to send one that failed and are repeated (`failed`), "
        "and events that the server rejects (`rejected`), which are lost.",
        ("result",),
        _by_name(lambda t: t.lineage),
    ),
    MetricDefinition(
        _GAUGE, "headgate.savepoint.age", "s", "Time since the newest savepoint was complete.", (), _savepoint_age
    ),
)
