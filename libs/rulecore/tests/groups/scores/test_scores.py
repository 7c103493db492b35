"""Score rules, which add signals of other rules by key, compared with a few lines of plain Python over all signals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule
from rulecore.compile.score_compatibility import incompatibility
from rulecore.errors import RuleSetError
from rulecore.firing import FiringTime, RuleFiring
from rulecore.groups.base import CutContext
from rulecore.groups.scores.group import ScoreGroup, Signal
from rulecore.settings import GroupSettings
from streamcore.key_space import KeySpace
from streamcore.state import MemoryBlobs
from streamcore.watermark import NO_WATERMARK
from tests.harness.apps.rule_group import BEATS, MINUTE, Process, compile_fields

STREAMS = {BEATS.name: BEATS}
NONE = float("-inf")
WITHIN = 30  # minutes
OF: dict[str, int | None] = {"x": 20, "y": 30, "z": None}


def score_rule(
    rule_id: str = "s", version: int = 1, limit: int = 50, count: str = "every", mode: str = "live", **fields: object
) -> CompiledRule:
    score = {"of": OF, "within": f"{WITHIN}m", "limit": limit, "count": count} | fields
    return compile_fields(rule_id, version=version, group_by=["device"], score=score, mode=mode)


def signal(minute: float, rule: str = "x", device: str | None = "a", number: int = 0, weight: int = 10) -> Signal:
    return Signal(rule, (device,), int(minute * MINUTE), f"0:{number}", weight, (0, number))


def start_process(*rules: CompiledRule, now_ms: int = NO_WATERMARK, **limits: Any) -> Process:
    process = Process(GroupSettings(**limits))
    process.set_rules(rules, now_ms)
    return process


def score_group(process: Process) -> ScoreGroup:
    assert isinstance(process.group, ScoreGroup)
    return process.group


def cut(
    process: Process, signals: Sequence[Signal], watermarks: tuple[float, float] = (NONE, NONE)
) -> list[RuleFiring]:
    before, after = (NO_WATERMARK if w < -1e9 else int(w * MINUTE) for w in watermarks)
    moment = CutContext(0, KeySpace(), "beats", 0, before, after)
    firings, failures = score_group(process).signals(signals, moment)
    assert not failures
    assert score_group(process).close(moment) == ([], [])
    return firings


class Alert(NamedTuple):
    rule: str
    device: object
    minute: float
    total: int
    rules: str
    signals: int


def alert(firing: RuleFiring) -> Alert:
    assert firing.timing is FiringTime.EARLY
    total, rules, count = (firing.values[f"__{n}"] for n in ("sum", "rules", "count"))
    assert isinstance(total, int)
    assert isinstance(rules, str)
    assert isinstance(count, int)
    assert firing.end_ms - firing.start_ms == WITHIN * MINUTE
    return Alert(firing.rule.rule.id, firing.key["device"], firing.time_ms / MINUTE, total, rules, count)


def summarize(firings: Iterable[RuleFiring]) -> list[tuple[float, int]]:
    return [(a.minute, a.total) for a in map(alert, firings)]


# --- what an alert is ----------------------------------------------------------------------------------------------


def test_a_score_rule_fires_at_the_signal_that_reaches_the_limit_and_lists_the_added_signals() -> None:
    (firing,) = cut(start_process(score_rule()), [signal(1), signal(2, "y", number=1), signal(3, "z", number=2)])
    assert alert(firing) == Alert("s", "a", 2, 50, "x, y", 2)
    assert firing.mark == (2 * MINUTE, "y", "0:1")
    assert [event.place for event in firing.events] == [
        {"topic": "beats", "partition": 0, "offset": 0},
        {"topic": "beats", "partition": 0, "offset": 1},
    ]


def test_a_score_rule_fires_again_only_after_the_sum_fell_below_the_limit() -> None:
    process = start_process(score_rule())
    assert summarize(cut(process, [signal(m, "y", number=m) for m in (0, 1, 20, 25)])) == [(1, 60)]
    assert cut(process, [signal(31, "y", number=31)]) == []  # those of 20 and 25 are still 60
    assert summarize(cut(process, [signal(m, "y", number=m) for m in (80, 81)])) == [(81, 60)]


def test_a_signal_exactly_as_old_as_the_window_does_not_count() -> None:
    assert cut(start_process(score_rule()), [signal(0, "y"), signal(30, "y", number=1)]) == []
    assert len(cut(start_process(score_rule()), [signal(0.001, "y"), signal(30, "y", number=1)])) == 1


def test_with_counting_once_a_rule_adds_only_its_largest_weight() -> None:
    process = start_process(score_rule(count="once"))
    assert cut(process, [signal(n, "y", number=n) for n in range(9)]) == []
    assert [alert(f)[3:] for f in cut(process, [signal(9, "x", number=9)])] == [(50, "x, y", 10)]
    other = start_process(score_rule(count="once", limit=40))
    weights = [signal(n, "z", number=n, weight=w) for n, w in enumerate([5, 15, 10])]
    assert summarize(cut(other, [*weights, signal(5, "x", number=9), signal(6, "y", number=10)])) == [(6, 65)]


def test_a_rule_without_a_weight_adds_its_own_score() -> None:
    assert summarize(
        cut(start_process(score_rule()), [signal(0, "z", weight=49), signal(1, "z", number=1, weight=1)])
    ) == [(1, 50)]


def test_each_key_has_its_own_sum_and_null_is_a_key() -> None:
    signals = [signal(n, "y", device, number=n) for n, device in enumerate(["a", None, "b", None])]
    assert [alert(f)[1:3] for f in cut(start_process(score_rule()), signals)] == [(None, 3)]


def test_a_rule_that_no_score_rule_names_adds_nothing() -> None:
    assert cut(start_process(score_rule()), [signal(0, "w", weight=1_000)]) == []


def test_the_same_signal_counts_once() -> None:
    process = start_process(score_rule())
    assert cut(process, [signal(0, "y"), signal(0, "y")]) == []
    assert cut(process, [signal(0, "y")]) == []


def test_an_older_signal_is_added_to_the_current_sum() -> None:
    process = start_process(score_rule())
    cut(process, [signal(20, "y")])
    assert summarize(cut(process, [signal(10, "x", number=1)])) == [(10, 50)]
    late = start_process(score_rule())
    cut(late, [signal(60, "y")])
    assert cut(late, [signal(30, "y", number=1)]) == []


def test_a_signal_older_than_the_watermark_minus_the_window_is_ignored() -> None:
    process = start_process(score_rule())
    cut(process, [signal(40, "y")], (50, 50))
    assert cut(process, [signal(20, "y", number=1)], (50, 50)) == []
    assert summarize(cut(process, [signal(21, "y", number=2)], (50, 50))) == [(21, 60)]


def test_a_key_beyond_its_limit_drops_the_oldest_signals() -> None:
    process = start_process(score_rule(limit=100), events=3)
    assert cut(process, [signal(n, "y", number=n) for n in range(3)]) == []
    assert summarize(cut(process, [signal(3, "y", number=3)])) == [(3, 120)]  # before the oldest is dropped
    assert summarize(cut(process, [signal(4, "y", number=4)])) == [(4, 120)]
    assert score_group(process).counts["signals_dropped"] == 2


def test_dropped_signals_do_not_come_back_after_a_restart() -> None:
    blobs, process = MemoryBlobs(), start_process(score_rule(), events=2)
    for numbers in ((0, 1), (2,)):
        cut(process, [signal(n, number=n) for n in numbers])
        process.commit(blobs)
    again = Process(process.settings).read(blobs, [score_rule()])
    assert [s.offset for s in score_group(again).signal_table.held["a",]] == [1, 2]


def test_keys_beyond_the_limit_get_no_score() -> None:
    process = start_process(score_rule(limit=20), population=1)
    assert [alert(f)[1] for f in cut(process, [signal(1, device="b"), signal(0, device="a")])] == ["a"]
    assert score_group(process).counts["keys_dropped"] == 1


# --- edits ---------------------------------------------------------------------------------------------------------


def test_a_new_limit_keeps_the_sum_so_far() -> None:
    process = start_process(score_rule(limit=100))
    cut(process, [signal(0, "y")])
    process.set_rules([score_rule(version=2)])
    assert summarize(cut(process, [signal(1, "x", number=1)])) == [(1, 50)]


def test_alerts_are_warming_until_a_window_starts_after_the_rule() -> None:
    process = start_process(score_rule(limit=20), now_ms=10 * MINUTE)
    assert [f.incomplete for f in cut(process, [signal(12)])] == [True]
    assert [f.incomplete for f in cut(process, [signal(60, number=1)])] == [False]


def test_a_paused_rule_keeps_adding_scores() -> None:
    process = start_process(score_rule(mode="paused"))
    assert cut(process, [signal(0, "y"), signal(1, "x", number=1)]) == []
    process.set_rules([score_rule(version=2, limit=60)])
    assert summarize(cut(process, [signal(2, "z", number=2)])) == [(2, 60)]


def test_signals_that_no_rule_needs_any_more_are_dropped() -> None:
    process = start_process(score_rule(), score_rule("t", of={"w": 5}))
    cut(process, [signal(0, "w"), signal(0, "y", number=1)])
    process.set_rules([score_rule()])
    assert [s.rule for s in score_group(process).signal_table.held["a",]] == ["y"]


def test_signals_that_have_left_every_window_are_dropped() -> None:
    process = start_process(score_rule())
    cut(process, [signal(0), signal(10, number=1, device="b")], (0, 30))
    assert [*score_group(process).signal_table.held] == [("b",)]


# --- against the oracle --------------------------------------------------------------------------------------------


def oracle(rules: Sequence[CompiledRule], cuts: Sequence[tuple[Sequence[Signal], float]]) -> list[Alert]:
    """Compute the sum at each signal from all signals so far. ``cuts``: with the watermark before."""
    found, past = [], list[Signal]()
    latest: dict[tuple[str, object], float] = {}
    for signals, watermark in cuts:
        for one in sorted(signals, key=lambda s: (s.time_ms, s.rule, s.identity)):
            if any((p.rule, p.key, p.identity) == (one.rule, one.key, one.identity) for p in past):
                continue
            for rule in rules:
                scored = rule.score
                assert scored is not None
                place = (rule.rule.id, one.key)
                latest[place] = max(latest.get(place, -1e18), one.time_ms, watermark * MINUTE)
                counted = [
                    p for p in past if p.key == one.key and p.rule in OF and p.time_ms > latest[place] - WITHIN * MINUTE
                ]
                after = [*counted, one] if one.time_ms > latest[place] - WITHIN * MINUTE else counted
                total = add_signals(after, every=scored.every)
                if add_signals(counted, every=scored.every) < scored.limit <= total:
                    names = ", ".join(sorted({p.rule for p in after}))
                    found.append(Alert(rule.rule.id, one.key[0], one.time_ms / MINUTE, total, names, len(after)))
            past.append(one)
    return sorted(found, key=str)


def add_signals(signals: Sequence[Signal], *, every: bool) -> int:
    weighted = [(s.rule, OF[s.rule] or s.weight) for s in signals]
    if every:
        return sum(weight for _, weight in weighted)
    return sum(max(w for r, w in weighted if r == rule) for rule in {r for r, _ in weighted})


@st.composite
def signal_lists(draw: st.DrawFn) -> list[Signal]:
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 150),
                st.sampled_from("xyz"),
                st.sampled_from(["a", "b"]),
                st.integers(0, 30),
                st.integers(0, 9),
            ),
            max_size=30,
        )
    )
    ordered = sorted(enumerate(drawn), key=lambda pair: pair[1][0] + pair[1][4])
    return [signal(m, rule, device, number, weight) for number, (m, rule, device, weight, _) in ordered]


def run(rules: Sequence[CompiledRule], cuts: Sequence[tuple[Sequence[Signal], float]], processes: int) -> list[Alert]:
    """As in the tests of absence rules: processes that last, take turns, or are new in each cut."""
    blobs, kept, found = MemoryBlobs(), [Process() for _ in range(max(1, processes))], list[RuleFiring]()
    for number, (signals, watermark) in enumerate(cuts):
        after = cuts[number + 1][1] if number + 1 < len(cuts) else watermark
        turn = (number * 2 // 3) % len(kept)
        process = kept[turn] = (kept[turn] if processes else Process()).read(blobs, rules)
        found += cut(process, signals, (watermark, after))
        process.commit(blobs)
    return sorted(map(alert, found), key=str)


@settings(max_examples=100)
@given(
    signal_lists(),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.sampled_from([0, 8, 40]),
    st.lists(st.tuples(st.sampled_from([20, 50, 80]), st.sampled_from(["once", "every"])), min_size=1, max_size=2),
)
def test_alerts_equal_the_oracle_that_sums_all_signals_each_time_across_any_restarts(
    signals: list[Signal], sizes: list[int], disorder: int, kinds: list[tuple[int, str]]
) -> None:
    rules = [score_rule(f"s{n}", limit=limit, count=count) for n, (limit, count) in enumerate(kinds)]
    cuts, start, number, watermark = list[tuple[Sequence[Signal], float]](), 0, 0, -1e6
    while start < len(signals):
        size = sizes[number % len(sizes)]
        cuts.append((signals[start : start + size], watermark))
        latest = max(s.time_ms for s in signals[: start + size]) / MINUTE
        start, number, watermark = start + size, number + 1, max(watermark, latest - disorder)
    wanted = oracle(rules, cuts)
    for processes in (1, 0, 3):
        assert run(rules, cuts, processes) == wanted


@settings(max_examples=100)
@given(signal_lists(), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_with_signals_in_order_the_alerts_do_not_depend_on_the_cuts(signals: list[Signal], sizes: list[int]) -> None:
    rules = [score_rule("e"), score_rule("o", count="once")]
    signals = sorted(signals, key=lambda s: (s.time_ms, s.rule, s.identity))
    cuts, start, number = list[tuple[Sequence[Signal], float]](), 0, 0
    while start < len(signals):
        size = sizes[number % len(sizes)]
        watermark = signals[start - 1].time_ms / MINUTE if start else -1e6
        cuts.append((signals[start : start + size], watermark))
        start, number = start + size, number + 1
    assert run(rules, cuts, 1) == run(rules, [(signals, -1e6)], 1)


# --- which rules can be signals ------------------------------------------------------------------------------------


def test_a_score_rule_that_names_itself_is_rejected() -> None:
    with pytest.raises(RuleSetError, match=r"score\.of: names the rule itself"):
        score_rule("x")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"where": "load > 1"}, None),
        ({"expect": {"where": "load > 1", "every": "5m"}, "group_by": ["device", "site"]}, None),
        ({"expect": {"where": "load > 1", "every": "5m"}, "group_by": ["site"]}, "it needs [device] in group_by"),
        ({"score": {"of": ["w"], "within": "1h", "limit": 5}, "group_by": ["device"]}, "is a score rule itself"),
    ],
)
def test_a_stateful_rule_is_a_signal_only_if_its_key_contains_the_key_of_the_score_rule(
    other: dict[str, object], reason: str | None
) -> None:
    found = incompatibility(score_rule(), compile_fields("x", **other), STREAMS)
    assert found is None if reason is None else reason in str(found)


def test_a_rule_without_any_score_is_no_signal_unless_it_is_given_a_weight() -> None:
    assert "has no score" in str(incompatibility(score_rule(), compile_fields("z", where="load > 1"), STREAMS))
    scored = {"severity": "low", "message": "m", "score": 5}
    assert incompatibility(score_rule(), compile_fields("z", where="load > 1", then=scored), STREAMS) is None
