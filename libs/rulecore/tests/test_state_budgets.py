"""Budgets of state: rules whose keys are new with every event do not affect the rules beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson
import pytest

from rulecore.compile.rule import STAGE_FEATURE
from rulecore.factory import RulesFactory
from rulecore.groups.base import GroupId
from rulecore.kernel import RulesKernel
from rulecore.settings import StateBudgets
from rulecore.state_budgets import over_budget
from rulecore.state_size import StateHolder, StateSize, StateUse
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record

MINUTE = 60_000
DAY = 1_440 * MINUTE
T0 = 1_700_000_000_000 - 1_700_000_000_000 % DAY
CLOCK = T0 + 1000 * DAY
EVENTS = 600

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["id"], ["user"]],
        "fields": {"ts": "timestamp not null", "id": "string", "user": "string", "amount": "long"},
    }
)
FLOODS: dict[str, dict[str, object]] = {
    "window": {"group_by": ["id"], "within": {"tumbling": "400d"}, "having": "count_distinct(user) > 1000"},
    "sequence": {
        "group_by": ["id"],
        "within": "30d",
        "sequence": [{"step": "first", "where": "amount >= 0"}, {"step": "second", "where": "amount < 0"}],
    },
    "absence": {"group_by": ["id"], "expect": {"every": "30d", "where": "amount >= 0"}},
    "session": {"group_by": ["id"], "within": {"session": "30d"}, "having": "count_distinct(user) > 1000"},
    "count": {"group_by": ["id"], "within": {"count": 1000}, "having": "count_distinct(user) > 1000"},
    "score": {"group_by": ["id"], "score": {"of": ["any"], "within": "30d", "limit": 1_000_000}},
    "suppressed": {"where": "amount >= 0", "suppress": {"by": ["id"], "for": "30d"}},
}
#: Rules of the same groups as the floods, and others.
GOOD: dict[str, dict[str, object]] = {
    "good-window": {
        "where": "amount = 7",
        "group_by": ["id"],
        "within": {"tumbling": "400d"},
        "having": "count(*) >= 1 and count_distinct(user) >= 1",
    },
    "good-sliding": {
        "group_by": ["user"],
        "within": {"sliding": "10m", "every": "2m"},
        "having": "count(*) >= 4",
        "suppress": {"by": ["user"], "for": "5m"},
    },
    "good-sequence": {
        "group_by": ["id"],
        "within": "30d",
        "sequence": [{"step": "first", "where": "amount = 3"}, {"step": "second", "where": "amount = -3"}],
    },
    "good-absence": {"group_by": ["user"], "expect": {"every": "30s", "where": "amount >= 0"}},
    "good-session": {"group_by": ["user"], "within": {"session": "3m"}, "having": "count(*) >= 2"},
    "good-event": {"where": "amount = 5"},
}


def rule(rule_id: str, version: int = 1, /, **fields: object) -> RawRecord:
    document = {"id": rule_id, "version": version, "owner": "o", "on": "pay"}
    then = {"severity": "high", "message": "m", "score": 10}
    return control_record(version, rule_id, orjson.dumps(document | {"then": then} | fields))


def pay(offset: int, ms: int, event_id: str, amount: int) -> RawRecord:
    event = {"ts": T0 + ms, "id": event_id, "user": f"u{offset * offset % 7}", "amount": amount}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def events() -> Iterator[RawRecord]:
    """Yield events with an id each; every tenth is followed by one with the same id and the negative amount."""
    for n in range(EVENTS):
        twin = n % 10 == 9
        amount = -((n - 1) % 9) if twin else n % 9
        yield pay(n, n * 5_000, f"id-{n - twin}", amount)


def new_app(budgets: StateBudgets, app: InProcessApp | None = None, shards: int = 2) -> InProcessApp:
    """Return an app; with ``app``, a new process that continues from its state."""
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),), budgets=budgets)
    watermark = WatermarkStrategy(max_out_of_orderness_ms=MINUTE)
    created = App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=shards, watermark=watermark)
    return InProcessApp(created) if app is None else InProcessApp(created, app.blobs, next_offsets=app.next_offsets)


def run(
    rules: Sequence[RawRecord], budgets: StateBudgets, cut: int, restart_every: int = 0
) -> tuple[list[Record], InProcessApp]:
    """Publish the rules, pass the events in cuts of that size, and return the output in the order of the cuts."""
    app = new_app(budgets)
    records = app.cut(rules, CLOCK)
    stream = [*events()]
    for number, start in enumerate(range(0, EVENTS, cut)):
        if restart_every and number % restart_every == 0:
            app = new_app(budgets, app)
        records += app.cut(stream[start : start + cut], CLOCK)
    return records, app


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def good_alerts(records: Sequence[Record]) -> list[bytes]:
    """Return the alerts of the good rules, without the epoch, in an order that cuts do not change."""
    alerts = [a for a in lane(records, ALERTS) if str(a["rule"]).startswith("good-")]
    bodies = [{k: v for k, v in a.items() if k != "rules_epoch"} for a in alerts]
    return sorted(orjson.dumps(body, option=orjson.OPT_SORT_KEYS) for body in bodies)


def quarantines(records: Sequence[Record]) -> list[tuple[str, str]]:
    statuses = [s for s in lane(records, STATUS) if s["status"] == "quarantined"]
    return [(str(s["rule"]), str(s["reason"])) for s in statuses]


def holders(app: InProcessApp) -> Iterator[tuple[StateHolder, int]]:
    """Yield all state that rules keep, with the watermark of its shard."""
    for (_, number), shard in sorted(app.shards.items()):
        assert isinstance(shard.kernel, RulesKernel)
        watermark_ms = app.outputs[number].watermark_ms
        for _, group in sorted(shard.kernel.groups.items(), key=lambda pair: str(pair[0])):
            yield group, watermark_ms
        yield shard.kernel.dispatcher.suppression, watermark_ms


def entries(app: InProcessApp) -> int:
    return sum(holder.state_size().entries for holder, _ in holders(app))


UNLIMITED = StateBudgets(2**60, 2**60, 2**60)
GOOD_RULES = [rule(name, **fields) for name, fields in GOOD.items()]
FLOOD_RULES = [rule("any", where="amount >= 0"), *(rule(name, **fields) for name, fields in FLOODS.items())]
TIGHT = StateBudgets(rule_bytes=50_000)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [37, 200, EVENTS])
def test_floods_go_into_quarantine_with_their_sizes_and_do_not_affect_other_rules(cut: int) -> None:
    without, _ = run(GOOD_RULES, UNLIMITED, cut)
    records, _ = run([*FLOOD_RULES, *GOOD_RULES], TIGHT, cut)
    assert len({a["rule"] for a in lane(without, ALERTS)}) == len(GOOD)
    assert good_alerts(records) == good_alerts(without)
    reasons = quarantines(records)
    assert sorted(reasons) == sorted(set(reasons))
    assert {name for name, _ in reasons} == FLOODS.keys()
    assert all("bytes, at most 50000 (`max_rule_state_bytes`): group by a key" in reason for _, reason in reasons)


@pytest.mark.slow
@pytest.mark.parametrize("restart_every", [1, 3])
def test_restarts_change_neither_the_output_nor_the_cut_of_the_quarantine(restart_every: int) -> None:
    rules = [*FLOOD_RULES, *GOOD_RULES]
    straight, _ = run(rules, TIGHT, 75)
    restarted, app = run(rules, TIGHT, 75, restart_every)
    assert [r.value for r in restarted] == [r.value for r in straight]
    again = new_app(TIGHT, app)
    more = again.cut([rule("more", where="amount > 100")], CLOCK)
    assert [s["rule"] for s in lane(more, STATUS)] == ["more"]
    assert quarantines(again.cut([rule(name, **fields) for name, fields in FLOODS.items()], CLOCK)) == []


@pytest.mark.slow
def test_a_new_version_ends_the_quarantine_and_starts_without_state() -> None:
    _, app = run(FLOOD_RULES, TIGHT, 200)
    assert entries(app) == 0
    narrow = {**FLOODS["window"], "where": "amount = 8", "having": "count(*) >= 1"}
    more = [pay(n, n * 5_000, f"x{n}", 8) for n in range(EVENTS, EVENTS + 5)]
    records = app.cut([rule("window", 2, **narrow), *more], CLOCK)
    assert [(a["rule"], a["version"]) for a in lane(records, ALERTS) if a["rule"] != "any"] == [("window", 2)] * 5
    assert quarantines(records) == []
    assert entries(app) == 5


def measure_uses(rules: Sequence[RawRecord], *, restart: bool) -> Iterator[list[StateUse]]:
    """Yield the exact sizes of all state after each cut; check that each size known in constant time is no smaller."""
    app = new_app(UNLIMITED)
    app.cut(rules, CLOCK)
    stream = [*events()]
    for start in range(0, EVENTS, 50):
        app = new_app(UNLIMITED, app) if restart else app
        app.cut(stream[start : start + 50], CLOCK)
        found = []
        for holder, watermark_ms in holders(app):
            size, use = holder.state_size(), holder.state_use(watermark_ms)
            assert size.entries >= use.total.entries
            assert size.bytes >= use.total.bytes
            assert all(use.total.bytes >= own.bytes for own in use.by_rule.values())
            found.append(use)
        yield found


@pytest.mark.slow
def test_a_group_above_its_budget_quarantines_the_rule_with_the_most_state() -> None:
    budgets = StateBudgets(group_bytes=50_000)
    records, _ = run([*FLOOD_RULES, *GOOD_RULES], budgets, 200)
    assert good_alerts(records) == good_alerts(run(GOOD_RULES, UNLIMITED, 200)[0])
    reasons = dict(quarantines(records))
    assert reasons.keys() == FLOODS.keys() - {"suppressed"}
    assert reasons["window"].startswith("the group window/pay/id/34560000000/0 has ")
    assert "bytes in one shard, at most 50000 (`max_group_state_bytes`), and this rule keeps most" in reasons["window"]


@pytest.mark.slow
def test_a_shard_above_its_budget_quarantines_the_rule_with_the_most_state() -> None:
    budgets = StateBudgets(shard_bytes=300_000)
    records, _ = run([*FLOOD_RULES, *GOOD_RULES], budgets, 100)
    assert good_alerts(records) == good_alerts(run(GOOD_RULES, UNLIMITED, 100)[0])
    reasons = dict(quarantines(records))
    assert set() < reasons.keys() < FLOODS.keys()
    assert all(
        reason.startswith("the shard has ") and "`max_shard_state_bytes`" in reason for reason in reasons.values()
    )


def test_the_metrics_report_the_size_of_state_and_the_exceeded_budgets() -> None:
    rules = [rule("flood", **FLOODS["absence"]), rule("good", **GOOD["good-absence"])]
    stream, app = [*events()], new_app(TIGHT, shards=1)
    app.cut([*rules, *stream[:50]], CLOCK)
    counters = app.outputs[0].metrics.counters
    assert counters["state_entries.absence"] == 45 + 4
    assert counters["state_bytes.absence"] > 45 * 100
    assert "budget_reached.rule" not in counters
    app.cut(stream[50:], CLOCK)
    counters = app.outputs[0].metrics.counters
    assert (counters["state_entries.absence"], counters["budget_reached.rule"]) == (4, 1)


@pytest.mark.slow
def test_every_process_measures_the_same_size_of_state() -> None:
    short: dict[str, dict[str, object]] = {
        "tumbling": {"group_by": ["id"], "within": {"tumbling": "2m"}, "having": "count_distinct(user) > 1000"},
        "gone": {"group_by": ["id"], "within": {"session": "2m"}, "having": "count_distinct(user) > 1000"},
        "brief": {"where": "amount >= 0", "suppress": {"by": ["id"], "for": "1m"}},
        "soon": {**FLOODS["sequence"], "within": "2m"},
        "forgetful": {"group_by": ["id"], "expect": {"every": "1m", "where": "amount >= 0", "forget": "4m"}},
    }
    rules = [*FLOOD_RULES, *GOOD_RULES, *(rule(name, **fields) for name, fields in short.items())]
    pairs = [*zip(measure_uses(rules, restart=False), measure_uses(rules, restart=True), strict=True)]
    for straight, restarted in pairs:
        assert straight == restarted
    assert sum(use.total.entries for use in pairs[-1][0]) > 3 * EVENTS


class OneSize:
    """State of the rule ``r@1`` alone, of a known size."""

    def __init__(self, size: int) -> None:
        self.size = StateSize(1, size)

    def state_size(self) -> StateSize:
        return self.size

    def state_use(self, _watermark_ms: int) -> StateUse:
        return StateUse(self.size, {"r@1": self.size})


def test_the_budget_of_a_rule_counts_the_features_of_all_its_keys() -> None:
    groups = {GroupId(STAGE_FEATURE, "pay", (key,)): OneSize(60) for key in ("card", "device")}
    (over,) = over_budget(groups, (), StateBudgets(100, 1_000, 1_000), 0)
    assert (over.version, over.budget) == ("r@1", "rule")
    assert over_budget(groups, (), StateBudgets(120, 1_000, 1_000), 0) == []
