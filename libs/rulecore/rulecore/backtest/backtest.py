"""A back-test: evaluates rules on past events, counts their hits by rule, and compares them with the live versions.

The caller passes the events of one stream, or of the streams of a union, in order of arrival, cut by cut. Each cut has
the watermark that it would have had in production.
``rulecore.backtest.run`` divides the rules between matcher and kernel.

Memory grows with the state of the rules, not with the number of events. Every rule is evaluated, whatever its mode and
its dates of effect are. A window that is still open when the events end has not fired, as in production at that moment.
The module knows no source of events, no terminal and no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from rulecore.backtest.compare import VersionDiff, VersionDiffResult, reindex_rules
from rulecore.backtest.counts import RuleCounts
from rulecore.backtest.decisions import DecisionCounter, DecisionCounts
from rulecore.backtest.run import AlertCallback, BacktestRun
from rulecore.compile.overrides import as_live
from rulecore.compile.rule import CompiledRule
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.lists.store import ListStore
from rulecore.streams import RuleInput
from streamcore.operators.deduplication.events import for_stream
from streamcore.schema import EVENT_MS, PARTITION
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress, WatermarkState


@dataclass(frozen=True, slots=True)
class EventBatch:
    """The events of one cut by stream (``StreamSchema.arrow``), each in order of partition and offset.

    ``events`` has every stream of the back-test. ``dead_letters``: the number of records that are no events, by reason.
    ``ended``: source partitions that hold no further events; the watermark does not wait for them.
    """

    events: Mapping[str, pl.DataFrame]
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BacktestSide:
    """The rules of one side of a back-test. ``signal_rules``: further rules, whose alerts the score rules of
    ``rules`` add up. They are not reported. ``policy``: what decides about the events, by ``rules``; ``on_decision``:
    called with each of its decisions, of the new side alone."""

    rules: tuple[CompiledRule, ...]
    signal_rules: tuple[CompiledRule, ...] = ()
    policy: DecisionPolicy | None = None
    on_decision: AlertCallback | None = None


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """The result of a back-test. ``new``, ``live`` and ``compared`` are by rule id; the last two need a comparison.

    ``events``: events processed, ``late`` of them behind the watermark; ``duplicates`` of them are not used, as the
    stream declares. ``dead_letters``: records that were no events,
    by reason. ``first_ms`` and ``last_ms``: the earliest and the latest event time, in epoch milliseconds.
    ``decisions``: None without a policy.
    """

    events: int
    dead_letters: Mapping[str, int]
    late: int
    first_ms: int | None
    last_ms: int | None
    new: Mapping[str, RuleCounts]
    live: Mapping[str, RuleCounts]
    compared: Mapping[str, VersionDiffResult]
    duplicates: int = 0
    decisions: DecisionCounts | None = None


class Backtest:
    """Runs one back-test: call ``step`` with every ``EventBatch``, then ``report``."""

    def __init__(
        self,
        source: RuleInput,
        new: BacktestSide,
        live: BacktestSide | None = None,
        *,
        lists: ListStore | None = None,
        max_out_of_orderness_ms: int = 10_000,
        partitions: Collection[int] = (),
        on_alert: AlertCallback | None = None,
        summed: str | None = None,
    ) -> None:
        """Create the runs of both sides.

        ``source``: the input of the rules. ``live``: the rules to compare with, None for no comparison. ``lists``: the
        lists that the rules use. ``partitions``: source partitions with events in the range; the watermark waits for
        each. ``on_alert``: called with each alert of those rules of ``new`` that have ``then.alert``.
        ``summed``: the column that is added up for each move between outcomes; ``RuleSetError`` if it is no number.
        """
        compare = live is not None
        self._decisions = (
            None
            if new.policy is None
            else DecisionCounter(source, new.policy, None if live is None else live.policy, summed)
        )
        self._new = BacktestRun(
            source,
            new.rules,
            new.signal_rules,
            lists=lists,
            match_identities=compare,
            on_alert=on_alert,
            policy=new.policy,
            on_decision=new.on_decision,
        )
        self._live = (
            None
            if live is None
            else BacktestRun(
                source, live.rules, live.signal_rules, lists=lists, match_identities=compare, policy=live.policy
            )
        )
        self._comparison = VersionDiff(_all_ids(new, live)) if live is not None else None
        self._max_out_of_orderness_ms = max_out_of_orderness_ms
        self._time = WatermarkState().expect(partitions, 0)
        self._clock_ms = 0
        self._first_ms: int | None = None
        self._dead_letters: dict[str, int] = {}
        self._events = self._late = self._duplicates = 0
        self._deduplication = {
            one.schema.name: deduplication
            for one in source.streams
            if (deduplication := for_stream(one.schema)) is not None
        }

    @property
    def events(self) -> int:
        """The number of events processed so far."""
        return self._events

    def step(self, batch: EventBatch) -> None:
        """Process one cut. A cut without events only counts the dead letters and moves the watermark.

        Raises ``RuleSetError`` if the kernel rejects a rule.
        """
        for reason, count in batch.dead_letters.items():
            self._dead_letters[reason] = self._dead_letters.get(reason, 0) + count
        events = batch.events
        watermark_ms = self._time.watermark_ms
        self._advance_watermark(events, batch.ended)
        if not (count := sum(frame.height for frame in events.values())):
            return
        self._events += count
        events = {name: self._without_duplicates(name, frame, watermark_ms) for name, frame in events.items()}
        self._late += sum(int((frame[EVENT_MS] < watermark_ms).sum()) for frame in events.values())
        times = self._clock_ms, watermark_ms, self._time.watermark_ms
        new_hits = self._new.step(events, *times)
        if self._live is not None and self._comparison is not None:
            live_hits = self._live.step(events, *times)
            self._comparison.add(self._reindex_hits(self._new, new_hits), self._reindex_hits(self._live, live_hits))
        if self._decisions is not None and (decided := self._new.decided()) is not None:
            self._decisions.add(events, decided, None if self._live is None else self._live.decided())

    def _without_duplicates(self, stream: str, events: pl.DataFrame, watermark_ms: int) -> pl.DataFrame:
        """Return the events that rules see: those that the deduplication of the stream, if it has one, lets pass."""
        deduplication = self._deduplication.get(stream)
        if deduplication is None:
            return events
        passed = deduplication.filter(events, watermark_ms, self._time.watermark_ms)
        counts = deduplication.operator.metrics()
        self._duplicates += counts["duplicates"]
        self._late += counts["late"]
        return passed

    def _reindex_hits(self, run: BacktestRun, hits: pl.DataFrame) -> pl.DataFrame:
        """Return the hits of a run, with ``rule`` as an index of the comparison's rules."""
        assert self._comparison is not None
        target_indexes = {rule: n for n, rule in enumerate(self._comparison.rules)}
        return reindex_rules(hits, [rule.rule.id for rule in run.rules], target_indexes)

    def _advance_watermark(self, frames: Mapping[str, pl.DataFrame], ended: Collection[int]) -> None:
        """Advance the watermark as in production, with the latest event time as the clock and no idle partitions."""
        events = pl.concat([frame.select(PARTITION, EVENT_MS) for frame in frames.values()])
        by_partition = events.group_by(PARTITION).agg(pl.col(EVENT_MS).max().alias("ms"), pl.len()).sort(PARTITION)
        progress = [
            Progress(n, ms, count, ms - self._max_out_of_orderness_ms) for n, ms, count in by_partition.iter_rows()
        ]
        if progress:
            self._clock_ms = max(self._clock_ms, *(p.max_event_ms for p in progress))
            first = int(events[EVENT_MS].min())  # type: ignore[arg-type]
            self._first_ms = first if self._first_ms is None else min(self._first_ms, first)
        after = self._time.advance(progress, self._clock_ms, _never_idle)
        if ended and after.partitions.keys() - ended:
            end_of_time = [Progress(n, NO_WATERMARK, 0, END_OF_TIME_MS) for n in sorted(ended)]
            after = after.advance(end_of_time, self._clock_ms, _never_idle)
        self._time = after

    def report(self) -> BacktestReport:
        """Return the report of the events so far."""
        return BacktestReport(
            events=self._events,
            dead_letters=dict(self._dead_letters),
            late=self._late,
            first_ms=self._first_ms,
            last_ms=self._clock_ms if self._events else None,
            new=self._new.counts(),
            live=self._live.counts() if self._live is not None else {},
            compared=self._comparison.results() if self._comparison is not None else {},
            duplicates=self._duplicates,
            decisions=None if self._decisions is None else self._decisions.counts(),
        )


def _never_idle(_partition: int) -> int:
    """Return a time, in milliseconds, after which a partition counts as idle: never."""
    return 2**62


def _all_ids(*sides: BacktestSide) -> tuple[str, ...]:
    """Return the ids of the rules of the sides, each once, sorted."""
    return tuple(sorted({rule.rule.id for side in sides for rule in side.rules}))


__all__: Sequence[str] = (
    "AlertCallback",
    "Backtest",
    "BacktestReport",
    "BacktestSide",
    "EventBatch",
    "as_live",
)
