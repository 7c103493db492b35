"""Rules group by fields and expressions that no stream declares as a key, and read features of other keys: the keys are
found from the rules, and every alert is that of a loop over the events in their order of arrival, whatever the shards,
restarts and savepoints."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.records.decoder import EventDecoder
from headgate_rules.app import build_app
from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.control_keys import DECISION_POLICY_KEY, STAGED_KEY
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.rule import Rule
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.records import ListHead, list_records
from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.engine import shuffle
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.kernel import Exchange
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.restore import restore_checkpoint
from streamcore.wire.lanes import ALERTS, LATE, Record
from tests.harness.apps.published_shop import (
    LOGINS,
    NOW_MS,
    ORDERS,
    Shop,
    lane,
    order,
    rule,
    settings,
    statuses,
    window,
)
from tests.harness.apps.versioned_shop import initial_of, moment, save

Event = Mapping[str, Any]
PAYMENTS: dict[str, Any] = {
    "name": "orders",
    "event_time": "at",
    "keys": [["user"], ["shop"]],
    "fields": {
        "at": "timestamp not null",
        "user": "string not null",
        "shop": "string",
        "card": "string",
        "device": "long",
        "email": "string",
        "amount": "long not null",
    },
}
DOMAIN = "split_part(email, '@', 2)"
#: The columns of a key as the reference reads them of an event.
COLUMNS: Mapping[str, Callable[[Event], object]] = {
    "user": lambda e: e["user"],
    "shop": lambda e: e["shop"],
    "card": lambda e: e["card"],
    "device": lambda e: e["device"],
    "lower(email)": lambda e: None if e["email"] is None else e["email"].lower(),
    DOMAIN: lambda e: None if e["email"] is None else ([*e["email"].split("@"), ""][1]),
    "device % 2": lambda e: None if e["device"] is None else e["device"] % 2,
}
KEYS = (
    ("card",),
    ("card", "device"),
    ("lower(email)",),
    (DOMAIN,),
    ("device", DOMAIN),
    ("user",),
    ("user", "lower(email)"),
    ("shop",),
    ("device % 2", "card"),
)


@dataclasses.dataclass
class Tracked:
    """A rule of the reference, and what it has counted since it was accepted."""

    name: str
    key: tuple[str, ...]
    kind: str
    least: int
    others: tuple[tuple[str, ...], ...] = ()
    seen: Counter[tuple[object, ...]] = dataclasses.field(default_factory=Counter)

    def record(self) -> tuple[str, bytes]:
        """Return the control record. No two rules share a feature or an aggregate: their amounts differ."""
        where = f"amount > {int(self.name[1:])}"
        if self.kind == "window":
            having = f"count(*) >= {self.least}"
            return window(self.name, having, group_by=self.key, where=where, within={"tumbling": "1d"})
        if self.kind == "count":
            within = {"count": self.least, "every": self.least}
            return window(self.name, f"count(*) = {self.least}", group_by=self.key, where=where, within=within)
        feature = {"name": "before", "of": "count(*)", "where": where, "within": {"sliding": "1d", "every": "1h"}}
        features = [feature, *({**feature, "name": f"of{n}", "by": key} for n, key in enumerate(self.others))]
        conditions = [f"before >= {self.least}", *(f"of{n} >= {self.least}" for n in range(len(self.others)))]
        return rule(self.name, group_by=self.key, features=features, where=f"{' and '.join(conditions)} and amount > 0")

    def count(self, event: Event) -> bool:
        """Count an event; return whether the rule fires at it."""
        keys = [(n, *(COLUMNS[name](event) for name in key)) for n, key in enumerate((self.key, *self.others))]
        before = min(self.seen[key] for key in keys)
        self.seen.update(keys)
        if self.kind == "window":
            return before + 1 == self.least
        if self.kind == "count":
            return (before + 1) % self.least == 0
        return before >= self.least


def alert_key(alert: Mapping[str, Any], tracked: Tracked) -> tuple[object, ...]:
    return tuple(alert["key"][name] for name in tracked.key)


def draw_events(draw: random.Random, count: int) -> list[Event]:
    return [
        {
            "at": NOW_MS - draw.randrange(600_000) - 600_000,
            "user": draw.choice("abc"),
            "shop": draw.choice(["s1", "s2", None]),
            "card": draw.choice(["c1", "c2", "c3", None]),
            "device": draw.choice([1, 2, 3, 4, None]),
            "email": draw.choice(["A@x.org", "a@X.org", "a@x.org", "b@y.org", "nobody", None]),
            "amount": 100 + draw.randrange(9),
        }
        for _ in range(count)
    ]


@dataclasses.dataclass
class Run:
    """An app in this process with two partitions, and its reference."""

    app: InProcessApp
    folder: Path
    control: int = 0
    offsets: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    live: dict[str, Tracked] = dataclasses.field(default_factory=dict)
    waiting: dict[str, Tracked] = dataclasses.field(default_factory=dict)
    clock: int = NOW_MS
    savepoints: int = 0
    has_stage: bool = False

    def cut(self, published: Sequence[Tracked], deleted: Sequence[str], events: Sequence[Event]) -> None:
        """Run a cut and compare its alerts with those of a loop over its events, in order of partition and offset."""
        changes = [one.record() for one in published] + [(name, None) for name in deleted]
        records = [control_record(self.control + n, key, value) for n, (key, value) in enumerate(changes)]
        self.control += len(changes)
        arrived: list[list[Event]] = [[], []]
        for number, event in enumerate(events):
            partition = (number * 7 + len(events)) % 2
            arrived[partition].append(event)
            records.append(RawRecord(0, partition, self.offsets[partition], orjson.dumps(event)))
            self.offsets[partition] += 1
        self.clock += 1
        output = self.app.cut(records, self.clock, tasks=2)
        self.waiting |= {one.name: one for one in published}
        for answer in statuses(output):
            assert answer["status"] in ("accepted", "deleted"), answer
            if answer["status"] == "deleted":
                del self.live[answer["rule"]]
            else:
                self.live[answer["rule"]] = self.waiting.pop(answer["rule"])
        expected = Counter(
            (one.name, tuple(COLUMNS[name](event) for name in one.key))
            for event in (*arrived[0], *arrived[1])
            for one in self.live.values()
            if one.count(event)
        )
        found = lane(output, ALERTS)
        assert Counter((a["rule"], alert_key(a, self.live[a["rule"]])) for a in found) == expected

    def restart(self) -> None:
        """Begin anew with the durable state."""
        app = new_app(self.folder, self.app.app.shards, self.has_stage)
        self.app = InProcessApp(app, self.app.blobs, streams=self.app.streams, next_offsets=self.app.next_offsets)

    def rescale(self, shards: int) -> None:
        """Restore a savepoint with another number of shards, and with a stage for features from the first one on."""
        self.has_stage = True
        self.savepoints += 1
        name, streams = f"s{self.savepoints}", self.app.streams
        point = dataclasses.replace(moment(), streams=streams)
        saved = save(self.app.app, self.app.blobs, self.folder / "savepoints", point, name)
        app = new_app(self.folder, shards, self.has_stage)
        folder = self.folder / f"checkpoint-{name}"
        root = CheckpointRoot(folder)
        restore_checkpoint(saved, app, check_app_compatibility(saved.manifest, app), root, saved.manifest.epoch + 1)
        assert root.streams.in_force(0) == streams
        blobs = initial_of(folder, app.with_streams(streams))
        self.app = InProcessApp(app, blobs, streams=streams, next_offsets=self.app.next_offsets)


def new_app(folder: Path, shards: int, has_stage: bool = False) -> App:
    disorder = {"max_out_of_orderness_ms": 86_400_000}
    return build_app(settings(folder, PAYMENTS, shards=shards, key_groups=16, feature_stage=has_stage, **disorder))


def draw_rule(draw: random.Random, name: str, *, has_stage: bool) -> Tracked:
    kind = draw.choice(["window", "count", "feature", *(["feature"] * 3 if has_stage else [])])
    others = draw.sample(KEYS, draw.randint(0, 3)) if has_stage and kind == "feature" else ()
    return Tracked(name, draw.choice(KEYS), kind, draw.randint(2, 5 if others else 9), tuple(others))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(8))
def test_alerts_are_those_of_a_loop_over_the_events(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    run = Run(InProcessApp(new_app(tmp_path, 1)), tmp_path)
    numbers = iter(range(1, 99))
    for cut in range(8):
        published = [
            draw_rule(draw, f"r{next(numbers)}", has_stage=run.has_stage) for _ in range(draw.choice([0, 0, 1, 2]))
        ]
        deleted = draw.sample(sorted(run.live), 1) if run.live and not run.waiting and draw.random() < 0.2 else []
        run.cut(published, deleted, draw_events(draw, draw.randrange(25)))
        if cut == 2:
            run.rescale(3)
        elif cut == 5:
            run.rescale(4)
        elif draw.random() < 0.3:
            run.restart()


# --- a new key -------------------------------------------------------------------------------------------------------


def new_shop(folder: Path, *documents: Mapping[str, Any], **entries: Any) -> Shop:
    return Shop(InProcessApp(build_app(settings(folder, *documents, **entries))))


def test_a_rule_by_a_new_key_waits_for_the_next_cut_with_all_behind_it_and_misses_no_event_of_it(
    tmp_path: Path,
) -> None:
    shop = new_shop(tmp_path)
    items = window("items", "count(*) >= 2", group_by=["pieces"])
    first = shop.send(rule("one", where="true"), items, events=[order(1, pieces=1), order(2, pieces=2)])
    assert (statuses(first), lane(first, ALERTS)) == ([], [])
    second = shop.send(rule("two", where="pieces = 3"), events=[order(3, pieces=1), order(4, pieces=1)])
    assert [(one["rule"], one["status"]) for one in statuses(second)] == [
        ("one", "accepted"),
        ("items", "accepted"),
        ("two", "accepted"),
    ]
    counted = [one for one in lane(second, ALERTS) if one["rule"] == "items"]
    assert [(one["key"], one["source"]["offset"], one["incomplete"]) for one in counted] == [({"pieces": 1}, 3, True)]
    again = shop.send(window("more", "sum(total) > 1", group_by=["pieces"]))
    assert [one["status"] for one in statuses(again)] == ["accepted"], "the app has the key already"


def test_a_published_feature_brings_its_key_before_a_rule_reads_it(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    feature = {"feature": "before", "version": 1, "owner": "o", "on": "orders", "by": ["pieces"], "of": "count(*)"}
    document = orjson.dumps({**feature, "within": {"sliding": "1d", "every": "1h"}})
    assert statuses(shop.send(("feature/before", document), events=[order(1, pieces=1)])) == []
    (accepted,) = statuses(shop.send(events=[order(2, pieces=1), order(3, pieces=2)]))
    assert (accepted["subject"], accepted["status"]) == ("feature", "accepted")
    assert further_keys(shop) == (("pieces",),)
    shop.app = InProcessApp(build_app(settings(tmp_path)), shop.app.blobs, streams=shop.app.streams)
    reading = rule("twice", group_by=["pieces"], features=["before"], where="before = 1")
    output = shop.send(reading, events=[order(4, pieces=1), order(5, pieces=2), order(6, pieces=3)])
    assert {one["status"] for one in statuses(output)} == {"accepted"}
    found = sorted((one["key"]["pieces"], one["values"]["before"]) for one in lane(output, ALERTS))
    assert found == [(1, 1), (2, 1)], "the cut that brings the key is counted, the one before is not"


def test_a_list_of_the_same_cut_waits_too(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    head = ListHead.model_validate({"list": "vips", "version": 1, "owner": "o", "of": "string"})
    names = list_records(head, ["a"])
    grouped = window("vip", "count(*) >= 1", group_by=["pieces"], where="user in list('vips')")
    assert statuses(shop.send(*names, grouped)) == []
    output = shop.send(events=[order(1, pieces=1), order(2, pieces=1, user="b")])
    assert {one["status"] for one in statuses(output)} == {"accepted"}
    assert [one["source"]["offset"] for one in lane(output, ALERTS)] == [0]


def test_a_key_that_no_rule_needs_leaves_when_another_comes(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    shop.send(window("a", "count(*) > 1", group_by=["pieces"]), window("b", "count(*) > 1", group_by=["lower(id)"]))
    assert further_keys(shop) == (("lower(id)",), ("pieces",))
    shop.send(("a", None))
    shop.send(window("c", "count(*) > 1", group_by=["total"]), events=[order(1), order(2)])
    assert further_keys(shop) == (("lower(id)",), ("total",))
    output = shop.send(events=[order(3, total="1"), order(4, total="1.00")])
    assert [(one["rule"], one["key"]) for one in lane(output, ALERTS)] == [("c", {"total": "1.00"})]


def further_keys(shop: Shop) -> tuple[tuple[str, ...], ...]:
    (found,) = [one.further_keys for one in shop.app.streams]
    assert found is not None
    return found[1]


def test_there_are_at_most_64_keys_of_a_stream(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    shop.send(*(window(f"r{n}", "count(*) > 1", group_by=[f"pieces % {n + 2}"]) for n in range(65)))
    *accepted, last = statuses(shop.send())
    assert {one["status"] for one in accepted} == {"accepted"}
    assert (last["rule"], last["status"]) == ("r64", "rejected")
    assert last["reason"].startswith("group_by: rules group orders by 64 keys, which is the limit")


def test_a_rule_over_two_streams_needs_no_key_that_they_declare(tmp_path: Path) -> None:
    logins = {**LOGINS, "keys": [["country"]], "fields": {**LOGINS["fields"], "mail": "string"}}
    shop = new_shop(tmp_path, {**ORDERS, "fields": {**ORDERS["fields"], "mail": "string"}}, logins)
    both: dict[str, Any] = {"on": ["logins", "orders"], "group_by": ["lower(mail)"]}
    (rejected,) = statuses(shop.send(window("no", "count(*) > 1", **{**both, "group_by": ["pieces"]})))
    assert "group_by: logins has no pieces, and all streams of a rule need its key" in rejected["reason"]
    shop.send(window("both", "count(distinct _stream) = 2", **both))
    login = {"type": "login", "at": NOW_MS - 999, "user": "z", "country": "CH", "mail": "A@X"}
    output = shop.send(events=[order(1, mail="a@x"), login, order(2, mail="b@x")])
    assert [(one["rule"], one["key"]) for one in lane(output, ALERTS)] == [("both", {"lower(mail)": "a@x"})]


def test_alerts_are_suppressed_by_columns_that_no_stream_declares(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    shop.send(rule("all", where="true", suppress={"for": "1h", "by": ["pieces"]}))
    events = [order(n, user="abcdef"[n], pieces=n % 2) for n in range(6)]
    assert [one["source"]["offset"] for one in lane(shop.send(events=events), ALERTS)] == [0, 1]


def test_the_name_of_a_key_in_having_and_in_the_message_is_its_text(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    then = {"severity": "low", "message": "{lower(id)} has {count}"}
    shop.send(window("r", "count(*) >= 2 and `lower(id)` <> 'b'", group_by=["lower(id)"], then=then))
    output = shop.send(events=[order(n, id="aAbB"[n]) for n in range(4)])
    assert [one["message"] for one in lane(output, ALERTS)] == ["a has 2"]


def test_a_key_of_the_stream_file_that_is_gone_puts_its_rules_into_quarantine(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, {**ORDERS, "keys": [["user"], ["pieces"]]})
    shop.send(window("w", "count(*) >= 2", group_by=["pieces"]), events=[order(1, pieces=1)])
    shop.app = InProcessApp(build_app(settings(tmp_path)), shop.app.blobs)
    assert lane(shop.send(events=[order(2, pieces=1)]), ALERTS) == []
    shop.send(window("w", "count(*) >= 2", 2, group_by=["pieces"]))
    output = shop.send(events=[order(3, pieces=1), order(4, pieces=1)])
    assert [(one["rule"], one["version"]) for one in lane(output, ALERTS)] == [("w", 2)]


def test_a_key_of_a_field_that_the_stream_file_has_no_more_is_left_out(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    shop.send(*(window(f"w{n}", "count(*) >= 2", group_by=[key]) for n, key in enumerate(["pieces % 2", "lower(id)"])))
    fewer = {**ORDERS, "fields": {name: kind for name, kind in ORDERS["fields"].items() if name != "pieces"}}
    app = build_app(settings(tmp_path, fewer)).with_streams(shop.app.streams)
    assert [one.key for one in app.exchanges] == [("user",), ("lower(id)",)]


def test_a_rule_that_begins_at_a_time_has_its_key_before(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    begin = "2027-01-15T08:00:00.003Z"
    shop.send(window("w", "count(*) >= 2", group_by=["pieces"], effective={"from": begin}))
    shop.send(events=[order(n, pieces=1) for n in range(2)])
    output = shop.send(events=[order(n, pieces=1) for n in range(2)])
    assert [one["status"] for one in statuses(output)] == ["effective"]
    assert [one["source"]["offset"] for one in lane(output, ALERTS)] == [3]


# --- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deduplicate", [False, True], ids=["", "deduplicated"])
def test_events_are_sent_by_the_keys_that_rules_need_and_late_ones_by_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deduplicate: bool
) -> None:
    """Sending all changes no output: not alerts, not late events."""
    document = {**ORDERS, "keys": [["user"], ["pieces"]], **({"deduplicate": "1h"} if deduplicate else {})}
    narrow, wide = new_shop(tmp_path, document), new_shop(tmp_path, document)
    sent: list[Counter[int]] = []
    expected: list[Record] = []
    pack = shuffle.pack_rows

    def count(exchange: Exchange, *rest: Any) -> Any:
        if exchange.rows.route >= 0:
            sent[-1][exchange.rows.route] += rest[1].num_rows
        return pack(exchange, *rest)

    monkeypatch.setattr("streamcore.engine.ingest.pack_rows", count)
    changes = [window("w", "count(*) >= 2", group_by=["lower(user)"])]
    for cut in range(4):
        old = [order(90 + cut, at=NOW_MS - 900_000_000)] if cut > 2 else []
        events = [*(order(10 * cut + n, user="aAb"[n]) for n in range(3)), *old]
        sent.append(Counter())
        expected = narrow.send(*changes, events=events)
        wide.app.projection = None
        sent.append(Counter())
        assert by_lane(wide.send(*changes, events=events)) == by_lane(expected)
        changes = []
    assert len(lane(expected, LATE)) == 1
    assert sent[::2] == [{0: 3, 1: 3}, {0: 3, 1: 3, 2: 3}, {2: 3}, {0: 1, 2: 4}]
    assert sent[1::2] == [{0: 3, 1: 3}, *([{0: 3, 1: 3, 2: 3}] * 2), {0: 4, 1: 4, 2: 4}]


@pytest.mark.parametrize(("more", "routes"), [({}, {1}), ({"share": "5%"}, {0, 1}), ({"where": "pieces > 1"}, {0, 1})])
def test_a_decision_policy_needs_the_first_key_only_if_it_chooses_events(
    more: Mapping[str, Any], routes: set[int], tmp_path: Path
) -> None:
    shop = new_shop(tmp_path)
    decide = {"order": ["review", "allow"], "default": "allow"}
    policy = {"decision_policy": "p", "version": 1, "owner": "o", "on": "orders", "decide": decide, **more}
    policy_record = encode_policy(DecisionPolicy.model_validate(policy))
    shop.send(window("w", "count(*) > 1", group_by=["lower(user)"]), (f"{DECISION_POLICY_KEY}p", policy_record))
    assert {one["status"] for one in statuses(shop.send())} == {"accepted"}
    assert shop.app.projection is not None
    assert shop.app.projection.reads["orders"].routes == routes


def by_lane(records: Sequence[Record]) -> Counter[tuple[str, bytes | None]]:
    return Counter((one.lane, one.value) for one in records)


# --- history ---------------------------------------------------------------------------------------------------------


def test_windows_by_an_expression_are_filled_from_history(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    history = [order(n, user="Ab"[n % 2]) for n in range(4)]
    shop.send(events=history)
    name, record = window("w", "count(*) >= 3", group_by=["lower(user)"])
    shop.send((name, record))
    (answer,) = statuses(shop.send())
    assert answer["incomplete"]["counts_from"] == {"events": {"0": 4}}
    schema = shop.app.app.schemas[0]
    compiled = compile_rule(Rule.model_validate_json(record), {"orders": schema}, RuleLimits())
    collector = BackfillCollector(compiled, schema)
    past = EventDecoder(schema, NOW_MS).of_lines([orjson.dumps(one) for one in history], range(4))
    collector.add(with_list_columns(past, compiled.columns, {}))
    filled = backfill_records(collector, 0, answer["incomplete"]["since_ms"], STAGED_KEY)
    assert {one["status"] for one in statuses(shop.send(*filled))} <= {"accepted", "staged"}
    output = shop.send(events=[order(5, user="a"), order(6, user="c")])
    assert [(one["key"], one["values"], one["incomplete"]) for one in lane(output, ALERTS)] == [
        ({"lower(user)": "a"}, {"count(*)": 3}, False)
    ]


# --- suppression -----------------------------------------------------------------------------------------------------


def test_what_is_suppressed_by_new_keys_goes_with_them_to_other_shards(tmp_path: Path) -> None:
    suppress: dict[str, Any] = {"for": "1h"}
    rules = (
        rule("one", where="true", suppress={**suppress, "by": ["card"]}),
        window("many", "count(*) >= 1", group_by=["lower(email)"], suppress=suppress, within={"count": 1}),
    )
    run = Run(InProcessApp(new_app(tmp_path, 2)), tmp_path)
    places = [{"card": f"c{n}", "email": f"E{n}"} for n in range(9)]
    rows = [{**draw_events(random.Random(1), 1)[0], "at": NOW_MS - 900_000, **place} for place in places]

    def send(events: Sequence[Event], changes: Sequence[tuple[str, bytes]] = ()) -> Counter[str]:
        run.clock += 1
        records = [control_record(n, key, value) for n, (key, value) in enumerate(changes)]
        records += [RawRecord(0, 0, run.offsets[0] + n, orjson.dumps(event)) for n, event in enumerate(events)]
        run.offsets[0] += len(events)
        return Counter(one["rule"] for one in lane(run.app.cut(records, run.clock), ALERTS))

    send([], rules)
    assert send(rows[:6]) == {"one": 6, "many": 6}
    run.rescale(3)
    assert send(rows) == {"one": 3, "many": 3}
    run.restart()
    assert send(rows) == {}
