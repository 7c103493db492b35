"""Sequences in the kernel equal an oracle that shares nothing with it, however events arrive, are cut and restarted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.factory import RulesFactory, RuleStream
from rulecore.settings import GroupSettings
from rulecore.values import render_duration
from streamcore.app import App, Source
from streamcore.lanes import ALERTS, LATE, STATUS
from streamcore.local import LocalApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.state import StateSettings
from streamcore.watermark import WatermarkStrategy
from tests.oracles.sequences import Event, Row, Wanted, find

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1_000 * 60 * MINUTE
DISORDER = 5  # minutes
SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)

#: What is written in a rule, and the same in Python. A comparison with null is not true.
CONDITIONS: Sequence[tuple[str, Callable[[Row], bool]]] = (
    ("kind = 'a'", lambda r: r["kind"] == "a"),
    ("kind = 'b'", lambda r: r["kind"] == "b"),
    ("kind in ('a', 'b')", lambda r: r["kind"] in ("a", "b")),
    ("kind <> 'a'", lambda r: r["kind"] is not None and r["kind"] != "a"),
    ("amount >= 2", lambda r: r["amount"] >= 2),  # type: ignore[operator]
    ("kind = 'c' and amount < 2", lambda r: r["kind"] == "c" and r["amount"] < 2),  # type: ignore[operator]
    ("upper(kind) = 'C'", lambda r: r["kind"] == "c"),
)


@dataclass(frozen=True)
class Drawn:
    """A sequence: (condition, times, within in minutes or None), times 0 for a ``without``."""

    items: tuple[tuple[int, int, int | None], ...]
    span: int
    skip: str
    common: bool

    def document(self, rule_id: str, version: int = 1, **more: object) -> RawRecord:
        body = {
            "id": rule_id,
            "version": version,
            "owner": "o",
            "on": "acts",
            "group_by": ["user"],
            "sequence": [self._item(n, *item) for n, item in enumerate(self.items)],
            "within": f"{self.span}m",
            "skip": self.skip,
            "then": {"severity": "high", "message": "{user} {count}"},
        }
        where = {"where": "amount <> 1"} if self.common else {}
        return control_record(version, rule_id, orjson.dumps(body | where | more))

    @staticmethod
    def _item(number: int, condition: int, times: int, within: int | None) -> dict[str, object]:
        text = CONDITIONS[condition][0]
        body: dict[str, object] = {"without": text} if not times else {"step": f"s{number}", "where": text}
        if times:
            body["times"] = times
        return body if within is None else body | {"within": render_duration(within * MINUTE)}

    def entries(self) -> list[Wanted]:
        return [Wanted(self._holds(c), times, w and w * MINUTE) for c, times, w in self.items]

    def _holds(self, condition: int) -> Callable[[Row], bool]:
        holds = CONDITIONS[condition][1]
        return lambda r: (not self.common or r["amount"] != 1) and holds(r)


@st.composite
def sequences(draw: st.DrawFn) -> Drawn:
    span = draw(st.integers(1, 25))
    condition, within = st.integers(0, len(CONDITIONS) - 1), st.none() | st.integers(1, span)
    items: list[tuple[int, int, int | None]] = []
    for number in range(draw(st.integers(1, 3))):
        if number and draw(st.booleans()):
            items.append((draw(condition), 0, None))
        items.append((draw(condition), draw(st.integers(1, 3)), draw(within)))
    if draw(st.booleans()) or (len(items) == 1 and items[0][1] == 1):
        items.append((draw(condition), 0, draw(st.integers(1, span))))
    return Drawn(tuple(items), span, draw(st.sampled_from(["past_last", "to_next", "none"])), draw(st.booleans()))


@st.composite
def arrivals(draw: st.DrawFn) -> list[Event]:
    """Events of two partitions in order of arrival, none of them late, many at one time."""
    row = st.fixed_dictionaries(
        {
            "user": st.sampled_from(["u", "u", "v", None]),
            "kind": st.sampled_from(["a", "b", "c", None]),
            "amount": st.integers(0, 3),
        }
    )
    some = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(0, DISORDER - 1), st.integers(0, 1), row), min_size=3, max_size=40
        )
    )
    some.sort(key=lambda e: e[0] + e[1])
    offsets = [0, 0]
    events = []
    for minute, _, partition, values in some:
        events.append(Event(T0 + minute * MINUTE, partition, offsets[partition], values))
        offsets[partition] += 1
    return events


def app(limit: int = 1_000) -> App:
    kernel = RulesFactory((RuleStream(SCHEMA, "acts"),), groups=GroupSettings(partials=limit), shards=2)
    watermark = WatermarkStrategy(disorder_ms=DISORDER * MINUTE)
    state = StateSettings(buckets=2)
    return App("t", (Source(SCHEMA, "acts"),), "control", {}, (kernel,), shards=2, watermark=watermark, state=state)


def raw(event: Event) -> RawRecord:
    return RawRecord(0, event.partition, event.offset, orjson.dumps({**event.row, "ts": event.ms}))


def last_events() -> list[RawRecord]:
    """One in each partition, long after everything."""
    row = {"user": "end", "kind": "z", "amount": 1}
    return [raw(Event(T0 + 10_000 * MINUTE, partition, 10_000, row)) for partition in (0, 1)]


def run(
    rules: Sequence[RawRecord], events: Sequence[Event], sizes: Sequence[int], processes: int, limit: int = 1_000
) -> list[object]:
    """What the product finds, its cuts of these sizes in turn. ``processes`` 0: each cut starts from what is stored;
    more: they take the cuts in turns, each catching up on what the others did."""
    spec = app(limit)
    workers = [LocalApp(spec)]
    workers += [LocalApp(spec, workers[0].blobs) for _ in range(processes - 1)]
    out = workers[0].cut(rules, CLOCK)
    cuts = []
    start = 0
    while start < len(events):
        size = sizes[len(cuts) % len(sizes)]
        cuts.append([raw(e) for e in events[start : start + size]])
        start += size
    for number, cut in enumerate([*cuts, last_events()]):
        worker = workers[number * number % processes] if processes else LocalApp(spec, workers[0].blobs)
        out += worker.cut(cut, CLOCK, tasks=1 + number % 2)
    statuses = [orjson.loads(r.value or b"")["status"] for r in out if r.lane == STATUS]
    assert statuses == ["accepted"] * len(rules)
    assert not [r for r in out if r.lane == LATE]
    return sorted(map(said, (orjson.loads(r.value or b"") for r in out if r.lane == ALERTS)), key=str)


def said(alert: dict[str, object]) -> object:
    key, events = alert["key"], alert["events"]
    assert isinstance(key, dict)
    assert isinstance(events, list)
    assert not alert["warming"]
    places = [(e["partition"], e["offset"]) for e in events]
    return alert["rule"], alert["version"], key["user"], places, alert["event_time_ms"], alert["window"]


def expected(rules: dict[str, Drawn], events: Sequence[Event]) -> list[object]:
    alerts: list[object] = []
    for rule_id, drawn in rules.items():
        for user in ("u", "v", None):
            own = [e for e in events if e.row["user"] == user]
            for found in find(drawn.entries(), drawn.span * MINUTE, own, past_last=drawn.skip == "past_last"):
                places = [(e.partition, e.offset) for e in found.events]
                window = {"start_ms": found.events[0].ms, "end_ms": found.end_ms}
                alerts.append((rule_id, 1, user, places, found.end_ms, window))
    return sorted(alerts, key=str)


@settings(max_examples=settings().max_examples * 2)
@given(st.lists(sequences(), min_size=1, max_size=3), arrivals(), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_what_is_found_is_what_the_oracle_finds_however_the_input_is_cut(
    drawn: list[Drawn], events: list[Event], sizes: list[int]
) -> None:
    rules = {f"r{n}": one for n, one in enumerate(drawn)}
    records = [one.document(rule_id) for rule_id, one in rules.items()]
    assert run(records, events, sizes, processes=1) == expected(rules, events)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(sequences(), min_size=1, max_size=3),
    arrivals(),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([0, 2, 3]),
)
def test_restarts_and_processes_that_were_away_change_nothing(
    drawn: list[Drawn], events: list[Event], sizes: list[int], processes: int
) -> None:
    rules = {f"r{n}": one for n, one in enumerate(drawn)}
    records = [one.document(rule_id) for rule_id, one in rules.items()]
    assert run(records, events, sizes, processes) == expected(rules, events)


@settings(max_examples=settings().max_examples // 2)
@given(sequences(), arrivals(), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.sampled_from([0, 1, 2]))
def test_with_a_limit_on_partials_the_result_still_depends_on_the_events_alone(
    drawn: Drawn, events: list[Event], sizes: list[int], processes: int
) -> None:
    records = [drawn.document("r")]
    whole = run(records, events, [len(events)], processes=1, limit=2)
    assert run(records, events, sizes, processes, limit=2) == whole
