"""Keyed functions: states, outputs, failures, limits, broadcast, time to live."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import polars as pl
import pytest

from streamcore.errors import ConfigError
from streamcore.keyed import (
    AggregatingState,
    KeyedLimits,
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
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.failures import FAILED
from streamcore.operators.process import FAILED_CONTROL, ProcessOperator
from streamcore.schema import EVENT_MS
from tests.harness.apps.keyed_operator import CONTROL, EVENTS, Runner, frame, runner


class Pair(NamedTuple):
    events: int
    total: int


def add_to_mean(mean: tuple[int, int], n: int) -> tuple[int, int]:
    return mean[0] + 1, mean[1] + n


def mean_value(mean: tuple[int, int]) -> float:
    return mean[1] / mean[0]


class EveryState(ProcessFunction):
    outputs = {
        MAIN: {
            "total": pl.Int64,
            "money": pl.Decimal(18, 2),
            "recent": pl.String,
            "seen": pl.String,
            "best": pl.Int64,
            "mean": pl.Float64,
            "pair": pl.String,
        }
    }
    total = ValueState(int, default=0)
    money = ValueState(pl.Decimal(18, 2), default=Decimal(0))
    recent = ListState(int, most=3)
    seen = MapState(int, str)
    best = ReducingState(max, int)
    mean = AggregatingState((0, 0), add=add_to_mean, result=mean_value)
    pair = ValueState(Pair, default=Pair(0, 0))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += event.n
        self.money += Decimal(event.n) / 4
        self.recent.append(event.n)
        self.seen[event.n % 3] = event.key + str(event.n)
        self.best.add(event.n)
        self.mean.add(event.n)
        self.pair = Pair(self.pair.events + 1, self.pair.total + event.n)
        yield {
            "total": self.total,
            "money": self.money,
            "recent": str(list(self.recent)),
            "seen": str(dict(self.seen)),
            "best": self.best.value,
            "mean": self.mean.value,
            "pair": str(self.pair),
        }


def test_every_kind_of_state_is_kept_by_key_and_survives_a_restart_after_any_cut() -> None:
    run = runner(EveryState())
    events = [("a", 1, 0), ("b", 10, 0), ("a", 4, 1), ("a", 3, 2), ("b", 7, 3), ("a", 2, 4)]
    found = []
    for event in events:
        found += run.cut([event])[MAIN]
        run.restart()
    assert found == runner(EveryState()).cut(events)[MAIN]
    assert found[-1] == (
        10,
        Decimal("2.50"),
        "[4, 3, 2]",
        "{1: 'a4', 0: 'a3', 2: 'a2'}",
        4,
        2.5,
        "Pair(events=4, total=10)",
        4,
    )
    assert run.stored_rows("values")["state.total"].dtype == pl.Int64
    assert run.stored_rows("values")["state.money"].dtype == pl.Decimal(18, 2)


@pytest.mark.slow
def test_a_total_kept_over_small_cuts_is_the_sum_of_its_events() -> None:
    run = runner(EveryState())
    for n in range(40):
        run.cut([("k", n, n)])
        if n % 7 == 0:
            run.restart()
    assert run.cut([("k", 40, 40)])[MAIN][0][0] == sum(range(41))


class Clearing(ProcessFunction):
    outputs = {MAIN: {"state": pl.String}}
    value = ValueState(int)
    items = ListState(int)
    entries = MapState(str, int)
    best = ReducingState(max, int)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n == 0:
            del self.value, self.best
            self.items.clear()
            self.entries.clear()
        elif event.n == 1:
            self.value, self.items, self.entries = 5, [1, 2, 3], {"a": 1, "b": 2}
            self.best.add(3)
        elif event.n == 2:
            self.items.popleft()
            del self.entries["a"]
        yield {"state": f"{self.value} {list(self.items)} {dict(self.entries)} {self.best.value}"}


def test_deleted_state_stays_deleted_after_a_restart_and_a_key_without_state_is_dropped() -> None:
    run = runner(Clearing())
    assert run.cut([("a", 1, 0), ("b", 1, 0)])[MAIN][0][0] == "5 [1, 2, 3] {'a': 1, 'b': 2} 3"
    run.cut([("a", 2, 1), ("b", 0, 1)])
    for _ in range(8):
        run.restart()
        assert run.cut([("a", 3, 2), ("b", 3, 2)])[MAIN] == [("5 [2, 3] {'b': 2} 3", 2), ("None [] {} None", 2)]
    run.cut([("a", 0, 3)])
    run.cut()
    assert run.stored_rows("values").height == run.stored_rows("entries").height == 0
    run.cut([("b", 1, 4)])
    run.restart()
    assert run.cut([("b", 3, 5)])[MAIN] == [("5 [1, 2, 3] {'a': 1, 'b': 2} 3", 5)]


class Fragile(ProcessFunction):
    outputs = {MAIN: {"n": pl.Int64}, "side": {"text": pl.String}}
    total = ValueState(int, default=0)
    items = ListState(int)
    entries = MapState(int, int)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n < 0:
            self.total += 1000
            self.items.popleft()
            self.items.append(1000)
            self.entries[1000] = 1
            del self.entries[next(iter(self.entries))]
            self.entries[next(iter(self.entries))] = 99
            context.timers.clear()
            context.timers.set(1_000)
            context.side("side", {"text": "never seen"})
            yield {"n": -1}
            if event.n == -2:
                self.items.clear()
                self.entries = {7: 7}
            raise ValueError("as asked for \ud800")
        self.total += event.n
        self.items.append(event.n)
        self.entries[event.n] = self.total
        context.timers.set(100)
        yield {"n": self.total}

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        context.side("side", {"text": f"{at_ms} {self.total} {list(self.items)} {dict(self.entries)}"})
        return ()


@pytest.mark.parametrize("bad", [-1, -2])
def test_a_call_that_raises_has_no_effect_and_its_row_goes_to_the_failed_port(bad: int) -> None:
    events = [("k", 1, 1), ("k", 2, 2), ("k", bad, 3), ("k", 3, 4)]
    whole, cut = runner(Fragile()), runner(Fragile())
    ports = whole.cut(events, watermark_ms=2_000)
    assert ports[MAIN] == [(1, 1), (3, 2), (6, 4)]
    assert ports["side"] == [("100 6 [1, 2, 3] {1: 1, 2: 3, 3: 6}", 100)]
    assert ports[FAILED] == [("k", bad, "Fragile.process: ValueError: as asked for ?", 3)]
    assert whole.operator.metrics() == {"failed": 1, "timers_fired": 1}
    for event in events:
        cut.cut([event])
        cut.restart()
    assert cut.cut(watermark_ms=2_000)["side"] == ports["side"]


class Misfits(ProcessFunction):
    outputs = {MAIN: {"small": pl.Int8, "money": pl.Decimal(5, 2)}}
    total = ValueState(int, default=0)
    rows: list[object] = []

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += 1
        yield {"small": self.total, "money": None}
        yield self.rows[event.n]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"small": 300, "money": None}, "port main, column small: 300 (int) is not a whole number from -128 to 127"),
        ({"small": True, "money": None}, "port main, column small: True (bool) is not a whole number from -128 to 127"),
        (
            {"small": 1, "money": Decimal("1.005")},
            "port main, column money: Decimal('1.005') (Decimal) is not an exact",
        ),
        ({"small": 1, "money": Decimal(1000)}, "port main, column money: Decimal('1000') (Decimal) is not an exact"),
        ({"small": 1, "money": Decimal("NaN")}, "port main, column money: Decimal('NaN') (Decimal) is not an exact"),
        ({"small": 1}, "port main: columns missing: ['money'], columns not declared: []"),
        ({"small": 1, "wrong": 1}, "port main: columns missing: ['money'], columns not declared: ['wrong']"),
        (7, "port main: a row is a mapping from columns to values or an event, not 7 (int)"),
    ],
)
def test_a_row_that_does_not_fit_fails_its_call_with_function_column_and_value_in_the_reason(
    row: object, reason: str
) -> None:
    class Function(Misfits):
        rows = [row, {"small": 1, "money": Decimal("2.5")}]

    run = runner(Function())
    ports = run.cut([("k", 0, 0), ("k", 1, 0)])
    assert ports[FAILED][0][2].startswith(f"Function.process: ValueTypeMismatch: {reason}")  # type: ignore[attr-defined]
    assert ports[MAIN] == [(1, None, 0), (1, Decimal("2.50"), 0)]


class Passing(ProcessFunction):
    outputs = {MAIN: EVENTS}

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        return [event]


def test_an_event_can_be_passed_on_for_a_key_that_is_null_or_has_several_columns_or_none() -> None:
    assert runner(Passing()).cut([(None, 1, 5), ("a", None, 6)])[MAIN] == [(None, 1, 5), ("a", None, 6)]
    for key in (["key", "n"], []):
        operator = ProcessOperator(EveryState(), key=key, events=EVENTS)
        ports = operator.step([frame([("a", 1, 0), ("a", 2, 0), ("a", 1, 0)])], CutTime(0, 0, 0))
        assert ports[MAIN]["total"].to_list() == ([1, 2, 2] if key else [1, 3, 4])
        assert operator.tables()["values"].changes().height == (2 if key else 1)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Odd(ProcessFunction):
    outputs = {MAIN: {}}

    def process(self, event: Any, context: ProcessContext) -> None:
        raise Silent if event.n else ValueError(f"about {object()}")


def test_a_reason_is_the_same_in_every_run_of_the_cut() -> None:
    reasons = [row[2] for row in runner(Odd()).cut([("a", 0, 0), ("a", 1, 0)])[FAILED]]
    assert reasons == [
        "Odd.process: ValueError: about <object object at 0x...>",
        "Odd.process: Silent: (its message cannot be read)",
    ]


class Values(ProcessFunction):
    outputs = {MAIN: {}}
    any_value = ValueState[Any]()
    number = ValueState(int)
    given: list[object] = []

    def process(self, event: Any, context: ProcessContext) -> None:
        self.any_value = self.given[0]


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, object(), (1, [2]), "\ud800"])
def test_a_mutable_or_unstorable_value_is_rejected_when_it_is_written(value: object) -> None:
    class Function(Values):
        given = [value]

    assert "state any_value: " in str(runner(Function()).cut([("a", 1, 0)])[FAILED])


class Velocity(ProcessFunction):
    """The example in the documentation."""

    outputs = {MAIN: {"user": pl.String, "total": pl.Decimal(18, 2)}, "quiet": {"user": pl.String}}
    total = ValueState(pl.Decimal(18, 2), default=Decimal(0))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.total += event.amount
        context.timers.clear()
        context.timers.set(context.event_ms + 3_600_000)
        yield {"user": event.user, "total": self.total}

    def on_timer(self, at_ms: int, context: ProcessContext) -> None:
        context.side("quiet", {"user": context.key})
        del self.total


def test_the_example_of_the_documentation_works() -> None:
    schema = {"user": pl.String(), "amount": pl.Decimal(12, 2)}
    operator = ProcessOperator(Velocity(), key=["user"], events=schema)
    amounts = [Decimal("1.50"), Decimal("2.25"), Decimal(1)]
    rows = pl.DataFrame(
        {"user": ["a", "a", "b"], "amount": amounts, EVENT_MS: [0, 1, 2]}, {**schema, EVENT_MS: pl.Int64}
    )
    ports = operator.step([rows], CutTime(0, 3_600_001, 0))
    assert ports[MAIN]["total"].to_list() == [Decimal("1.50"), Decimal("3.75"), Decimal("1.00")]
    assert ports["quiet"].rows() == [("a", 3_600_001)]


# --- limits -------------------------------------------------------------------------------------------------------


class Full(ProcessFunction):
    outputs = {MAIN: {"state": pl.String}}
    oldest = MapState(int, int, most=2)
    rejected = MapState(int, int, most=2, when_full=WhenFull.REJECT)
    elements = ListState(int, most=1, when_full=WhenFull.REJECT)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.oldest[event.n] = 1
        self.rejected[event.n] = 1
        self.elements.append(event.n)
        yield {"state": f"{list(self.oldest)} {list(self.rejected)} {list(self.elements)}"}


def test_elements_over_a_limit_are_dropped_or_rejected_as_declared_and_counted() -> None:
    run = runner(Full())
    rows = run.cut([("k", n, n) for n in (1, 2, 1, 3)])[MAIN]
    assert rows[-1][0] == "[1, 3] [2, 1] [1]"
    assert run.operator.metrics() == {"entries_dropped": 1, "entries_rejected": 4}
    run.restart()
    assert run.cut([("k", 4, 0)])[MAIN][0][0] == "[3, 4] [2, 1] [1]"


def test_events_of_new_keys_fail_at_the_limit_of_keys_until_a_key_is_dropped() -> None:
    run = runner(Clearing(), limits=KeyedLimits(keys=2))
    ports = run.cut([("a", 1, 0), ("b", 1, 0), ("c", 1, 0), ("a", 3, 0)])
    assert len(ports[MAIN]) == 3
    assert ports[FAILED] == [("c", 1, "Clearing.process: OverflowError: the limit of 2 keys is reached", 0)]
    assert run.operator.metrics() == {"failed": 1, "keys_rejected": 1}
    run.cut([("a", 0, 1)])
    assert not run.cut([("c", 1, 2)])[FAILED]


# --- time to live -------------------------------------------------------------------------------------------------


def function_with_ttl(domain: TimeDomain, refresh: Refresh) -> ProcessFunction:
    class Lasting(ProcessFunction):
        outputs = {MAIN: {"state": pl.String}}
        value = ValueState(int, ttl=Ttl("10ms", domain, refresh))
        items = ListState(int, ttl=Ttl("10ms", domain, refresh))
        entries = MapState(str, int, ttl=Ttl("10ms", domain, refresh))

        def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
            if event.n:
                self.value = event.n
                self.items.append(event.n)
                self.entries[str(event.n)] = event.n
            yield {"state": f"{self.value} {list(self.items)} {dict(self.entries.items())}"}

    return Lasting()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("domain", list(TimeDomain))
@pytest.mark.parametrize("refresh", list(Refresh))
@pytest.mark.quick_cases(2)
def test_a_value_expires_exactly_at_its_time_whatever_refreshes_it(
    domain: TimeDomain, refresh: Refresh, restart: bool
) -> None:
    run = runner(function_with_ttl(domain, refresh))

    def at(ms: int, n: int) -> object:
        run.clock_ms = run.watermark_ms = ms
        result = run.cut([("k", n, ms)])[MAIN][0][0]
        if restart:
            run.restart()
        return result

    assert at(0, 1) == "1 [1] {'1': 1}"
    assert at(5, 2) == "2 [1, 2] {'1': 1, '2': 2}"
    assert at(9, 0) == "2 [1, 2] {'1': 1, '2': 2}"
    if refresh is Refresh.ON_WRITE:
        assert at(10, 0) == "2 [2] {'2': 2}"
        assert at(14, 0) == "2 [2] {'2': 2}"
        assert at(15, 0) == "None [] {}"
    else:
        assert at(18, 0) == "2 [1, 2] {'1': 1, '2': 2}"
        assert at(28, 0) == "None [] {}"


def test_expired_state_is_never_read_even_before_its_cleanup() -> None:
    run = runner(function_with_ttl(TimeDomain.EVENT, Refresh.ON_WRITE))
    assert run.cut([("k", 1, 0), ("k", 0, 9), ("k", 0, 10)])[MAIN][2][0] == "None [] {}"


def test_an_event_out_of_order_neither_shortens_a_time_to_live_nor_reads_expired_state() -> None:
    run = runner(function_with_ttl(TimeDomain.EVENT, Refresh.ON_WRITE))
    assert run.cut([("k", 1, 5), ("k", 2, 0), ("k", 0, 14)])[MAIN][2][0] == "2 [1, 2] {'1': 1, '2': 2}"
    assert run.cut([("k", 0, 15)], watermark_ms=15)[MAIN][0][0] == "None [] {}"
    assert run.cut([("k", 0, 3)])[MAIN][0][0] == "None [] {}"


class Cleared(ProcessFunction):
    outputs = {MAIN: {"state": pl.Int64}}
    value = ValueState(int, ttl=Ttl("10ms"))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n < 0:
            del self.value
        elif event.n > 0:
            self.value = event.n
        yield {"state": self.value}


@pytest.mark.parametrize("restart", [False, True])
def test_a_cleared_value_leaves_no_expiry_time_for_the_next_one(restart: bool) -> None:
    run = runner(Cleared())
    run.cut([("k", 1, 0), ("k", -1, 20)])
    if restart:
        run.restart()
    assert run.cut([("k", 2, 0), ("k", 0, 9), ("k", 0, 10)])[MAIN] == [(2, 0), (2, 9), (None, 10)]


class Queue(ProcessFunction):
    outputs = {MAIN: {"state": pl.String}}
    items = ListState(int, ttl=Ttl("10ms"))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n > 0:
            self.items.append(event.n)
        elif event.n < 0:
            self.items.popleft()
        yield {"state": str(list(self.items))}


def test_an_element_of_an_earlier_event_lives_as_long_as_the_elements_before_it() -> None:
    rows = runner(Queue()).cut([("k", 1, 5), ("k", 2, 0), ("k", -1, 6), ("k", 0, 14), ("k", 0, 15)])[MAIN]
    assert [row[0] for row in rows[2:]] == ["[2]", "[2]", "[]"]


@pytest.mark.parametrize("domain", list(TimeDomain))
def test_each_cut_cleans_up_the_expired_state_of_one_bucket(domain: TimeDomain) -> None:
    run = runner(function_with_ttl(domain, Refresh.ON_WRITE))
    run.cut([(str(n), 1, 0) for n in range(100)], watermark_ms=0)
    left = []
    for n in range(run.buckets):
        run.cut(watermark_ms=100 + n, clock_ms=100 + n)
        left.append(sum(v is not None for v in run.operator._store.cells["value"].values))
    assert 0 == left[-1] < left[1] < left[0] < 100
    assert run.operator.metrics() == {"expired": 300}
    run.cut()
    assert len(run.operator._store.keys) == 0


# --- broadcast ----------------------------------------------------------------------------------------------------


class Thresholds(ProcessFunction):
    outputs = {MAIN: {"n": pl.Int64}, "all": {"text": pl.String}}
    total = ValueState(int, default=0)

    def process_control(self, record: Any, context: ProcessContext) -> None:
        if record.value is None:
            del context.broadcast[record.name]
        else:
            context.broadcast[record.name] = record.value
        if record.value == 13:
            raise ValueError("unlucky")
        if record.value == 14:
            self.total += 1

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        context.side("all", {"text": str(dict(context.broadcast))})
        if event.n == 0:
            context.broadcast["x"] = 1
        if event.n > context.broadcast.get("limit", 5):
            yield {"n": event.n}


def controlled_runner() -> Runner:
    return Runner(lambda: ProcessOperator(Thresholds(), key=["key"], events=EVENTS, control=CONTROL))


def test_control_records_precede_the_events_of_their_cut_and_survive_a_restart() -> None:
    run = controlled_runner()
    assert run.cut([("a", 8, 1)], control=[("limit", 7, 0), ("other", 1, 0)])[MAIN] == [(8, 1)]
    run.restart()
    assert not run.cut([("a", 8, 2)], control=[("limit", 8, 0)])[MAIN]
    run.restart()
    assert run.cut([("a", 8, 2)], control=[])["all"] == [("{'other': 1, 'limit': 8}", 2)]
    run.cut(control=[("limit", None, 0)])
    run.restart()
    assert run.cut([("a", 8, 2)], control=[])["all"] == [("{'other': 1}", 2)]


def test_only_control_records_write_broadcast_state_and_one_that_fails_changes_nothing() -> None:
    run = controlled_runner()
    ports = run.cut([("a", 0, 1)], control=[("x", 13, 7), ("y", None, 8), ("z", 14, 9), ("ok", 1, 9)])
    assert [row[0] for row in ports[FAILED_CONTROL]] == ["x", "y", "z"]
    assert "there is no current key here" in str(ports[FAILED_CONTROL][2])
    assert "only process_control may write broadcast state" in str(ports[FAILED])
    assert run.cut([("a", 1, 1)], control=[])["all"] == [("{'ok': 1}", 1)]


# --- invalid functions -----------------------------------------------------------------------------------------


class Reserved(Passing):
    outputs = {FAILED: EVENTS}


class Unordered(Passing):
    migrations = {1: dict}


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (Passing(), {"key": ["nobody"]}, "the key has columns \\['nobody'\\]"),
        (Passing(), {"events": {"key": pl.Float64}}, "cannot be a key"),
        (Passing(), {"events": {"key": pl.UInt64}}, "cannot be a key"),
        (Passing(), {"events": {"key": pl.Decimal(38, 2)}}, "cannot be a key"),
        (Passing(), {"events": {"key": pl.List(pl.Int64)}}, "cannot be a key"),
        (Passing(), {"events": {"key": pl.String, "at": pl.Date}}, "Passing: events: Date"),
        (Passing(), {"events": {"key": pl.String, "__x": pl.String}}, "are reserved for the engine"),
        (Passing(), {"control": CONTROL}, "define a method process_control"),
        (ProcessFunction(), {}, "define a method process"),
        (Reserved(), {}, "are reserved for the operator"),
        (Unordered(), {}, "do not lead to version 1"),
    ],
)
def test_an_invalid_function_is_rejected_when_the_operator_is_built(function: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProcessOperator(function, **{"key": ["key"], "events": EVENTS, **options})


def test_invalid_states_and_limits_are_rejected_when_they_are_declared() -> None:
    for declare in (
        lambda: ValueState(dict),
        lambda: ValueState(pl.Float32),
        lambda: ValueState(int, default="x"),
        lambda: ListState(int, most=0),
        lambda: MapState(float, int),
        lambda: Ttl(0),
        lambda: KeyedLimits(keys=0),
    ):
        with pytest.raises(ConfigError):
            declare()


def test_a_frame_without_a_declared_column_raises_and_names_the_column() -> None:
    operator = ProcessOperator(Passing(), key=["key"], events=EVENTS)
    with pytest.raises(ConfigError, match="the frame lacks n"):
        operator.step([frame([]).drop("n")], CutTime(0, 0, 0))
    with pytest.raises(ConfigError, match=f"the frame lacks {EVENT_MS}"):
        operator.step([frame([]).drop(EVENT_MS)], CutTime(0, 0, 0))
