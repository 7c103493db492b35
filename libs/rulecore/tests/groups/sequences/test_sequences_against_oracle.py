"""Sequences equal an oracle that shares no code with them, for any order of arrival, any cuts and any restarts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rulecore.factory import RulesFactory
from rulecore.settings import GroupSettings
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.durations import render_duration
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.patterns import engine
from streamcore.schema import StreamSchema
from streamcore.state import StateSettings
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, LATE, STATUS
from tests.harness.apps.rule_group import GroupRun, compile_document
from tests.harness.oracles.sequences import Event, Row, Wanted, find

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1_000 * 60 * MINUTE
END = T0 + 10_000 * MINUTE
DISORDER = 5  # minutes
SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)


def _amount(row: Row) -> int:
    amount = row["amount"]
    assert isinstance(amount, int)
    return amount


#: Whether a condition holds for an event, given the events that step s0 has taken, and whether it is one of s0 itself.
Holds = Callable[[Row, Sequence[Row], bool], object]


def _amounts(rows: Sequence[Row]) -> list[int]:
    return [_amount(row) for row in rows]


def _kinds(rows: Sequence[Row]) -> list[object]:
    return [row["kind"] for row in rows if row["kind"] is not None]


def _last_amount(r: Row, s0: Sequence[Row], own: bool) -> int | None:
    """Return ``s0.amount``: in a condition of s0 itself it is that of the event."""
    return _amount(r) if own else _amount(s0[-1]) if s0 else None


def _differs_from_first(r: Row, s0: Sequence[Row]) -> bool:
    return bool(_kinds(s0)) and r["kind"] is not None and r["kind"] != _kinds(s0)[0]


#: The text of a condition, and the same in Python. A comparison with null is not true.
CONDITIONS: Sequence[tuple[str, Holds]] = (
    ("kind = 'a'", lambda r, _, __: r["kind"] == "a"),
    ("kind = 'b'", lambda r, _, __: r["kind"] == "b"),
    ("kind in ('a', 'b')", lambda r, _, __: r["kind"] in ("a", "b")),
    ("kind <> 'a'", lambda r, _, __: r["kind"] is not None and r["kind"] != "a"),
    ("amount >= 2", lambda r, _, __: _amount(r) >= 2),
    ("kind = 'c' and amount < 2", lambda r, _, __: r["kind"] == "c" and _amount(r) < 2),
    ("upper(kind) = 'C'", lambda r, _, __: r["kind"] == "c"),
    ("amount >= coalesce(s0.amount, 0)", lambda r, s, own: _amount(r) >= (_last_amount(r, s, own) or 0)),
    ("kind <> first(s0.kind)", lambda r, s, _: _differs_from_first(r, s)),
    (
        "amount > sum(s0.amount) and kind = 'b'",
        lambda r, s, _: s and r["kind"] == "b" and _amount(r) > sum(_amounts(s)),
    ),
    ("amount <> 0 and count(s0) < 2", lambda r, s, _: _amount(r) != 0 and len(s) < 2),
    ("avg(s0.amount) < amount or count(s0) = 0", lambda r, s, _: not s or sum(_amounts(s)) < _amount(r) * len(s)),
    ("count(distinct s0.kind) > 1 or kind = 'a'", lambda r, s, _: len({*_kinds(s)}) > 1 or r["kind"] == "a"),
    ("amount + 1 > max(2 * s0.amount)", lambda r, s, _: bool(s) and _amount(r) + 1 > 2 * max(_amounts(s))),
    ("not amount = min(s0.amount)", lambda r, s, _: bool(s) and _amount(r) != min(_amounts(s))),
)


@dataclass(frozen=True)
class Drawn:
    """A sequence: (condition, times, within in minutes or None), times 0 for a ``without``."""

    items: tuple[tuple[int, int, int | None], ...]
    span: int
    skip: str
    common: bool

    def document(self, rule_id: str) -> bytes:
        body = {
            "id": rule_id,
            "version": 1,
            "owner": "o",
            "on": "acts",
            "group_by": ["user"],
            "sequence": [self._item(n, *item) for n, item in enumerate(self.items)],
            "within": f"{self.span}m",
            "skip": self.skip,
            "then": {"severity": "high", "message": "{user} {count}"},
        }
        return orjson.dumps(body | ({"where": "amount <> 1"} if self.common else {}))

    @staticmethod
    def _item(number: int, condition: int, times: int, within: int | None) -> dict[str, object]:
        text = CONDITIONS[condition][0]
        body: dict[str, object] = {"without": text} if not times else {"step": f"s{number}", "where": text}
        if times:
            body["times"] = times
        return body if within is None else body | {"within": render_duration(within * MINUTE)}

    def entries(self) -> list[Wanted]:
        return [
            Wanted(functools.partial(self._holds, c, n == 0), times, w and w * MINUTE)
            for n, (c, times, w) in enumerate(self.items)
        ]

    def _holds(self, condition: int, own: bool, row: Row, taken: Sequence[Sequence[Row]]) -> bool:
        return (not self.common or _amount(row) != 1) and bool(CONDITIONS[condition][1](row, taken[0], own))


@st.composite
def sequences(draw: st.DrawFn) -> Drawn:
    span = draw(st.integers(1, 25))
    condition, within = st.integers(0, len(CONDITIONS) - 1), st.none() | st.integers(1, span)
    items: list[tuple[int, int, int | None]] = []
    for number in range(draw(st.integers(1, 3))):
        if number and draw(st.integers(0, 2)) == 0:
            items.append((draw(condition), 0, None))
        items.append((draw(condition), draw(st.sampled_from([1, 1, 2, 3])), draw(within)))
    if draw(st.integers(0, 2)) == 0 or (len(items) == 1 and items[0][1] == 1):
        items.append((draw(condition), 0, draw(st.integers(1, span))))
    return Drawn(tuple(items), span, draw(st.sampled_from(["past_last", "to_next", "none"])), draw(st.booleans()))


@st.composite
def relatives(draw: st.DrawFn) -> list[Drawn]:
    """Draw sequences with an equal beginning."""
    first = draw(sequences())
    found = [first]
    for _ in range(draw(st.integers(1, 3))):
        other = draw(sequences())
        kept = draw(st.integers(1, len(first.items)))
        tail = other.items[draw(st.integers(0, len(other.items))) :]
        joined = [*first.items[:kept], *tail]
        items = [item for n, item in enumerate(joined) if item[1] or joined[n - 1][1]]  # no two `without` in a row
        while items[-1][1] == 0 and items[-1][2] is None:  # a `without` at the end needs a time
            items.pop()
        items = [(c, n, w if n or i == len(items) - 1 else None) for i, (c, n, w) in enumerate(items)]
        if len(items) == 1 and items[0][1] == 1:
            items.append((draw(st.integers(0, len(CONDITIONS) - 1)), 1, None))
        items = [(c, n, w if w is None else min(w, first.span)) for c, n, w in items]
        span = draw(st.sampled_from([first.span, first.span, first.span + 3]))
        found.append(
            replace(first, items=tuple(items), span=span, skip=draw(st.sampled_from([first.skip, other.skip])))
        )
    return found


@st.composite
def alike(draw: st.DrawFn) -> list[Drawn]:
    """Draw sequences that differ in conditions and lengths of time only."""
    first = draw(sequences())
    found = [first]
    for _ in range(draw(st.integers(1, 3))):
        span = draw(st.integers(1, 25))
        conditions = st.just(None) | st.integers(0, len(CONDITIONS) - 1)
        items = []
        for condition, times, within in first.items:
            other = draw(conditions)
            items.append((condition if other is None else other, times, within and draw(st.integers(1, span))))
        skip, common = draw(sequences().map(lambda other: (other.skip, other.common)))
        found.append(Drawn(tuple(items), span, skip, common))
    return found


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    """Draw events of two partitions in order of arrival, none of them late, many at one time."""
    row = st.fixed_dictionaries(
        {
            "user": st.sampled_from(["u", "u", "v", None]),
            "kind": st.sampled_from(["a", "b", "c", None]),
            "amount": st.integers(0, 3),
        }
    )
    moment = st.tuples(st.integers(0, 30), st.integers(0, DISORDER - 1), st.integers(0, 1), row)
    some = draw(st.lists(moment, min_size=12, max_size=30))
    some.sort(key=lambda e: e[0] + e[1])
    offsets = [0, 0]
    events = []
    for minute, _, partition, values in some:
        events.append(Event(T0 + minute * MINUTE, partition, offsets[partition], values))
        offsets[partition] += 1
    return events


rule_lists = st.lists(sequences(), min_size=1, max_size=3)
sizes_of_cuts = st.lists(st.integers(1, 12), min_size=1, max_size=4)


def split_into_cuts(events: Sequence[Event], sizes: Sequence[int]) -> list[Sequence[Event]]:
    """Split the events into cuts of these sizes in turn."""
    cuts: list[Sequence[Event]] = []
    start = 0
    while start < len(events):
        size = sizes[len(cuts) % len(sizes)]
        cuts.append(events[start : start + size])
        start += size
    return cuts


def run(
    drawn: Sequence[Drawn], events: Sequence[Event], sizes: Sequence[int], processes: int = 1, limit: int = 1_000
) -> list[tuple[object, ...]]:
    """Return the firings of the group in order. ``processes`` 0: each cut starts from stored state; more take turns."""
    rules = [compile_document(one.document(f"r{n}"), SCHEMA) for n, one in enumerate(drawn)]
    group = GroupRun(SCHEMA, rules, processes, GroupSettings(partials=limit))
    found, latest = [], group.watermark_ms
    for cut in split_into_cuts(events, sizes):
        latest = max([latest, *(e.ms for e in cut)])
        rows = [(e.ms, e.partition, e.offset, {**e.row, "amount": 100 * _amount(e.row)}) for e in cut]
        found += group.cut(rows, latest - DISORDER * MINUTE)
    found += group.cut([], END)
    assert all(a.time_ms <= b.time_ms for a, b in itertools.pairwise(found))
    places = [[(o.partition, o.offset) for o in f.events] for f in found]
    return [(f.rule.rule.id, f.key["user"], p, f.start_ms, f.end_ms) for f, p in zip(found, places, strict=True)]


def expected_matches(drawn: Sequence[Drawn], events: Sequence[Event]) -> list[object]:
    found: list[object] = []
    for number, one in enumerate(drawn):
        for user in ("u", "v", None):
            own = [e for e in events if e.row["user"] == user]
            for match in find(one.entries(), one.span * MINUTE, own, past_last=one.skip == "past_last"):
                places = [(e.partition, e.offset) for e in match.events]
                found.append((f"r{number}", user, places, match.events[0].ms, match.end_ms))
    return sorted(found, key=str)


@example(
    # What must not come before a step may be its second event.
    [Drawn(((0, 1, None), (0, 0, None), (2, 2, None)), 1, "past_last", common=False)],
    [Event(T0, 0, n, {"user": "u", "kind": kind, "amount": 0}) for n, kind in enumerate("aba")],
    [1],
)
@given(rule_lists, arrivals(), sizes_of_cuts)
def test_sequences_find_what_the_oracle_finds_however_the_input_is_cut(
    drawn: list[Drawn], events: list[Event], sizes: list[int]
) -> None:
    assert sorted(run(drawn, events, sizes), key=str) == expected_matches(drawn, events)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(rule_lists, arrivals(), sizes_of_cuts, st.sampled_from([0, 2, 3]))
def test_restarts_and_processes_that_take_turns_do_not_change_the_matches(
    drawn: list[Drawn], events: list[Event], sizes: list[int], processes: int
) -> None:
    assert sorted(run(drawn, events, sizes, processes), key=str) == expected_matches(drawn, events)


@pytest.mark.slow
@pytest.mark.parametrize("fewest_runs", [0, engine.FEWEST_RUNS])
@given(relatives() | alike(), arrivals(), sizes_of_cuts, st.sampled_from([0, 1, 2]), st.booleans())
def test_sequences_of_a_family_find_what_each_finds_by_itself(
    fewest_runs: int,
    drawn: list[Drawn],
    events: list[Event],
    sizes: list[int],
    processes: int,
    limit: bool,
) -> None:
    with patch.object(engine, "FEWEST_RUNS", fewest_runs):
        partials = 2 if limit else 1_000
        found = run(drawn, events, sizes, processes, partials)
        alone = [
            (f"r{n}", *rest)
            for n, one in enumerate(drawn)
            for _, *rest in run([one], events, [len(events)], limit=partials)
        ]
    assert sorted(found, key=str) == sorted(alone, key=str)
    if not limit:
        assert sorted(found, key=str) == expected_matches(drawn, events)


_AAB, _AAC = (Drawn(((0, 2, None), (last, 1, None)), 25, "past_last", False) for last in (1, 5))
_USER = [Event(T0 + 2 * n * MINUTE, 0, n, {"user": "u", "kind": k, "amount": 0}) for n, k in enumerate("aaaaaabc")]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@example([_AAB, _AAC, _AAB], _USER, 6, 0, False)
@example([_AAB, _AAC, replace(_AAC, span=24)], _USER, 6, 1, True)
@given(relatives() | alike(), arrivals(), st.integers(1, 11), st.sampled_from([0, 1, 2]), st.booleans())
def test_rules_that_come_and_go_change_no_match_of_another_rule_of_their_family(
    drawn: list[Drawn], events: list[Event], before: int, processes: int, comes: bool
) -> None:
    rules = [compile_document(one.document(f"r{n}"), SCHEMA) for n, one in enumerate(drawn)]
    group = GroupRun(SCHEMA, rules[:2] if comes else rules, processes)
    found, latest = [], group.watermark_ms
    for number, cut in enumerate([events[:before], events[before:]]):
        if number:
            group.change(rules if comes else rules[:1], latest)
        latest = max(latest, *(e.ms for e in cut))
        rows = [(e.ms, e.partition, e.offset, {**e.row, "amount": 100 * _amount(e.row)}) for e in cut]
        found += group.cut(rows, latest - DISORDER * MINUTE)
    found += group.cut([], END)
    own = [[(o.partition, o.offset) for o in f.events] for f in found if f.rule.rule.id == "r0"]
    assert own == [places for _, _, places, *_ in run(drawn[:1], events, [len(events)])]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 4)
@given(rule_lists, arrivals(), sizes_of_cuts, st.sampled_from([0, 1, 2]))
def test_with_a_limit_on_partials_the_result_and_its_order_still_depend_on_the_events_alone(
    drawn: list[Drawn], events: list[Event], sizes: list[int], processes: int
) -> None:
    whole = run(drawn, events, [len(events)], limit=2)
    assert run(drawn, events, sizes, processes, limit=2) == whole


#: The quiet time after the eleventh event ends between two events; its deadline must be known after a restart.
_QUIET = Drawn(((0, 1, None), (0, 0, 15)), 15, "past_last", common=False)
_ELEVEN_AND_ONE = [
    Event(T0 + minute * MINUTE, 0, n, {"user": "u", "kind": "a", "amount": 0})
    for n, minute in enumerate([0] * 11 + [16])
]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 10)
@example([_QUIET], _ELEVEN_AND_ONE, [1], True)
@given(rule_lists, arrivals(), sizes_of_cuts, st.booleans())
def test_the_kernel_gives_the_alerts_of_the_oracle(
    drawn: list[Drawn], events: list[Event], sizes: list[int], restart: bool
) -> None:
    kernel = RulesFactory((RuleStream(SCHEMA, "acts"),))
    watermark, state = WatermarkStrategy(max_out_of_orderness_ms=DISORDER * MINUTE), StateSettings(buckets=2)
    spec = App("t", (Source(SCHEMA, "acts"),), "c", {}, (kernel,), shards=2, watermark=watermark, state=state)
    app = InProcessApp(spec)
    out = app.cut([control_record(n, f"r{n}", one.document(f"r{n}")) for n, one in enumerate(drawn)], CLOCK)
    end = [Event(END, partition, 99, {"user": "end", "kind": "z", "amount": 1}) for partition in (0, 1)]
    for number, cut in enumerate([*split_into_cuts(events, sizes), end]):
        app = InProcessApp(spec, app.blobs) if restart else app
        records = [RawRecord(0, e.partition, e.offset, orjson.dumps({**e.row, "ts": e.ms})) for e in cut]
        out += app.cut(records, CLOCK, tasks=1 + number % 2)
    assert {orjson.loads(r.value or b"")["status"] for r in out if r.lane == STATUS} == {"accepted"}
    assert not [r for r in out if r.lane == LATE]
    alerts = [orjson.loads(r.value or b"") for r in out if r.lane == ALERTS]
    matches = [
        (
            a["rule"],
            a["key"]["user"],
            [(e["partition"], e["offset"]) for e in a["events"]],
            a["window"]["start_ms"],
            a["window"]["end_ms"],
        )
        for a in alerts
    ]
    assert sorted(matches, key=str) == expected_matches(drawn, events)
    assert len({a["alert_id"] for a in alerts}) == len(alerts)
