"""Figures reported so far, as plain numbers: totals since the start, and the latest of each value without a total.

Added to in the cut, so it is a few additions to dictionaries; read by exporters' threads. Every dictionary is bounded:
names come from operators, lanes, sinks and reasons, of which an app has few, and beyond ``NAMES`` of a kind they are
counted together as ``other``. Of source partitions those are kept that are furthest behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

NAMES = 200
OTHER = "other"


@dataclass(slots=True)
class MetricTotals:
    """Of one app, since its process started."""

    events: int = 0
    cuts: dict[str, int] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    sink_rows: dict[str, int] = field(default_factory=dict)
    sink_refused: dict[str, int] = field(default_factory=dict)
    markers: dict[str, int] = field(default_factory=dict)
    oversized: int = 0
    loaded: int = 0
    restarts: int = 0
    epoch: int = 0
    batch: int = -1
    state_bytes: int = 0
    candidates: dict[str, int] = field(default_factory=dict)
    matches: dict[str, int] = field(default_factory=dict)
    delay_ms: int = 0
    partition_delay_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    cut_at_ms: int = 0
    savepoint_at_ms: int | None = None

    def add(self, report: CutReport) -> None:
        """Add the counters of a cut."""
        self.events += report.events
        self.oversized += report.oversized
        self.loaded += report.shards_loaded
        add_all(self.cuts, {str(report.outcome): 1})
        add_all(self.lanes, report.lanes)
        add_all(self.reasons, report.reasons)
        self._add_counted(report.counters)
        self.state_bytes += report.state_bytes
        add_all(self.sink_rows, {name: sink.rows for name, sink in report.sinks.items()})
        add_all(self.sink_refused, {name: sink.refused for name, sink in report.sinks.items()})
        self.epoch, self.batch = report.epoch, report.batch
        self.cut_at_ms = report.clock_ms
        # Kafka's own marker is in the transaction of every cut.
        self.markers |= dict.fromkeys(("kafka", *report.sinks), report.batch)
        self.partition_delay_ms = _furthest_behind(report)
        # Before the first event there is no watermark, and nothing that is late.
        self.delay_ms = max(0, report.clock_ms - report.watermark_ms) if report.watermark_ms > 0 else 0

    def _add_counted(self, counted: Mapping[str, int]) -> None:
        """Add the counts of rules, ``<kind>.<rule>@<version>``: two counters that every rule has, under its name."""
        by_kind: dict[str, dict[str, int]] = {"candidates": {}, "matches": {}, OTHER: {}}
        for name, count in counted.items():
            kind, _, rule = name.partition(".")
            named = by_kind.get(kind) if rule else None
            if named is None:
                by_kind[OTHER][name] = count
            else:
                named[rule] = count
        add_all(self.candidates, by_kind["candidates"])
        add_all(self.matches, by_kind["matches"])
        add_all(self.counted, by_kind[OTHER])


def _furthest_behind(report: CutReport) -> dict[tuple[str, str], int]:
    """By topic and partition, how far its watermark is behind the clock. One that has ended is not behind."""
    delays = {
        (topic, partition): max(0, report.clock_ms - watermark_ms)
        for topic, partitions in report.watermarks.items()
        for partition, watermark_ms in partitions.items()
    }
    return dict(nlargest(NAMES, delays.items(), key=itemgetter(1)))


def add_all(totals: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add by name, with the names that are too many as one."""
    for name, count in counts.items():
        known = name if name in totals or len(totals) < NAMES else OTHER
        totals[known] = totals.get(known, 0) + count
