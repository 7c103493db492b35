"""Absence rules, compared with a few lines of plain Python over all events in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule
from rulecore.errors import ExpressionError, RuleSetError
from rulecore.firing import FiringTime, RuleFiring
from rulecore.groups.absence.group import AbsenceGroup
from rulecore.settings import GroupSettings
from streamcore.hashing import hash_columns
from streamcore.key_space import KeySpace
from streamcore.state import MemoryBlobs
from streamcore.watermark import NO_WATERMARK
from tests.harness.apps.rule_group import MINUTE, Content, Event, Process, compile_fields

NONE = float("-inf")  # no watermark yet
DISORDER = 8  # minutes


def absence_rule(rule_id: str = "r", /, **fields: object) -> CompiledRule:
    """An absence rule; ``fields`` are its version, its mode, and entries of ``expect``."""
    own = {name: fields.pop(name) for name in ("version", "mode") if name in fields}
    return compile_fields(
        rule_id, group_by=["device"], expect={"where": "kind = 'beat'", "every": "5m"} | fields, **own
    )


def start_process(*rules: CompiledRule, now_ms: int = NO_WATERMARK, **settings: Any) -> Process:
    process = Process(GroupSettings(**settings))
    process.set_rules(rules, now_ms)
    return process


class Alert(NamedTuple):
    """The compared entries of a firing; times in minutes, ``since`` is None if no event was seen."""

    at: float
    key: object
    rule: str
    last: float
    since: float | None
    times: int


def alert(firing: RuleFiring) -> Alert:
    assert firing.timing is FiringTime.FINAL
    assert firing.mark == (firing.time_ms,) == (firing.end_ms,)
    values = firing.values
    assert values["__missing_for_ms"] == firing.end_ms - firing.start_ms
    seen, times = values["__last_seen"], values["__times"]
    assert seen is None or seen == firing.start_ms
    assert isinstance(times, int)
    since = None if seen is None else firing.start_ms / MINUTE
    at, last = firing.time_ms / MINUTE, firing.start_ms / MINUTE
    return Alert(at, firing.key["device"], firing.rule.rule.id, last, since, times)


def summarize(firings: Sequence[RuleFiring]) -> list[tuple[object, float]]:
    return [(f.key["device"], f.time_ms / MINUTE) for f in firings]


# --- what an alert is ----------------------------------------------------------------------------------------------


def test_a_key_alerts_when_the_watermark_has_passed_its_deadline_and_not_before() -> None:
    process = start_process(absence_rule())
    assert process.cut([Event(10)], (NONE, 15)) == []
    (firing,) = process.cut([], (15, 15.01))
    assert alert(firing) == Alert(15, "a", "r", 10, 10, 1)
    assert process.cut([], (15.01, 500)) == []


def test_an_event_exactly_at_the_deadline_is_in_time() -> None:
    process = start_process(absence_rule())
    process.cut([Event(10)], (NONE, 10))
    assert process.cut([Event(15)], (10, 20)) == []
    assert summarize(process.cut([Event(20.001)], (20, 20.001))) == [("a", 20)]


def test_other_events_of_the_key_do_not_count_as_the_expected_one() -> None:
    process = start_process(absence_rule())
    process.cut([Event(10), Event(12, kind="noise")], (NONE, 12))
    assert summarize(process.cut([Event(14, kind="noise")], (12, 16))) == [("a", 15)]


def test_a_key_that_was_never_seen_is_not_expected() -> None:
    assert start_process(absence_rule()).cut([Event(10, kind="noise")], (NONE, 100)) == []


def test_nothing_fires_while_the_watermark_stands_still() -> None:
    process = start_process(absence_rule())
    process.cut([Event(10), Event(30)], (NONE, 9))
    assert process.cut([Event(31)], (9, 9)) == []
    assert summarize(process.cut([], (9, 31))) == [("a", 15)]


def test_an_event_out_of_order_fills_the_gap_or_changes_nothing() -> None:
    process = start_process(absence_rule())
    process.cut([Event(10), Event(18)], (NONE, 9))
    process.cut([Event(14)], (9, 9))
    assert process.cut([Event(10.5)], (9, 18)) == []
    assert summarize(process.cut([], (18, 24))) == [("a", 23)]


def test_again_repeats_the_alert_with_a_count_until_the_event_arrives() -> None:
    process = start_process(absence_rule(again="10m"))
    process.cut([Event(0)], (NONE, 0))
    assert [alert(f)[::5] for f in process.cut([], (0, 6))] == [(5, 1)]
    assert [alert(f)[::5] for f in process.cut([], (6, 36))] == [(15, 2), (25, 3), (35, 4)]
    assert process.cut([Event(38)], (36, 42)) == []
    assert [alert(f)[::5] for f in process.cut([], (42, 44))] == [(43, 1)]


def test_repeats_beyond_the_limit_of_a_cut_are_dropped_and_counted() -> None:
    process = start_process(absence_rule(again="1m"), repeats=3)
    process.cut([Event(0)], (NONE, 0))
    assert summarize(process.cut([], (0, 100))) == [("a", 5), ("a", 6), ("a", 7)]
    assert isinstance(process.group, AbsenceGroup)
    assert process.group.counts["repeats_dropped"] == 92
    assert [alert(f).times for f in process.cut([], (100, 101))] == [96]


def test_forget_removes_a_silent_key_and_its_next_event_arms_it_again() -> None:
    process = start_process(absence_rule(again="10m", forget="20m"))
    process.cut([Event(0)], (NONE, 0))
    assert summarize(process.cut([], (0, 300))) == [("a", 5), ("a", 15)]
    assert isinstance(process.group, AbsenceGroup)
    assert process.group.entries.population_sizes == {0: 0}
    process.cut([Event(300)], (300, 300))
    assert summarize(process.cut([], (300, 306))) == [("a", 305)]


def test_a_null_key_is_expected_like_any_other() -> None:
    process = start_process(absence_rule())
    process.cut([Event(0, device=None)], (NONE, 0))
    assert summarize(process.cut([], (0, 6))) == [(None, 5)]


def test_keys_beyond_the_limit_are_counted_and_not_armed() -> None:
    process = start_process(absence_rule(), population=2)
    process.cut([Event(0, "c"), Event(1, "a"), Event(2, "b")], (NONE, 2))
    assert summarize(process.cut([Event(2.5, "b")], (2, 60))) == [("c", 5), ("a", 6)]
    assert isinstance(process.group, AbsenceGroup)
    assert process.group.counts["keys_dropped"] == 2


# --- edits ---------------------------------------------------------------------------------------------------------


def test_a_longer_every_keeps_the_armed_keys_and_repeats_no_alert() -> None:
    process = start_process(absence_rule())
    process.cut([Event(0), Event(4, "b")], (NONE, 4))
    assert summarize(process.cut([], (4, 6))) == [("a", 5)]
    process.set_rules([absence_rule(version=2, every="8m")])
    assert summarize(process.cut([], (6, 60))) == [("b", 12)]


def test_a_shorter_every_alerts_at_once_for_overdue_keys() -> None:
    process = start_process(absence_rule(every="1h"))
    process.cut([Event(0), Event(27, "b")], (NONE, 30))
    process.set_rules([absence_rule(version=2)])
    assert summarize(process.cut([], (30, 31))) == [("a", 5)]
    assert summarize(process.cut([], (31, 33))) == [("b", 32)]


def test_a_resumed_rule_alerts_for_keys_that_became_overdue_while_it_was_paused() -> None:
    process = start_process(absence_rule())
    process.cut([Event(0)], (NONE, 0))
    process.set_rules([absence_rule(version=2, mode="paused")])
    assert process.cut([Event(1, "b")], (0, 30)) == []
    process.set_rules([absence_rule(version=3)])
    assert summarize(process.cut([], (30, 31))) == [("a", 5), ("b", 6)]


def test_rules_with_one_condition_share_the_armed_keys_and_another_condition_starts_empty() -> None:
    process = start_process(absence_rule())
    process.cut([Event(0)], (NONE, 0))
    process.set_rules([absence_rule(), absence_rule("same", every="10m"), absence_rule("other", where="load > 1")])
    firings = process.cut([], (0, 60))
    assert [(f.rule.rule.id, f.time_ms / MINUTE) for f in firings] == [("r", 5), ("same", 10)]


def test_a_deleted_rule_drops_its_population() -> None:
    process = start_process(absence_rule(), absence_rule("other", where="load > 1"))
    process.cut([Event(0, load=2), Event(0, "b")], (NONE, 0))
    process.set_rules([absence_rule("other", where="load > 1")])
    process.set_rules([absence_rule(), absence_rule("other", where="load > 1")])
    assert [f.rule.rule.id for f in process.cut([], (0, 60))] == ["other"]


# --- against the oracle --------------------------------------------------------------------------------------------


def deadlines(
    rule: CompiledRule, last: float, following: float | None, watermark: float
) -> Iterator[tuple[int, float]]:
    """Yield the number and time of each alert of one silence."""
    absence = rule.absence
    assert absence is not None
    at, number = last + absence.every_ms / MINUTE, 1
    forget = float("inf") if absence.forget_ms is None else last + absence.forget_ms / MINUTE
    while at < watermark and at <= forget and (following is None or at < following):
        yield number, at
        if absence.again_ms is None:
            return
        at, number = at + absence.again_ms / MINUTE, number + 1


def pair_neighbours(times: Sequence[float]) -> Iterator[tuple[float, float | None]]:
    """Pair each time with the next one."""
    return zip(times, [*times[1:], None][: len(times)], strict=True)


CONDITIONS: Mapping[str, Callable[[Event], bool]] = {
    "kind = 'beat'": lambda e: e.kind == "beat",
    "load > 1": lambda e: e.load is not None and e.load > 1,
}


def expected_alerts(
    rules: Sequence[tuple[CompiledRule, str]], events: Sequence[Event], watermark: float
) -> list[Alert]:
    found = []
    for rule, where in rules:
        for device in {e.device for e in events}:
            times = sorted({e.minute for e in events if e.device == device and CONDITIONS[where](e)})
            for last, following in pair_neighbours(times):
                for number, at in deadlines(rule, last, following, watermark):
                    found.append(Alert(at, device, rule.rule.id, last, last, number))
    return sorted(found, key=str)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    """Draw events that are out of order by at most ``DISORDER``."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(0, 80),
                st.sampled_from(["a", "b", None]),
                st.sampled_from(["beat", "noise"]),
                st.sampled_from([None, 1, 2]),
                st.integers(0, DISORDER - 1),
            ),
            max_size=25,
        )
    )
    ordered = sorted(drawn, key=lambda row: row[0] + row[4])
    return [Event(minute, device, kind, load=load) for minute, device, kind, load, _ in ordered]


@st.composite
def absence_rules(draw: st.DrawFn) -> list[tuple[CompiledRule, str]]:
    rules = []
    for number in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from(list(CONDITIONS)))
        expect = {"where": where, "every": draw(st.sampled_from(["3m", "5m", "11m"]))}
        expect |= draw(
            st.sampled_from([{}, {"again": "4m"}, {"again": "once", "forget": "20m"}, {"again": "7m", "forget": "19m"}])
        )
        rules.append((absence_rule(f"r{number}", **expect), where))
    return rules


def split_events(events: Sequence[Event], sizes: Sequence[int]) -> Iterator[list[Event]]:
    start = number = 0
    while start < len(events):
        size = sizes[number % len(sizes)]
        yield list(events[start : start + size])
        start, number = start + size, number + 1


def run(rules: Sequence[CompiledRule], cuts: Sequence[Sequence[Event]], end: float, processes: int) -> list[Alert]:
    """With no lasting process, every cut starts from stored state; several processes take turns."""
    blobs, kept = MemoryBlobs(), [Process() for _ in range(max(1, processes))]
    watermark, found = NONE, []
    for number, events in enumerate([*cuts, []]):
        after = max([watermark, *(e.minute - DISORDER for e in events)]) if number < len(cuts) else end
        turn = (number * 2 // 3) % len(kept)
        process = (kept[turn] if processes else Process()).read(blobs, rules)
        kept[turn] = process
        found += process.cut(events, (watermark, after))
        process.commit(blobs)
        watermark = after
    return sorted(map(alert, found), key=str)


@settings(max_examples=100)
@given(absence_rules(), arrivals(), st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 150))
def test_alerts_equal_the_oracle_over_all_events_in_order_in_any_cuts_with_any_restarts(
    rules: list[tuple[CompiledRule, str]], events: list[Event], sizes: list[int], end: int
) -> None:
    end = max([end, *(int(e.minute) for e in events)])
    wanted = expected_alerts(rules, events, end)
    members = [rule for rule, _ in rules]
    assert run(members, [events], end, processes=1) == wanted
    cuts = list(split_events(events, sizes))
    assert run(members, cuts, end, processes=1) == wanted
    assert run(members, cuts, end, processes=0) == wanted
    assert run(members, cuts, end, processes=3) == wanted


# --- lists ---------------------------------------------------------------------------------------------------------

LISTED = {"of": {"list": "fleet"}}


def fleet(*devices: str) -> dict[str, Content]:
    return {"fleet": Content(set(devices))}


def test_a_new_rule_arms_listed_keys_and_its_alert_reports_that_they_were_never_seen() -> None:
    process = start_process(absence_rule(**LISTED), now_ms=10 * MINUTE)
    (firing,) = process.cut([Event(11, "b"), Event(12, "stranger")], (9, 15.5), fleet("a", "b"))
    assert alert(firing) == Alert(15, "a", "r", 10, None, 1)
    assert summarize(process.cut([], (15.5, 60), fleet("a", "b"))) == [("b", 16)]


def test_the_first_watermark_arms_listed_keys_when_no_event_came_before() -> None:
    process = start_process(absence_rule(**LISTED))
    assert process.cut([Event(14, "b")], (NONE, NONE), fleet("a", "b")) == []
    assert process.cut([], (NONE, 10), fleet("a", "b")) == []
    firings = process.cut([], (10, 60), fleet("a", "b"))
    assert [alert(f)[:5] for f in firings] == [(15, "a", "r", 10, None), (19, "b", "r", 14, 14)]


def test_a_key_is_armed_when_it_is_listed_and_disarmed_when_it_is_removed() -> None:
    process = start_process(absence_rule(**LISTED), now_ms=0)
    process.cut([], (0, 2), fleet("a", "b"))
    both = fleet("b", "c")
    process.cut([], (2, 4), both)
    assert summarize(process.cut([], (4, 60), both)) == [("b", 5), ("c", 7)]


def test_a_missing_list_arms_no_key() -> None:
    process = start_process(absence_rule(**LISTED), now_ms=0)
    process.cut([], (0, 2), fleet("a"))
    assert process.cut([Event(3)], (2, 60), {}) == []


def test_each_shard_arms_only_the_listed_keys_that_it_owns() -> None:
    devices = [f"d{n}" for n in range(20)]
    owner = KeySpace(3).shard_for(hash_columns([pl.Series(devices)], 20)).tolist()
    for shard in range(3):
        process = Process(shard=shard, shards=3)
        process.set_rules([absence_rule(**LISTED)], now_ms=0)
        found = process.cut([], (0, 60), fleet(*devices))
        assert sorted(str(f.key["device"]) for f in found) == sorted(
            d for d, s in zip(devices, owner, strict=True) if s == shard
        )


def test_listed_values_of_another_type_than_the_key_are_skipped() -> None:
    process = Process()
    process.set_rules(
        [compile_fields("r", group_by=["site"], expect={"where": "load > 1", "every": "5m"} | LISTED)], now_ms=0
    )
    (firing,) = process.cut([], (0, 60), {"fleet": Content([7, "x", None])})
    assert firing.key == {"site": 7}


def expected_listed_alerts(
    rule: CompiledRule, cuts: Sequence[tuple[Sequence[Event], Collection[str], tuple[float, float]]], since: float
) -> list[Alert]:
    """For each stay on the list: the arming and the events during it, up to the watermark of its last cut."""
    found = []
    for device in {d for _, listed, _ in cuts for d in listed}:
        stay: list[float] = []
        seen: set[float] = set()
        for number, (events, listed, (before, after)) in enumerate(cuts):
            if device not in listed:
                stay, seen = [], set()
                continue
            stay = stay or [max(since, before)]
            beats = [e.minute for e in events if e.device == device and e.kind == "beat" and e.minute >= stay[0]]
            seen |= set(beats)
            stay = [stay[0], *sorted({*stay[1:], *beats})]
            over = number + 1 == len(cuts) or device not in cuts[number + 1][1]
            for last, following in pair_neighbours(stay) if over else ():
                for times, at in deadlines(rule, last, following, after):
                    found.append(Alert(at, device, "r", last, last if last in seen else None, times))
    return sorted(set(found), key=str)


@settings(max_examples=100)
@given(
    arrivals(),
    st.lists(st.sets(st.sampled_from("abc")), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.sampled_from([{}, {"again": "4m"}]),
)
def test_a_listed_key_is_expected_for_as_long_as_it_is_listed(
    events: list[Event], listed: list[set[str]], sizes: list[int], again: Mapping[str, str]
) -> None:
    rule = absence_rule(**LISTED, **again)
    cuts, watermark = [], 0.0
    for number, some in enumerate([*split_events(events, sizes), []]):
        after = max([watermark, *(e.minute - DISORDER for e in some)]) if some else 120.0
        cuts.append(([e for e in some if e.minute >= watermark], listed[number // 2 % len(listed)], (watermark, after)))
        watermark = after
    wanted = expected_listed_alerts(rule, cuts, since=3)
    for restarts in (False, True):
        blobs, process, found = MemoryBlobs(), Process(), []
        process.set_rules([rule], now_ms=3 * MINUTE)
        contents = [Content(roll) for roll in listed]
        for number, (some, _, watermarks) in enumerate(cuts):
            if restarts and number:
                process = Process().read(blobs, [rule])
            found += process.cut(some, watermarks, {"fleet": contents[number // 2 % len(listed)]})
            process.commit(blobs)
        assert sorted(map(alert, found), key=str) == wanted


# --- rejections ------------------------------------------------------------------------------------------------------


def test_a_list_is_rejected_where_the_key_is_not_one_column() -> None:
    with pytest.raises(RuleSetError, match=r"expect\.of: list fleet holds values of one column"):
        compile_fields("r", group_by=["device", "site"], expect={"where": "load > 1", "every": "5m"} | LISTED)


def test_the_error_locates_a_fault_in_the_condition() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_fields("r", group_by=["device"], expect={"where": "lod > 1", "every": "5m"})
    assert str(caught.value).startswith("expect.where:1:1")


def test_a_duration_that_is_too_short_is_rejected() -> None:
    with pytest.raises(RuleSetError, match=r"expect\.every: 500ms; at least 1s"):
        absence_rule(every="500ms")


def test_many_rules_over_many_populations_each_fire_for_their_own_keys() -> None:
    rules = [absence_rule(f"r{n:03}", where=f"load = {n}", every=f"{n + 1}m") for n in range(200)]
    process = start_process(*rules)
    process.cut([Event(0, load=n) for n in range(0, 200, 2)], (NONE, 0))
    found = process.cut([], (0, 1_000))
    assert [(f.rule.rule.id, f.time_ms / MINUTE) for f in found] == [(f"r{n:03}", n + 1) for n in range(0, 200, 2)]
