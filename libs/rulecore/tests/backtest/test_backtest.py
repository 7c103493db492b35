"""Back-tests: counts equal a plain loop's, comparisons equal sets of alerts, however the events are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import orjson
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.backtest.backtest import Backtest, BacktestReport, BacktestSide, EventBatch, as_live
from rulecore.backtest.run import BacktestRun
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.watermark import NO_WATERMARK

MINUTE = 60_000
START = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "decimal(12,2)"},
    }
)
SOURCE = RuleInput.of_stream(SCHEMA, "pay")


@dataclass(frozen=True)
class Event:
    """``cents``: the amount; ``second``: after START, not descending within a partition."""

    partition: int
    second: int
    user: str | None
    cents: int | None


def rule(rule_id: str, version: int = 1, **entries: object) -> CompiledRule:
    document = {
        "id": rule_id,
        "version": version,
        "owner": "me",
        "on": "pay",
        "then": {"severity": "low", "message": "{user}"},
        **entries,
    }
    return compile_rule(as_live(Rule.model_validate(document)), {"pay": SCHEMA}, RuleLimits())


def large(above: int, version: int = 1, **entries: object) -> CompiledRule:
    return rule("large", version, where=f"amount > {above}", **entries)


def burst(least: int, version: int = 1, **entries: object) -> CompiledRule:
    within = {"tumbling": "1m"}
    having = f"count(*) >= {least}"
    return rule("burst", version, where="amount > 0", group_by=["user"], within=within, having=having, **entries)


def frame(events: Sequence[Event]) -> pl.DataFrame:
    """In order of partition and offset."""
    offsets: dict[int, int] = {}
    rows = []
    for event in events:
        offset = offsets[event.partition] = offsets.get(event.partition, -1) + 1
        ms = START + event.second * 1000
        rows.append((ms, event.user, event.cents, event.partition, offset, ms))
    types = {
        "ts": pl.Int64,
        "user": pl.String,
        "amount": pl.Int64,
        PARTITION: pl.Int32,
        OFFSET: pl.Int64,
        EVENT_MS: pl.Int64,
    }
    return pl.DataFrame(rows, schema=types, orient="row")


def run(
    events: Sequence[Event],
    new: Sequence[CompiledRule],
    live: Sequence[CompiledRule] | None = None,
    cuts: Sequence[int] = (),
    alerts: list[bytes] | None = None,
) -> BacktestReport:
    """Run a back-test over the events, in cuts of these sizes."""
    other = None if live is None else BacktestSide(tuple(live))
    sink = None if alerts is None else alerts.append
    partitions = {event.partition for event in events}
    job = Backtest(
        SOURCE,
        BacktestSide(tuple(new)),
        other,
        max_out_of_orderness_ms=5_000,
        partitions=partitions,
        on_alert=sink,
    )
    whole = frame(events)
    for start, end in pairwise([0, *sorted(cuts), whole.height]):
        job.step(EventBatch({"pay": whole[start:end].sort(PARTITION, OFFSET)}))
    return job.report()


STREAMS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(["a", "b", None]), st.sampled_from([None, -1, 0, 50, 150, 250])),
    max_size=30,
).map(lambda rows: [Event(0, s, u, c) for (s, u, c) in _ascending(rows)])


def _ascending(rows: list[tuple[int, str | None, int | None]]) -> list[tuple[int, str | None, int | None]]:
    second, found = 0, []
    for step, user, cents in rows:
        second += step
        found.append((second, user, cents))
    return found


def large_ones(events: Sequence[Event], above: int) -> set[int]:
    """Numbers of the events that the rule ``large`` is about."""
    return {n for n, e in enumerate(events) if e.cents is not None and e.cents > 100 * above}


def bursts(events: Sequence[Event], least: int) -> set[tuple[str | None, int]]:
    """User and minute of the windows that the rule ``burst`` fires in."""
    counts: dict[tuple[str | None, int], int] = {}
    for event in events:
        if event.cents is not None and event.cents > 0:
            place = event.user, event.second // 60
            counts[place] = counts.get(place, 0) + 1
    return {place for place, count in counts.items() if count >= least}


@settings(max_examples=100, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 30), max_size=3), st.booleans())
def test_a_back_test_finds_the_counts_and_differences_of_a_plain_loop(
    events: list[Event], cuts: list[int], wanted: bool
) -> None:
    alerts: list[bytes] | None = [] if wanted else None
    cuts = [cut for cut in cuts if cut <= len(events)]
    report = run(events, [large(1, 2), burst(2, 5)], [large(2), burst(3)], cuts, alerts)
    new, live = (large_ones(events, 1), large_ones(events, 2)), (bursts(events, 2), bursts(events, 3))
    wanted_sets: dict[str, tuple[set[Any], set[Any]]] = {"large": new, "burst": live}
    for name, (one, other) in wanted_sets.items():
        compared, mine = report.compared[name], report.new[name]
        assert (mine.hits, report.live[name].hits) == (len(one), len(other))
        assert (compared.both, compared.only_new, compared.only_live) == (
            len(one & other),
            len(one - other),
            len(other - one),
        )
    assert report.new["large"].keys == len({events[n].user for n in new[0]})
    assert report.new["burst"].keys == len({user for user, _ in live[0]})
    times = [START + events[n].second * 1000 for n in new[0]]
    assert (report.new["large"].first_ms, report.new["large"].last_ms) == (
        min(times, default=None),
        max(times, default=None),
    )
    assert report.events == len(events)
    if alerts is not None:
        found = [orjson.loads(alert)["rule"] for alert in alerts]
        assert (found.count("large"), found.count("burst")) == (len(new[0]), len(live[0]))


def test_a_back_test_evaluates_a_rule_whatever_its_mode_and_dates() -> None:
    events = [Event(0, 0, "a", 500)]
    for entries in ({"mode": "paused"}, {"mode": "draft"}, {"effective": {"from": "2090-01-01T00:00:00Z"}}):
        assert run(events, [large(1, **entries)]).new["large"].hits == 1


def test_a_window_that_is_open_at_the_end_does_not_fire() -> None:
    early = [Event(0, second, "a", 100) for second in range(3)]
    assert run(early, [burst(2, emit="final")]).new["burst"].hits == 0
    assert run([*early, Event(0, 64, "a", 100)], [burst(2, emit="final")]).new["burst"].hits == 0
    assert run([*early, Event(0, 65, "a", 100)], [burst(2, emit="final")]).new["burst"].hits == 1


def test_a_window_that_began_before_the_first_event_counts_as_warming() -> None:
    events = [Event(0, second, "a", 100) for second in (30, 31, 70, 71)]
    report = run(events, [burst(2)])
    assert (report.new["burst"].hits, report.new["burst"].incomplete) == (2, 1)


def test_only_event_rules_evaluate_late_events() -> None:
    events = [Event(0, 0, "a", 100), Event(0, 130, "a", 100), Event(0, 1, "a", 300), Event(0, 2, "a", 100)]
    report = run(events, [large(2), burst(2)], cuts=[2])
    assert (report.late, report.new["large"].hits, report.new["burst"].hits) == (2, 1, 0)


def test_an_ended_partition_does_not_hold_the_watermark_back() -> None:
    """Partition 1 ends after one early event; the windows of partition 0 close nevertheless."""
    first = frame([Event(0, 0, "a", 100), Event(1, 0, "b", 100), Event(0, 1, "a", 100)]).sort(PARTITION, OFFSET)
    job = Backtest(SOURCE, BacktestSide((burst(2, emit="final"),)), max_out_of_orderness_ms=5_000, partitions=[0, 1])
    job.step(EventBatch({"pay": first}, ended=frozenset({1})))
    job.step(EventBatch({"pay": frame([Event(0, 200, "a", 100)])}, ended=frozenset({0, 1})))
    assert job.report().new["burst"].hits == 1


def test_the_watermark_waits_for_a_partition_without_events_so_far() -> None:
    """Before any event of partition 1, partition 0 closes no window, and later events of partition 1 are not late."""
    job = Backtest(SOURCE, BacktestSide((burst(2, emit="final"),)), max_out_of_orderness_ms=5_000, partitions=[0, 1])
    job.step(EventBatch({"pay": frame([Event(0, 0, "a", 100), Event(0, 500, "a", 100)])}))
    job.step(EventBatch({"pay": frame([Event(1, 1, "b", 100), Event(1, 2, "b", 100), Event(1, 100, "b", 100)])}))
    report = job.report()
    assert (report.late, report.new["burst"].hits) == (0, 1)


def test_a_back_test_accepts_empty_frames_before_and_between_events() -> None:
    single = BacktestRun(SOURCE, [burst(2, emit="final")])
    events = frame([Event(0, 0, "a", 100), Event(0, 1, "a", 100)])
    hits = [
        single.step({"pay": frame([])}, 0, NO_WATERMARK, NO_WATERMARK),
        single.step({"pay": events}, START, NO_WATERMARK, START),
        single.step({"pay": frame([])}, START, START, START + 2 * MINUTE),
    ]
    assert [cut.height for cut in hits] == [0, 0, 1]


def test_a_back_test_counts_invalid_records_by_reason() -> None:
    job = Backtest(SOURCE, BacktestSide((large(1),)))
    job.step(EventBatch({"pay": frame([])}, {"not_json: text": 2}))
    job.step(EventBatch({"pay": frame([Event(0, 0, "a", 500)])}, {"not_json: text": 1}))
    report = job.report()
    assert (report.dead_letters, report.events, report.new["large"].hits) == ({"not_json: text": 3}, 1, 1)


def test_events_of_a_stream_with_deduplicate_count_once_and_late_copies_not_at_all() -> None:
    schema = replace(SCHEMA, event_id="user", deduplicate_ms=10_000)
    sent = [Event(0, 0, "a", 200), Event(0, 1, "a", 200), Event(0, 5, "a", 300), Event(0, 60, "b", 200)]
    late = [Event(0, 30, "c", 200), Event(0, 58, "d", 200)]
    job = Backtest(
        RuleInput.of_stream(schema, "pay"), BacktestSide((large(1),)), max_out_of_orderness_ms=5_000, partitions={0}
    )
    job.step(EventBatch({"pay": frame(sent)}))
    job.step(EventBatch({"pay": frame([*sent, *late])[-2:]}))
    report = job.report()
    assert report.new["large"].hits == 3, "a, b, d"
    assert (report.events, report.duplicates, report.late) == (6, 2, 1)
