"""The totals of an app's counters since its process started, and the latest value of its gauges.

Each cut adds its report; the threads of the exporters read. Every dictionary has at most ``NAMES``
names (of operators, lanes, sinks, reasons or rules), and counts further names together as ``other``. Of the source
partitions, the ``NAMES`` that are furthest behind are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from streamcore.kernel import BUDGET_REACHED, BUSY_US, COLD, COLD_MOVES, DEDUPLICATION, STATE_BYTES, STATE_ENTRIES
from streamcore.keyed.runtime_context import USER_COUNTER, USER_GAUGE
from streamcore.memory.memory_use import MemoryUse

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

#: The most names that a dictionary has before it uses ``OTHER``.
NAMES = 200
OTHER = "other"


def _no_memory() -> MemoryUse | None:
    return None


@dataclass(slots=True)
class MetricTotals:
    """The numbers behind the metrics of one app.

    ``cold``: rows and bytes of paged tables. ``cold_moves``: keys that moved to disk and back.
    ``*_ms``: milliseconds; ``cut_at_ms`` and ``savepoint_at_ms`` since 1970. ``loaded``: shards whose state was read
    from storage. ``counters``: counters of operators and rules. ``busy_us``, ``waiting_us``: microseconds of each step
    of a topology. ``duplicates``: by stream and ``same`` or ``other`` content. ``event_ids``, ``event_id_bytes``: what
    the deduplication of a stream remembers. ``batch``: -1 before the first cut. ``memory``: reads the memory in use,
    None without a limit. ``lineage``: events of OpenLineage by their result.
    """

    events: int = 0
    cuts: dict[str, int] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    busy_us: dict[str, int] = field(default_factory=dict)
    waiting_us: dict[str, int] = field(default_factory=dict)
    sink_rows: dict[str, int] = field(default_factory=dict)
    sink_rejected: dict[str, int] = field(default_factory=dict)
    markers: dict[str, int] = field(default_factory=dict)
    oversized: int = 0
    loaded: int = 0
    restarts: int = 0
    epoch: int = 0
    batch: int = -1
    state_bytes: int = 0
    candidates: dict[str, int] = field(default_factory=dict)
    matches: dict[str, int] = field(default_factory=dict)
    rule_state_entries: dict[str, int] = field(default_factory=dict)
    rule_state_bytes: dict[str, int] = field(default_factory=dict)
    budgets_reached: dict[str, int] = field(default_factory=dict)
    cold: dict[str, int] = field(default_factory=dict)
    cold_moves: dict[str, int] = field(default_factory=dict)
    function_counts: dict[str, int] = field(default_factory=dict)
    function_gauges: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    ids_forgotten: dict[str, int] = field(default_factory=dict)
    event_ids: dict[str, int] = field(default_factory=dict)
    event_id_bytes: dict[str, int] = field(default_factory=dict)
    delay_ms: int = 0
    partition_delay_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    cut_at_ms: int = 0
    clock_ahead_ms: int = 0
    savepoint_at_ms: int | None = None
    memory: Callable[[], MemoryUse | None] = _no_memory
    lineage: Mapping[str, int] = field(default_factory=dict)

    def add(self, report: CutReport) -> None:
        """Add the counters of a cut, and set the gauges to its values."""
        self.events += report.events
        self.oversized += report.oversized
        self.loaded += report.shards_loaded
        add_all(self.cuts, {str(report.outcome): 1})
        add_all(self.lanes, report.lanes)
        add_all(self.reasons, report.reasons)
        self._add_counters(report.counters)
        self._add_busy_time(report)
        self.state_bytes += report.state_bytes
        add_all(self.sink_rows, {name: sink.rows for name, sink in report.sinks.items()})
        add_all(self.sink_rejected, {name: sink.rejected for name, sink in report.sinks.items()})
        self.epoch, self.batch = report.epoch, report.batch
        self.cut_at_ms = report.wall_ms
        self.clock_ahead_ms = report.clock_ahead_ms
        # Kafka's own marker is in the transaction of every cut.
        self.markers |= dict.fromkeys(("kafka", *report.sinks), report.batch)
        self.partition_delay_ms = _furthest_behind(report)
        # Before the first event there is no watermark, so there is no delay.
        self.delay_ms = max(0, report.wall_ms - report.watermark_ms) if report.watermark_ms > 0 else 0

    def _add_busy_time(self, report: CutReport) -> None:
        """Add the time in which each step ran, and the rest of the time that the shards had for the cut."""
        prefix = f"{BUSY_US}."
        busy = {name.removeprefix(prefix): us for name, us in report.counters.items() if name.startswith(prefix)}
        add_all(self.busy_us, busy)
        whole_us = report.run_ms * 1000 * report.shards
        add_all(self.waiting_us, {step: max(0, whole_us - us) for step, us in busy.items()})

    def _add_counters(self, counters: Mapping[str, int]) -> None:
        """Add the counters of operators and rules.

        ``candidates.<rule>@<version>`` and ``matches.<rule>@<version>`` are metrics with the rule as their label, and
        the sizes of state are gauges with the kind of state as their label, and so are those of cold state. Those of
        users' functions have step and name as their labels (``runtime_context``); all other names are labels of one
        metric.
        """
        kinds = (
            *(
                "candidates",
                "matches",
                STATE_ENTRIES,
                STATE_BYTES,
                BUDGET_REACHED,
                BUSY_US,
                COLD,
                COLD_MOVES,
                USER_COUNTER,
                USER_GAUGE,
                DEDUPLICATION,
                OTHER,
            ),
        )
        by_kind: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
        for name, count in counters.items():
            kind, _, rule = name.partition(".")
            by_rule = by_kind.get(kind) if rule else None
            if by_rule is None:
                by_kind[OTHER][name] = count
            else:
                by_rule[rule] = count
        add_all(self.candidates, by_kind["candidates"])
        add_all(self.matches, by_kind["matches"])
        add_all(self.budgets_reached, by_kind[BUDGET_REACHED])
        add_all(self.function_counts, by_kind[USER_COUNTER])
        self.function_gauges |= dict([*by_kind[USER_GAUGE].items()][:NAMES])
        add_all(self.counters, by_kind[OTHER])
        self._add_deduplication(by_kind[DEDUPLICATION])
        add_all(self.cold_moves, by_kind[COLD_MOVES])
        self.cold = by_kind[COLD] or self.cold
        self.rule_state_entries = by_kind[STATE_ENTRIES] or self.rule_state_entries  # a cut that ran before has none
        self.rule_state_bytes = by_kind[STATE_BYTES] or self.rule_state_bytes

    def _add_deduplication(self, counts: Mapping[str, int]) -> None:
        """Add the counts of the deduplication of each stream: ``<stream>.<name>``."""
        for stream in sorted({name.partition(".")[0] for name in counts}):
            of = {name.partition(".")[2]: count for name, count in counts.items() if name.startswith(f"{stream}.")}
            other = of["other_content"]
            add_all(self.duplicates, {f"{stream}.same": of["duplicates"] - other, f"{stream}.other": other})
            add_all(self.ids_forgotten, {stream: of["evicted"] + of["not_remembered"]})
            add_all(self.counters, {f"{DEDUPLICATION}.{stream}.{name}": of[name] for name in ("late", "without_id")})
            self.event_ids[stream], self.event_id_bytes[stream] = of["ids"], of["bytes"]


def _furthest_behind(report: CutReport) -> dict[tuple[str, str], int]:
    """Return the delay of a partition's watermark, in milliseconds, by topic and partition; 0 if it is not behind."""
    delays = {
        (topic, partition): max(0, report.wall_ms - watermark_ms)
        for topic, partitions in report.watermarks.items()
        for partition, watermark_ms in partitions.items()
    }
    return dict(nlargest(NAMES, delays.items(), key=itemgetter(1)))


def add_all(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add the counts to the totals of their names; beyond ``NAMES`` names, to the total of ``OTHER``."""
    for name, count in counts.items():
        total = name if name in totals or len(totals) < NAMES else OTHER
        totals[total] = totals.get(total, 0) + count
