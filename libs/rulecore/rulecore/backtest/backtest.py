"""Rules over past events: alerts that would have fired, counted by rule and compared with other versions.

Batches of one stream's events go in, in order of arrival; each is a cut, with the watermark that production would have
had. Rules per event go through the matcher of production on the whole batch; no alert is made of a match when only
counts are asked for. All other kinds go through ``RulesKernel``.

Promises: memory follows the rules' own state, not the length of the range; whatever a rule's mode and dates of effect
are, it is evaluated; a window that is open when the events end has not fired, as in production at that moment. Refuses
to know where events come from, terminals and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from rulecore.backtest.compare import VersionDiff, VersionDiffResult, reindex_rules
from rulecore.backtest.counts import RuleCounts
from rulecore.backtest.run import AlertSink, RuleRun
from rulecore.compile.overrides import as_live
from rulecore.compile.rule import CompiledRule
from rulecore.lists.store import ListStore
from streamcore.schema import EVENT_MS, PARTITION, StreamSchema
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK, Progress, WatermarkState


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Some events in order of partition and offset (``StreamSchema.arrow``), and the rejected records, by reason.

    ``ended``: source partitions that hold no more; the watermark does not wait for them.
    """

    events: pl.DataFrame
    dead: Mapping[str, int] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BacktestSide:
    """Rules to be run together. ``support``: rules that the others need (those whose scores they add), not reported."""

    rules: tuple[CompiledRule, ...]
    support: tuple[CompiledRule, ...] = ()


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """The result of a back-test. ``live`` and ``compared`` are empty without a comparison; all three are by rule id."""

    events: int
    dead: Mapping[str, int]
    late: int
    first_ms: int | None
    last_ms: int | None
    new: Mapping[str, RuleCounts]
    live: Mapping[str, RuleCounts]
    compared: Mapping[str, VersionDiffResult]


class Backtest:
    """Feed it every ``EventBatch``, then ask for the ``report``."""

    def __init__(
        self,
        schema: StreamSchema,
        topic: str,
        new: BacktestSide,
        live: BacktestSide | None = None,
        *,
        lists: ListStore | None = None,
        max_out_of_orderness_ms: int = 10_000,
        partitions: Collection[int] = (),
        alerts: AlertSink | None = None,
    ) -> None:
        """Prepare the run.

        ``lists``: those that the rules use. ``partitions``: source partitions with events in the range.
        ``alerts``: called with each alert of ``new``.
        """
        keep = live is not None
        self._new = RuleRun(schema, topic, new.rules, new.support, lists=lists, identities=keep, alerts=alerts)
        self._live = (
            None if live is None else RuleRun(schema, topic, live.rules, live.support, lists=lists, identities=keep)
        )
        self._comparison = VersionDiff(_all_ids(new, live)) if live is not None else None
        self._disorder_ms = max_out_of_orderness_ms
        self._time = WatermarkState().expect(partitions, 0)
        self._clock_ms = 0
        self._first_ms: int | None = None
        self._dead: dict[str, int] = {}
        self._events = self._late = 0

    @property
    def events(self) -> int:
        """So far."""
        return self._events

    def step(self, batch: EventBatch) -> None:
        """Take one cut in. ``RuleError`` when a rule set refuses a rule."""
        for reason, count in batch.dead.items():
            self._dead[reason] = self._dead.get(reason, 0) + count
        events = batch.events
        before = self._time.watermark_ms
        self._advance(events, batch.ended)
        if not events.height:
            return
        self._events += events.height
        self._late += int((events[EVENT_MS] < before).sum())
        moment = self._clock_ms, before, self._time.watermark_ms
        hits = self._new.step(events, *moment)
        if self._live is not None and self._comparison is not None:
            others = self._live.step(events, *moment)
            self._comparison.add(self._reindex_hits(self._new, hits), self._reindex_hits(self._live, others))

    def _reindex_hits(self, run: RuleRun, hits: pl.DataFrame) -> pl.DataFrame:
        """Return the hits with rules as indexes of the comparison's."""
        assert self._comparison is not None
        places = {rule: n for n, rule in enumerate(self._comparison.rules)}
        return reindex_rules(hits, [rule.rule.id for rule in run.rules], places)

    def _advance(self, events: pl.DataFrame, ended: Collection[int]) -> None:
        """Advance the watermark as in production, with the latest event as the clock and no idle partitions."""
        seen = events.group_by(PARTITION).agg(pl.col(EVENT_MS).max().alias("ms"), pl.len()).sort(PARTITION)
        progress = [Progress(n, ms, count, ms - self._disorder_ms) for n, ms, count in seen.iter_rows()]
        if progress:
            self._clock_ms = max(self._clock_ms, *(p.max_event_ms for p in progress))
            first = int(events[EVENT_MS].min())  # type: ignore[arg-type]
            self._first_ms = first if self._first_ms is None else min(self._first_ms, first)
        after = self._time.advance(progress, self._clock_ms, _never_idle)
        if ended and after.partitions.keys() - ended:
            over = [Progress(n, NO_WATERMARK, 0, END_OF_TIME_MS) for n in sorted(ended)]
            after = after.advance(over, self._clock_ms, _never_idle)
        self._time = after

    def report(self) -> BacktestReport:
        """Return the report of the events so far."""
        return BacktestReport(
            events=self._events,
            dead=dict(self._dead),
            late=self._late,
            first_ms=self._first_ms,
            last_ms=self._clock_ms if self._events else None,
            new=self._new.counts(),
            live=self._live.counts() if self._live is not None else {},
            compared=self._comparison.results() if self._comparison is not None else {},
        )


def _never_idle(_partition: int) -> int:
    return 2**62


def _all_ids(*sides: BacktestSide) -> tuple[str, ...]:
    return tuple(sorted({rule.rule.id for side in sides for rule in side.rules}))


#: OnProgress how many events have been taken in.
OnProgress = Callable[[int], None]

__all__: Sequence[str] = (
    "AlertSink",
    "Backtest",
    "BacktestReport",
    "BacktestSide",
    "EventBatch",
    "OnProgress",
    "as_live",
)
