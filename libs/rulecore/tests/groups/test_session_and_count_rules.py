"""Rules over sessions and count windows, compared with plain Python that processes events one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore import language as lang
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import RuleSetError
from rulecore.factory import RulesFactory
from rulecore.language.columnar.compiler import to_polars
from rulecore.settings import GroupSettings
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record
from tests.harness.apps.compile_failures import compile_with

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
T0 = 1_700_000_000_000 - 1_700_000_000_000 % DAY
CLOCK = T0 + 1000 * DAY
GAP = 5
END = 200 * 24 * 60  # minutes

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "amount": "decimal(12,2)",
            "card": "string",
            "x": "double",
        },
    }
)


@dataclass(frozen=True)
class Pay:
    minute: int
    user: str | None = "a"
    amount: int | None = 1
    card: str | None = "c"
    offset: int = 0

    @property
    def ms(self) -> int:
        return T0 + self.minute * MINUTE

    def record(self) -> RawRecord:
        event = {"ts": self.ms, "user": self.user, "amount": self.amount, "card": self.card}
        x = None if self.amount is None else self.amount / 10
        return RawRecord(0, 0, self.offset, orjson.dumps(event | {"x": x}))


def number_events(events: Sequence[Pay]) -> list[Pay]:
    return [Pay(e.minute, e.user, e.amount, e.card, i) for i, e in enumerate(events)]


# --- conditions, as text and as plain Python --------------------------------------------------------------------------


def amounts(events: Sequence[Pay]) -> list[int]:
    return [e.amount for e in events if e.amount is not None]


def total(events: Sequence[Pay]) -> int | None:
    return sum(amounts(events)) if amounts(events) else None


def mean(events: Sequence[Pay]) -> float | None:
    return sum(amounts(events)) / len(amounts(events)) if amounts(events) else None


def spread(events: Sequence[Pay]) -> float | None:
    values, middle = amounts(events), mean(events)
    if len(values) < 2 or middle is None:
        return None
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1))


def cards(events: Sequence[Pay]) -> int:
    return len({e.card for e in events if e.card is not None})


def money(value: int | None) -> str | None:
    return None if value is None else f"{value}.00"


@dataclass(frozen=True)
class Condition:
    having: str
    true: Callable[[Sequence[Pay]], bool]
    values: Callable[[Sequence[Pay]], Mapping[str, object]]


CONDITIONS = [
    Condition("count(*) >= 3", lambda e: len(e) >= 3, lambda e: {"count(*)": len(e)}),
    Condition("count(*) = 2", lambda e: len(e) == 2, lambda e: {"count(*)": len(e)}),
    Condition("sum(amount) >= 5", lambda e: (total(e) or 0) >= 5, lambda e: {"sum(amount)": money(total(e))}),
    Condition(
        "min(amount) < 1 and count(amount) > 1",
        lambda e: len(amounts(e)) > 1 and min(amounts(e)) < 1,
        lambda e: {"min(amount)": money(min(amounts(e))), "count(amount)": len(amounts(e))},
    ),
    Condition(
        "max(amount) > 4 and user = 'a'",
        lambda e: bool(amounts(e)) and max(amounts(e)) > 4 and e[0].user == "a",
        lambda e: {"max(amount)": money(max(amounts(e)))},
    ),
    Condition("count_distinct(card) >= 2", lambda e: cards(e) >= 2, lambda e: {"count_distinct(card)": cards(e)}),
    Condition(
        "stddev(amount) > 1.1",
        lambda e: (spread(e) or 0) > 1.1,
        lambda e: {"stddev(amount)": pytest.approx(spread(e))},
    ),
    Condition(
        "avg(amount) < 2.3",
        lambda e: mean(e) is not None and (mean(e) or 0) < 2.3,
        lambda e: {"avg(amount)": pytest.approx(mean(e))},
    ),
    Condition("sum(amount) is null", lambda e: total(e) is None, lambda e: {"sum(amount)": None}),
]
WHERES: Mapping[str, Callable[[Pay], bool]] = {
    "user = user or user is null": lambda _: True,
    "amount > 1": lambda e: e.amount is not None and e.amount > 1,
}


@dataclass(frozen=True)
class Spec:
    condition: int
    where: str
    emit: str
    within: tuple[tuple[str, object], ...]

    def document(self, name: str, version: int = 1) -> dict[str, object]:
        return {
            "id": name,
            "version": version,
            "owner": "o",
            "on": "pay",
            "where": self.where,
            "group_by": ["user"],
            "within": dict(self.within),
            "having": CONDITIONS[self.condition].having,
            "emit": self.emit,
            "then": {"severity": "high", "message": "m"},
        }

    def record(self, name: str, version: int = 1) -> RawRecord:
        return control_record(version, name, orjson.dumps(self.document(name, version)))


# --- oracles ----------------------------------------------------------------------------------------------------------


@dataclass
class Session:
    events: list[Pay]
    fired: bool = False

    @property
    def start(self) -> int:
        return min(e.ms for e in self.events)

    @property
    def end(self) -> int:
        return max(e.ms for e in self.events) + GAP * MINUTE


@dataclass
class Expected:
    found: list[dict[str, object]] = field(default_factory=list)

    def fire(self, name: str, spec: Spec, events: Sequence[Pay], bounds: tuple[int, int], at: Pay | None) -> None:
        self.found.append(
            {
                "rule": name,
                "key": {"user": events[0].user},
                "window": {"start_ms": bounds[0], "end_ms": bounds[1]},
                "timing": spec.emit,
                "values": CONDITIONS[spec.condition].values(events),
                "offset": None if at is None else at.offset,
                "event_time_ms": bounds[1] if at is None else at.ms,
            }
        )


def sessions_expected(specs: Mapping[str, Spec], cuts: Sequence[Sequence[Pay]], disorder: int) -> Expected:
    expected = Expected()
    for name, spec in specs.items():
        true, watermark, latest = CONDITIONS[spec.condition].true, -math.inf, -math.inf
        living: list[Session] = []
        for cut in cuts:
            for event in cut:
                if event.ms < watermark or not WHERES[spec.where](event):
                    continue
                near = [
                    s for s in living if s.events[0].user == event.user and s.start - GAP * MINUTE < event.ms < s.end
                ]
                session = Session([e for s in near for e in s.events] + [event], any(s.fired for s in near))
                living = [s for s in living if s not in near] + [session]
                if spec.emit == "early" and not session.fired and true(session.events):
                    session.fired = True
                    expected.fire(name, spec, session.events, (session.start, session.end), event)
            latest = max([latest, *(e.ms for e in cut)])
            watermark = max(watermark, latest - disorder * MINUTE)
            for session in [s for s in living if s.end <= watermark]:
                living.remove(session)
                if spec.emit == "final" and true(session.events):
                    expected.fire(name, spec, session.events, (session.start, session.end), None)
    return expected


def counts_expected(
    specs: Mapping[str, Spec], cuts: Sequence[Sequence[Pay]], disorder: int, idle: float = math.inf
) -> Expected:
    expected = Expected()
    for name, spec in specs.items():
        within = dict(spec.within)
        size = int(str(within["count"]))
        every = int(str(within.get("every", size)))
        true, kept, fired = CONDITIONS[spec.condition].true, dict[str | None, list[Pay]](), set[object]()
        watermark, latest = -math.inf, -math.inf
        for cut in cuts:
            for event in cut:
                if event.ms < watermark or not WHERES[spec.where](event):
                    continue
                mine = kept.setdefault(event.user, [])
                if mine and event.ms - max(e.ms for e in mine) >= idle:
                    mine.clear()
                    fired = {f for f in fired if not (isinstance(f, tuple) and f[0] == event.user)}
                mine.append(event)
                piece = (len(mine) - 1) // every
                window = mine[max(0, (piece + 1) * every - size) :]
                bounds = (min(e.ms for e in window), max(e.ms for e in window))
                if spec.emit == "early":
                    if (event.user, piece) not in fired and true(window):
                        fired.add((event.user, piece))
                        expected.fire(name, spec, window, bounds, event)
                elif len(mine) % every == 0 and len(window) == size and true(window):
                    expected.fire(name, spec, window, bounds, event)
            latest = max([latest, *(e.ms for e in cut)])
            watermark = max(watermark, latest - disorder * MINUTE)
    return expected


# --- running ----------------------------------------------------------------------------------------------------------


def new_app(disorder: int, shards: int = 2, groups: GroupSettings | None = None) -> App:
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),), groups=groups or GroupSettings())
    watermark = WatermarkStrategy(max_out_of_orderness_ms=disorder * MINUTE)
    return App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=shards, watermark=watermark)


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def comparable_entries(alert: Mapping[str, object]) -> dict[str, object]:
    source = alert["source"]
    offset = source["offset"] if isinstance(source, dict) else None
    names = ("rule", "key", "window", "timing", "values", "event_time_ms")
    return {n: alert[n] for n in names} | {"offset": offset}


def sort_alerts(alerts: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return sorted(alerts, key=lambda a: str([a[n] for n in ("rule", "key", "window", "timing", "offset")]))


def run(
    specs: Mapping[str, Spec],
    cuts: Sequence[Sequence[Pay]],
    disorder: int,
    how: str = "one",
    groups: GroupSettings | None = None,
    shards: int = 1,
) -> list[dict[str, object]]:
    """Return all alerts. ``how``: one process; a new one for every cut; or two that take turns."""
    spec = new_app(disorder, shards, groups)
    app = InProcessApp(spec)
    turns = [app, InProcessApp(spec, app.blobs)]
    alerts = lane(app.cut([s.record(n) for n, s in specs.items()], CLOCK), ALERTS)
    for number, cut in enumerate(cuts):
        if how == "new":
            app = InProcessApp(spec, app.blobs)
        runner = turns[1 if number % 3 else 0] if how == "turns" else app
        alerts += lane(runner.cut([e.record() for e in cut], CLOCK), ALERTS)
    return alerts


def split_into_cuts(events: Sequence[Pay], sizes: Sequence[int]) -> list[list[Pay]]:
    cuts: list[list[Pay]] = []
    start = 0
    while start < len(events):
        size = sizes[len(cuts) % len(sizes)]
        cuts.append([*events[start : start + size]])
        start += size
    return [*cuts, [Pay(END, "end", None, None, 10_000)]]


def sessions(emit: str = "early", condition: int = 0, where: str = "amount > 1") -> Spec:
    return Spec(condition, where, emit, (("session", f"{GAP}m"),))


pays = st.lists(
    st.builds(
        Pay,
        st.integers(0, 45),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-1, 6)),
        st.sampled_from(["x", "y", None]),
    ),
    min_size=1,
    max_size=30,
).map(number_events)
sizes = st.lists(st.integers(2, 9), min_size=1, max_size=5)
hows = st.sampled_from(["one", "new", "turns"])
emits = st.sampled_from(["early", "final"])
conditions = st.integers(0, len(CONDITIONS) - 1)
wheres = st.sampled_from([*WHERES])


def name_specs(specs: Sequence[Spec]) -> dict[str, Spec]:
    return {f"r{i}": spec for i, spec in enumerate(specs)}


session_specs = st.lists(st.builds(sessions, emits, conditions, wheres), min_size=1, max_size=4).map(name_specs)
count_withins = st.sampled_from(
    [
        (("count", 3),),
        (("count", 1),),
        (("count", 4), ("every", 2)),
        (("count", 3), ("every", 1)),
        (("count", 6), ("every", 2)),
    ]
)
count_specs = st.lists(st.builds(Spec, conditions, wheres, emits, count_withins), min_size=1, max_size=4).map(
    name_specs
)


@given(session_specs, pays, sizes, st.sampled_from([0, 3, 12, 100]), hows)
def test_session_rules_fire_as_plain_python_predicts(
    specs: dict[str, Spec], events: list[Pay], sizes: list[int], disorder: int, how: str
) -> None:
    cuts = split_into_cuts(events, sizes)
    found = sort_alerts([comparable_entries(a) for a in run(specs, cuts, disorder, how)])
    assert found == sort_alerts(sessions_expected(specs, cuts, disorder).found)


@given(count_specs, pays, sizes, st.sampled_from([0, 12, 100]), hows)
def test_count_rules_fire_as_plain_python_predicts(
    specs: dict[str, Spec], events: list[Pay], sizes: list[int], disorder: int, how: str
) -> None:
    cuts = split_into_cuts(events, sizes)
    found = sort_alerts([comparable_entries(a) for a in run(specs, cuts, disorder, how)])
    assert found == sort_alerts(counts_expected(specs, cuts, disorder).found)


@settings(max_examples=settings().max_examples // 2)
@given(count_specs, pays, sizes, hows, st.integers(1, 12))
def test_a_key_without_events_for_long_starts_without_state(
    specs: dict[str, Spec], events: list[Pay], sizes: list[int], how: str, idle: int
) -> None:
    cuts = split_into_cuts(events, sizes)
    alerts = run(specs, cuts, 0, how, GroupSettings(idle_ms=idle * MINUTE))
    found = sort_alerts([comparable_entries(a) for a in alerts])
    assert found == sort_alerts(counts_expected(specs, cuts, 0, idle * MINUTE).found)


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(session_specs, count_specs, pays, sizes, hows)
def test_the_alerts_do_not_depend_on_how_the_input_is_cut(
    some: dict[str, Spec], more: dict[str, Spec], events: list[Pay], sizes: list[int], how: str
) -> None:
    specs = some | {f"c{n}": s for n, s in more.items()}
    whole, parts = (
        run(specs, cuts, 100, way, shards=1 + (way != "one"))
        for cuts, way in ((split_into_cuts(events, [len(events)]), "one"), (split_into_cuts(events, sizes), how))
    )
    assert sorted(parts, key=str) == sorted(whole, key=str)
    assert len({a["alert_id"] for a in whole}) == len(whole)


# --- single cases -----------------------------------------------------------------------------------------------------


def test_an_event_out_of_order_joins_two_sessions_and_neither_fires_again() -> None:
    app = InProcessApp(new_app(100))
    rules = [sessions(condition=0, where="amount > 1").record("r")]
    events = number_events([Pay(m, amount=2) for m in (0, 1, 2, 8, 9, 5)])
    out = app.cut([*rules, *(e.record() for e in events)], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["window"] == {"start_ms": T0, "end_ms": T0 + (2 + GAP) * MINUTE}


def test_a_session_that_is_joined_before_it_fired_fires_once_with_all_its_events() -> None:
    app = InProcessApp(new_app(100))
    app.cut([sessions(condition=2).record("r"), *(e.record() for e in number_events([Pay(0, amount=2)]))], CLOCK)
    app.cut([Pay(8, amount=2, offset=1).record()], CLOCK)
    (alert,) = lane(app.cut([Pay(4, amount=2, offset=2).record()], CLOCK), ALERTS)
    assert alert["values"] == {"sum(amount)": "6.00"}
    assert alert["window"] == {"start_ms": T0, "end_ms": T0 + (8 + GAP) * MINUTE}


def test_events_a_whole_gap_apart_are_in_two_sessions() -> None:
    spec = sessions("final", condition=1)
    events = number_events([Pay(0, amount=2), Pay(GAP, amount=2), Pay(2 * GAP - 1, amount=2)])
    alerts = run({"r": spec}, split_into_cuts(events, [3]), 0)
    assert [a["window"] for a in alerts] == [
        {"start_ms": T0 + GAP * MINUTE, "end_ms": T0 + (3 * GAP - 1) * MINUTE},
    ]


@pytest.mark.parametrize("within", [{"session": "5m"}, {"count": 6}, {"count": 12, "every": 6}])
def test_another_threshold_keeps_the_counts(within: dict[str, object]) -> None:
    app = InProcessApp(new_app(100))
    first = {**Spec(0, "amount > 0", "early", tuple(within.items())).document("r"), "having": "count(*) >= 100"}
    second = {**first, "version": 2, "having": "count(*) >= 5"}
    events = number_events([Pay(i) for i in range(5)])
    app.cut([control_record(1, "r", orjson.dumps(first)), *(e.record() for e in events[:4])], CLOCK)
    app = InProcessApp(new_app(100), app.blobs)
    out = app.cut([control_record(2, "r", orjson.dumps(second)), events[4].record()], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert (alert["version"], alert["incomplete"], alert["values"]) == (2, False, {"count(*)": 5})


@pytest.mark.parametrize("within", [{"session": "5m"}, {"count": 6}])
def test_a_new_aggregate_is_incomplete_in_a_window_that_began_before_it(within: dict[str, object]) -> None:
    app = InProcessApp(new_app(100))
    first = {**Spec(0, "amount > 0", "early", tuple(within.items())).document("r"), "having": "count(*) >= 100"}
    second = {**first, "version": 2, "having": "min(amount) > 1"}
    app.cut([control_record(1, "r", orjson.dumps(first)), Pay(0, amount=1).record()], CLOCK)
    out = app.cut([control_record(2, "r", orjson.dumps(second)), Pay(1, amount=2, offset=1).record()], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert (alert["incomplete"], alert["values"]) == (True, {"min(amount)": "2.00"})
    again = InProcessApp(new_app(100), app.blobs)
    later = [Pay(60 + i, amount=3, offset=2 + i).record() for i in range(6)]
    assert [a["incomplete"] for a in lane(again.cut(later, CLOCK), ALERTS)] == [False]


def test_a_final_rule_on_a_session_that_ended_while_a_process_was_away_fires_once() -> None:
    spec = new_app(0)
    first = InProcessApp(spec)
    rules = [sessions("final", condition=0).record("r")]
    first.cut([*rules, *(e.record() for e in number_events([Pay(i, amount=2) for i in range(3)]))], CLOCK)
    second = InProcessApp(spec, first.blobs)
    ended = lane(second.cut([Pay(60, "z", offset=3).record()], CLOCK), ALERTS)
    assert len(ended) == 1
    third = InProcessApp(spec, first.blobs)
    for app in (first, third, second):
        assert lane(app.cut([Pay(61, "z", offset=4).record()], CLOCK), ALERTS) == []


def test_a_restart_does_not_restore_a_session_that_was_merged_into_another() -> None:
    spec = new_app(100)
    app = InProcessApp(spec)
    rules = [sessions("final", condition=0).record("r")]
    app.cut([*rules, *(e.record() for e in number_events([Pay(m, amount=2) for m in (0, 8)]))], CLOCK)
    app.cut([Pay(4, amount=2, offset=2).record()], CLOCK)
    app = InProcessApp(spec, app.blobs)
    (alert,) = lane(app.cut([Pay(END, "end", None, None, 3).record()], CLOCK), ALERTS)
    assert alert["values"] == {"count(*)": 3}
    final_of_the_absorbed = sessions("final", condition=1).record("r", 2)
    again = InProcessApp(spec)
    again.cut(
        [final_of_the_absorbed, *(e.record() for e in number_events([Pay(m, amount=2) for m in (0, 8, 9)]))], CLOCK
    )
    again.cut([Pay(4, amount=2, offset=3).record()], CLOCK)
    again = InProcessApp(spec, again.blobs)
    assert lane(again.cut([Pay(END, "end", None, None, 4).record()], CLOCK), ALERTS) == []


def test_a_count_window_whose_slide_does_not_divide_it_is_rejected() -> None:
    document = Spec(0, "amount > 0", "final", (("count", 10), ("every", 3))).document("r")
    with pytest.raises(RuleSetError, match="every: 3 must divide count: 10"):
        compile_rule(Rule.model_validate(document), {"pay": SCHEMA}, RuleLimits())


def test_a_rule_that_raises_goes_into_quarantine_and_its_group_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_or_break(expr: lang.Expr) -> pl.Expr:
        return pl.col("no such column") if "99" in lang.render(expr) else to_polars(expr)

    compile_with(monkeypatch, compile_or_break)
    for within in ({"session": "5m"}, {"count": 6}):
        app = InProcessApp(new_app(100, shards=1))
        base = Spec(0, "amount > 0", "early", tuple(within.items()))
        bad = [
            {**base.document("having"), "having": "count(*) + 99 > 99"},
            {**base.document("argument"), "having": "sum(amount + 99) > 1"},
            {**base.document("where"), "where": "amount > -99"},
        ]
        rules = [control_record(1, str(d["id"]), orjson.dumps(d)) for d in [base.document("good"), *bad]]
        out = app.cut([*rules, *(e.record() for e in number_events([Pay(i) for i in range(3)]))], CLOCK)
        quarantined = {s["rule"] for s in lane(out, STATUS) if s["status"] == "quarantined"}
        assert quarantined == {"having", "argument", "where"}
        assert [a["rule"] for a in lane(out, ALERTS)] == ["good"]


@pytest.mark.slow
def test_sums_of_doubles_do_not_depend_on_the_cuts() -> None:
    base = Spec(0, "amount > -99", "early", (("count", 1_000),))
    documents = [
        {**base.document("c"), "having": "count(*) >= 29 and sum(x) > 0"},
        {**base.document("s"), "within": {"session": "5m"}, "having": "count(*) >= 29 and sum(x) > 0"},
    ]
    rules = [control_record(1, str(d["id"]), orjson.dumps(d)) for d in documents]
    events = number_events([Pay(i, amount=(7 * i) % 13 + 1) for i in range(30)])
    found = []
    for size in (1, 7, 30):
        app = InProcessApp(new_app(100))
        alerts = lane(app.cut(rules, CLOCK), ALERTS)
        for cut in split_into_cuts(events, [size]):
            alerts += lane(app.cut([e.record() for e in cut], CLOCK), ALERTS)
        found.append([a["values"] for a in alerts])
    assert len(found[0]) == 2
    assert all(values == found[0] for values in found)
