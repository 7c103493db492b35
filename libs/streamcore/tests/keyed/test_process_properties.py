"""Random scripts of everything a keyed function can do, compared with a plain dictionary.

``n`` of an event is an instruction (tens) and its argument (ones).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.durations import Milliseconds
from streamcore.keyed import (
    AggregatingState,
    ListState,
    MapState,
    ProcessContext,
    ProcessFunction,
    ReducingState,
    Refresh,
    TimeDomain,
    Ttl,
    ValueState,
    WhenFull,
)
from streamcore.operators.base import MAIN
from streamcore.operators.failures import FAILED
from streamcore.state import MemoryBlobs
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK
from tests.harness.apps.keyed_operator import Event, Runner, runner

TTL_MS = Milliseconds(7)
INSTRUCTIONS = 16


def add_to_mean(mean: tuple[int, int], n: int) -> tuple[int, int]:
    return mean[0] + 1, mean[1] + n


class Scripted(ProcessFunction):
    outputs = {MAIN: {"text": pl.String}}
    value = ValueState(int, default=0)
    items = ListState(int, most=3)
    entries = MapState(int, int, most=2, when_full=WhenFull.REJECT)
    best = ReducingState(max, int)
    mean = AggregatingState((0, 0), add=add_to_mean, result=str)
    brief = ValueState(int, ttl=Ttl(TTL_MS))
    brief_items = ListState(int, ttl=Ttl(TTL_MS, TimeDomain.CLOCK))
    brief_entries = MapState(int, int, most=3, ttl=Ttl(TTL_MS, TimeDomain.CLOCK, Refresh.ON_READ))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.run(event.n, context)
        yield {"text": self.text(context)}

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        self.items.append(at_ms)
        if at_ms % 3 == 0:
            context.timers.set(at_ms + 2, context.domain)
        yield {"text": f"{context.domain} {at_ms} {self.text(context)}"}

    def text(self, context: ProcessContext) -> str:
        return (
            f"{context.key} {self.value} {list(self.items)} {list(self.entries.items())} {self.best.value} "
            f"{self.mean.value} {self.brief} {list(self.brief_items)} {list(self.brief_entries)}"
        )

    def run(self, n: int, context: ProcessContext) -> None:  # noqa: PLR0912  # one branch an instruction
        do, a = divmod(n, 10)
        match do:
            case 0:
                self.value += a
            case 1:
                del self.value, self.best, self.mean, self.brief
            case 2:
                self.items.extend([a, a + 1])
            case 3:
                self.items.popleft()
            case 4:
                self.items = [a]
            case 5:
                self.entries[a] = context.event_ms
            case 6:
                del self.entries[a % 3]
            case 7:
                self.entries = {a: 1, a + 1: 2}
            case 8:
                self.best.add(a)
                self.mean.add(a)
            case 9:
                self.brief = a
            case 10:
                self.brief_items.append(a)
            case 11:
                self.brief_entries[a % 4] = a
            case 12:
                self.brief_entries.get(a % 4)
            case 13:
                context.timers.set(context.event_ms + a)
                context.timers.set(context.clock_ms + a, TimeDomain.CLOCK)
            case 14:
                context.timers.delete(context.event_ms + a)
                context.timers.clear(TimeDomain.CLOCK)
            case _:
                for other in (0, 2, 6, 7, 9, 10, 11, 12, 13):
                    self.run(other * 10 + a, context)
                self.items.clear()
                self.brief_entries.clear()
                raise ValueError("undo all this")


class Oracle:
    """The same, written as plainly as possible; a failing call works on a copy that is discarded."""

    def __init__(self) -> None:
        self.keys: dict[Any, dict[str, Any]] = {}
        self.timers: list[tuple[str, int, Any]] = []  # in order of setting
        self.watermark_ms = NO_WATERMARK

    def cut(self, events: list[Event], watermark_ms: int, clock_ms: int) -> tuple[list[Any], list[Any]]:
        self.out: list[Any] = []
        self.failed: list[Any] = []
        self.clock_ms = clock_ms
        self.fire("clock", clock_ms)
        for key, n, ms in events:
            state, timers = copy.deepcopy(self.state(key)), list(self.timers)
            try:
                assert n is not None
                self.run(key, n, ms, max(ms, self.watermark_ms))
                self.out.append((self.text(key, max(ms, self.watermark_ms)), ms))
            except (KeyError, IndexError, ZeroDivisionError):
                self.keys[key], self.timers = state, timers
                self.failed.append((key, n, ms))
        while True:
            self.fire("event", watermark_ms)
            self.watermark_ms = watermark_ms
            if not self.fire("clock", clock_ms):
                return self.out, self.failed

    def state(self, key: Any) -> dict[str, Any]:
        empty: dict[str, Any] = {"value": 0, "items": [], "entries": {}, "best": None, "mean": None, "brief": None}
        return self.keys.setdefault(key, empty | {"brief_items": [], "brief_entries": {}})

    def fire(self, domain: str, until: int) -> bool:
        fired = False
        while due := [t for t in self.timers if t[0] == domain and t[1] <= until]:
            fired, timer = True, min(due, key=lambda t: t[1])
            self.timers.remove(timer)
            _, at, key = timer
            if domain == "event":
                self.watermark_ms = max(self.watermark_ms, at)
            self.state(key)["items"] = [*self.state(key)["items"], at][-3:]
            if at % 3 == 0:
                self.set_timer(domain, at + 2, key)
            self.out.append((f"{domain} {at} {self.text(key, self.watermark_ms)}", at))
        return fired

    def set_timer(self, domain: str, at: int, key: Any) -> None:
        if (domain, at, key) not in self.timers:
            self.timers.append((domain, at, key))

    def brief_entries(self, key: Any) -> dict[int, tuple[int, int]]:
        state = self.state(key)
        live = {k: v for k, v in state["brief_entries"].items() if v[1] + TTL_MS > self.clock_ms}
        state["brief_entries"] = live
        return live

    def text(self, key: Any, now: int) -> str:
        s = self.state(key)
        brief = s["brief"][0] if s["brief"] and s["brief"][1] + TTL_MS > now else None
        brief_items = [v for v, stamp in s["brief_items"] if stamp + TTL_MS > self.clock_ms]
        return (
            f"{key} {s['value']} {s['items']} {list(s['entries'].items())} {s['best']} {s['mean'] and str(s['mean'])} "
            f"{brief} {brief_items} {list(self.brief_entries(key))}"
        )

    def run(self, key: Any, n: int, ms: int, now: int) -> None:  # noqa: PLR0912  # here too
        do, a, s = n // 10, n % 10, self.state(key)
        if do == 0:
            s["value"] += a
        elif do == 1:
            s["value"], s["best"], s["mean"], s["brief"] = 0, None, None, None
        elif do == 2:
            s["items"] = [*s["items"], a, a + 1][-3:]
        elif do == 3:
            s["items"].pop(0)
        elif do == 4:
            s["items"] = [a]
        elif do == 5:
            if a in s["entries"] or len(s["entries"]) < 2:
                s["entries"].pop(a, None)
                s["entries"][a] = ms
        elif do == 6:
            del s["entries"][a % 3]
        elif do == 7:
            s["entries"] = {a: 1, a + 1: 2}
        elif do == 8:
            s["best"] = a if s["best"] is None else max(a, s["best"])
            s["mean"] = (1, a) if s["mean"] is None else (s["mean"][0] + 1, s["mean"][1] + a)
        elif do == 9:
            old = s["brief"]
            s["brief"] = (a, now if old is None else max(now, old[1]))
        elif do == 10:
            s["brief_items"].append((a, self.clock_ms))
        elif do == 11:
            live = self.brief_entries(key)
            if a % 4 not in live and len(live) == 3:
                del live[next(iter(live))]
            live.pop(a % 4, None)
            live[a % 4] = (a, self.clock_ms)
        elif do == 12:
            live = self.brief_entries(key)
            if a % 4 in live and live[a % 4][1] < self.clock_ms:
                live[a % 4] = (live.pop(a % 4)[0], self.clock_ms)
        elif do == 13:
            self.set_timer("event", ms + a, key)
            self.set_timer("clock", self.clock_ms + a, key)
        elif do == 14:
            gone = [t for t in self.timers if t[2] == key and (t[0] == "clock" or t[1] == ms + a)]
            self.timers = [t for t in self.timers if t not in gone]
        else:
            raise ZeroDivisionError


keys = st.sampled_from(["a", "b", None])
events = st.lists(st.tuples(keys, st.integers(0, 10 * INSTRUCTIONS - 1), st.integers(0, 30)), max_size=6)
#: Events, how far the watermark and the clock move, and whether the process ends after the cut.
cuts = st.lists(st.tuples(events, st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=10)


@settings(max_examples=200)
@given(cuts)
def test_any_function_equals_the_oracle_wherever_it_is_restarted(script: Any) -> None:
    run, oracle = runner(Scripted()), Oracle()
    watermark_ms = clock_ms = 0
    for given_events, watermark_by, clock_by, restart in script:
        watermark_ms, clock_ms = watermark_ms + watermark_by, clock_ms + clock_by
        ports = run.cut(given_events, watermark_ms=watermark_ms, clock_ms=clock_ms)
        expected, failed = oracle.cut(given_events, watermark_ms, clock_ms)
        assert ports.get(MAIN, []) == expected
        assert [(key, n, ms) for key, n, _, ms in ports.get(FAILED, [])] == failed
        if restart:
            run.restart()


@given(cuts)
def test_a_restart_after_every_cut_changes_nothing(script: Any) -> None:
    def run(restart: bool) -> list[Any]:
        one, found, watermark_ms, clock_ms = runner(Scripted()), [], 0, 0
        for given_events, watermark_by, clock_by, _ in script:
            watermark_ms, clock_ms = watermark_ms + watermark_by, clock_ms + clock_by
            found.append(one.cut(given_events, watermark_ms=watermark_ms, clock_ms=clock_ms))
            if restart:
                one.restart()
        return found

    assert run(restart=True) == run(restart=False)


@given(cuts, st.integers(0, 4))
def test_a_process_that_is_some_cuts_behind_catches_up_by_the_log(script: Any, behind: int) -> None:
    make = runner(Scripted()).make
    ahead, other, watermark_ms, clock_ms = Runner(make, buckets=6), Runner(make, buckets=6), 0, 0
    for n, (given_events, watermark_by, clock_by, _) in enumerate(script):
        watermark_ms, clock_ms = watermark_ms + watermark_by, clock_ms + clock_by + 1
        ahead.cut(given_events, watermark_ms=watermark_ms, clock_ms=clock_ms)
        if n == len(script) - 1 - behind:
            other = Runner(make, 6, ahead.blobs)
    head = ahead.blobs.get(HEAD) or b""
    if other.log.head.sequence and not other.log.holds(head):
        tables = other.operator.tables()
        assert other.log.catch_up(head, ahead.blobs, lambda name: tables[name])
        other.operator.on_state_loaded()
        other.watermark_ms, other.clock_ms = watermark_ms, clock_ms
        last = [(key, n, 31) for key in ("a", "b", None) for n in (0, 150, 90, 110)]
        after = watermark_ms + 40, clock_ms + 3
        blobs = MemoryBlobs(dict(ahead.blobs.blobs))
        found = ahead.cut(last, watermark_ms=after[0], clock_ms=after[1])
        other.blobs = blobs
        assert other.cut(last, watermark_ms=after[0], clock_ms=after[1]) == found


class WithoutTimers(Scripted):
    """Depends on the order within a key and on event time only."""

    def text(self, context: ProcessContext) -> str:
        return (
            f"{context.key} {self.value} {list(self.items)} {list(self.entries.items())} {self.mean.value} {self.brief}"
        )


in_order = st.lists(
    st.tuples(keys, st.integers(0, 99), st.integers(0, 5)).map(lambda e: (e[0], e[1], e[2])), max_size=30
)


@given(in_order, st.lists(st.integers(0, 30), max_size=8), st.lists(st.integers(0, 30), max_size=8))
def test_any_cuts_give_the_same_rows_for_a_function_that_depends_only_on_the_order_within_keys(
    steps: list[Event], one: list[int], other: list[int]
) -> None:
    """The same: the same rows in the same order, by cut or in one. No event is late; the watermark follows each cut."""
    given_events, ms = [], 0
    for key, n, gap in steps:
        ms += gap
        given_events.append((key, n, ms))

    def run(borders: list[int]) -> list[Any]:
        here, found, begin = runner(WithoutTimers()), [], 0
        for end in [*sorted(borders), len(given_events)]:
            cut = given_events[begin:end]
            found += here.cut(cut, watermark_ms=max([here.watermark_ms, *(e[2] for e in cut)])).get(MAIN, [])
            begin = max(begin, end)
        return found

    assert run(one) == run(other) == run([])
