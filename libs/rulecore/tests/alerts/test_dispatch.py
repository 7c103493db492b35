"""Dispatch of firings: lanes of trials, suppression, budgets and comparisons, across cuts and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore.alerts.dispatch import canary_fraction
from rulecore.documents.releases import to_records
from rulecore.documents.rule import Rule
from rulecore.factory import RulesFactory
from rulecore.kernel import RulesKernel
from rulecore.settings import DispatchSettings
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.shard import Shard
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, SHADOW, STATUS, Record
from tests.harness.apps.control_records import SCHEMA, document

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1000 * 60 * MINUTE


def app(shards: int = 2, **settings: int) -> InProcessApp:
    dispatch = DispatchSettings(compare_every_ms=settings.pop("compare_every_ms", 0))
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),), dispatch=dispatch, **settings)  # type: ignore[arg-type]
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    return InProcessApp(
        App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=shards, watermark=watermark)
    )


def rule(rule_id: str, version: int = 1, /, **fields: object) -> RawRecord:
    return control_record(version, rule_id, orjson.dumps(document(rule_id, version, **fields)))


def pay(offset: int, minute: float, user: str = "a", card: str = "c", amount: float = 10) -> RawRecord:
    event = {"ts": T0 + int(minute * MINUTE), "user": user, "card": card, "amount": amount}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def offsets(records: Sequence[Record], name: str, version: int | None = None) -> list[int]:
    found = [a for a in lane(records, name) if version is None or a["version"] == version]
    return sorted(orjson.loads(orjson.dumps(a))["source"]["offset"] for a in found)


def test_a_shadow_version_alerts_on_the_shadow_lane_beside_the_live_version() -> None:
    records = [rule("r", 1, where="amount > 5"), rule("r", 2, where="amount > 8", mode="shadow")]
    out = app().cut([*records, pay(0, 1, amount=6), pay(1, 1, amount=9)], CLOCK)
    assert offsets(out, ALERTS) == [0, 1]
    assert offsets(out, SHADOW) == [1]
    assert {a["mode"] for a in lane(out, SHADOW)} == {"shadow"}


def test_a_canary_decides_for_its_share_of_the_keys_and_the_live_version_for_the_others() -> None:
    users = [f"u{i}" for i in range(200)]
    records = [rule("r", 1), rule("r", 2, mode={"canary": "30%"})]
    out = app().cut([*records, *(pay(i, 1, user) for i, user in enumerate(users))], CLOCK)
    by_canary = set(offsets(out, ALERTS, 2))
    assert 40 <= len(by_canary) <= 80
    assert set(offsets(out, ALERTS, 1)) == set(range(200)) - by_canary, "one version is responsible for each key"
    assert set(offsets(out, SHADOW, 1)) == by_canary
    assert by_canary == {i for i, user in enumerate(users) if canary_fraction("r", [user]) < 0.3}


def test_a_rule_without_an_alert_only_adds_its_score() -> None:
    then = {"severity": "low", "message": "m", "score": 5, "alert": False}
    out = app().cut([rule("r", then=then), pay(0, 1)], CLOCK)
    assert [r.lane for r in out] == [STATUS]


def test_suppression_goes_by_event_time_and_the_next_alert_counts_the_suppressed_ones() -> None:
    records = [rule("r", suppress={"for": "10m", "by": ["card"]})]
    events = [pay(0, 0), pay(1, 5), pay(2, 9.99), pay(3, 10), pay(4, 1, card="other"), pay(5, 30)]
    out = app().cut([*records, *events], CLOCK)
    alerts = [(offsets([r], ALERTS), lane([r], ALERTS)[0]["suppressed"]) for r in out if r.lane == ALERTS]
    assert sorted(alerts) == [([0], 0), ([3], 2), ([4], 0), ([5], 0)]


def test_an_event_rule_that_suppresses_by_another_key_receives_its_events_by_that_key() -> None:
    users = [f"u{i}" for i in range(40)]
    records = [rule("r", suppress={"for": "1d", "by": ["card"]})]
    out = app(shards=4).cut([*records, *(pay(i, 1, user) for i, user in enumerate(users))], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["key"] == {"card": "c"}


def test_a_new_version_does_not_end_the_suppression() -> None:
    running = app()
    suppress = {"for": "1h", "by": ["user"]}
    assert len(lane(running.cut([rule("r", 1, suppress=suppress), pay(0, 0)], CLOCK), ALERTS)) == 1
    assert lane(running.cut([rule("r", 2, where="amount > 2", suppress=suppress), pay(1, 30)], CLOCK), ALERTS) == []


def test_a_window_rule_suppresses_alerts_by_its_group_key() -> None:
    window = {"group_by": ["user"], "within": {"tumbling": "1m"}, "having": "count(*) >= 1"}
    records = [rule("r", suppress={"for": "5m"}, **window)]
    out = app().cut([*records, *(pay(i, i) for i in range(7)), pay(7, 2, user="b")], CLOCK)
    assert [(a["key"], a["suppressed"]) for a in lane(out, ALERTS)] == [
        ({"user": "a"}, 0),
        ({"user": "a"}, 4),
        ({"user": "b"}, 0),
    ]


EVENTS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(["a", "b", "c"]), st.integers(1, 12)), min_size=1, max_size=30
)


@given(EVENTS, st.integers(0, 30), st.integers(0, 30))
def test_suppression_does_not_depend_on_how_the_input_is_cut(
    found: list[tuple[int, str, int]], one: int, other: int
) -> None:
    events = [pay(i, minute, user, amount=amount) for i, (minute, user, amount) in enumerate(found)]
    changes = [rule("r", suppress={"for": "7m", "by": ["user"]}), rule("r", 2, mode="shadow", where="amount > 6")]
    whole = app(1).cut([*changes, *events], CLOCK)
    parts, running = [], app(1)
    first, second = sorted((one, other))
    for part in ([*changes, *events[:first]], events[first:second], events[second:]):
        parts += running.cut(part, CLOCK)
        running.shards.clear()
    assert [r for r in parts if r.lane == ALERTS] == [r for r in whole if r.lane == ALERTS]
    until: dict[str, int] = {}
    wanted = []
    for offset, (minute, user, amount) in enumerate(found):
        if amount > 1 and minute >= until.get(user, 0):
            until[user] = minute + 7
            wanted.append(offset)
    assert offsets(whole, ALERTS, 1) == wanted


def test_a_rule_above_its_match_budget_alerts_up_to_it_and_goes_into_quarantine() -> None:
    running = app(1, max_matches=3)
    out = running.cut([rule("r"), rule("s", where="amount > 100"), *(pay(i, 1) for i in range(10))], CLOCK)
    assert offsets(out, ALERTS) == [0, 1, 2]
    (status,) = [s for s in lane(out, STATUS) if s["status"] == "quarantined"]
    assert status["rule"] == "r"
    assert "10 matches in one cut, at most 3" in str(status["reason"])
    assert offsets(running.cut([pay(10, 1), pay(11, 1, amount=200)], CLOCK), ALERTS) == [11]


def test_a_rule_may_have_a_smaller_budget_of_its_own() -> None:
    window = {"group_by": ["user"], "within": {"tumbling": "1m"}, "having": "count(*) >= 1", "budget": {"matches": 2}}
    out = app(1).cut([rule("r", **window), *(pay(i, 1, f"u{i}") for i in range(5))], CLOCK)
    assert len(lane(out, ALERTS)) == 2
    assert [s["rule"] for s in lane(out, STATUS) if s["status"] == "quarantined"] == ["r"]


def test_the_status_compares_a_trial_with_the_live_version() -> None:
    running = app(1)
    changes = [rule("r", 1, where="amount > 5 and amount < 20"), rule("r", 2, where="amount > 8", mode="shadow")]
    amounts = [6, 7, 9, 10, 30]
    out = running.cut([*changes, *(pay(i, 1, amount=a) for i, a in enumerate(amounts))], CLOCK)
    (status,) = [s for s in lane(out, STATUS) if s["status"] == "compared"]
    assert status["compared"] == {"live": 1, "candidate": 2, "shard": 0, "only_live": 2, "only_candidate": 1, "both": 2}
    assert [s for s in lane(running.cut([pay(9, 2, amount=1)], CLOCK), STATUS) if s["status"] == "compared"] == []


def test_versions_that_fire_at_different_times_in_one_window_count_as_equal() -> None:
    running = app(1)
    window = {"group_by": ["user"], "within": {"tumbling": "1h"}}
    changes = [
        rule("r", 1, having="count(*) >= 4", **window),
        rule("r", 2, having="count(*) >= 2", mode="shadow", **window),
    ]
    comparisons = []
    for offset in range(6):
        records = [*(changes if offset == 0 else []), pay(offset, offset)]
        comparisons += [
            s["compared"] for s in lane(running.cut(records, CLOCK + offset), STATUS) if s["status"] == "compared"
        ]
        running.shards.clear()
    same = {"live": 1, "candidate": 2, "shard": 0}
    assert comparisons == [
        {**same, "only_live": 0, "only_candidate": 1, "both": 0},
        {**same, "only_live": 0, "only_candidate": 0, "both": 1},
    ]


def test_a_comparison_ends_with_its_trial() -> None:
    running = app(1)
    running.cut([rule("r", 1), rule("r", 2, mode="shadow"), pay(0, 1)], CLOCK)
    out = running.cut([rule("r", 3), pay(1, 1)], CLOCK)
    assert [s["status"] for s in lane(out, STATUS)] == ["accepted"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"suppress": {"for": "1h", "by": ["colour"]}}, "suppress.by: stream pay has no colour"),
        ({"suppress": {"for": "1h", "by": ["lower(card)"]}}, "suppress.by: stream pay has no lower(card)"),
        (
            {
                "suppress": {"for": "1h", "by": ["card"]},
                "group_by": ["user"],
                "within": {"tumbling": "1h"},
                "having": "count(*) > 1",
            },
            "suppress.by: card is not in group_by",
        ),
        (
            {
                "suppress": {"for": "1h", "by": ["amount"]},
                "group_by": ["user", "amount"],
                "within": {"tumbling": "1h"},
                "having": "count(*) > 1",
            },
            "suppress.by: must contain user",
        ),
    ],
)
def test_a_suppression_that_cannot_work_is_rejected(fields: dict[str, object], words: str) -> None:
    (status,) = lane(app().cut([rule("r", **fields)], CLOCK), STATUS)
    assert status["status"] == "rejected"
    assert words in str(status["reason"])


def test_a_canary_selects_close_to_its_share_of_keys_and_rules_select_different_ones() -> None:
    shares = [canary_fraction("r", [f"u{i}"]) for i in range(10_000)]
    assert abs(sum(s < 0.1 for s in shares) / len(shares) - 0.1) < 0.01
    assert canary_fraction("r", ["u1"]) != canary_fraction("s", ["u1"])
    assert Rule.model_validate(document(mode={"canary": "0.5%"})).mode_text == "canary 0.5%"


def test_a_worker_that_missed_cuts_catches_up_on_the_parts_of_a_release() -> None:
    running = app(2)
    workers: list[dict[tuple[int, int], Shard]] = [{}, {}]
    rules = [Rule.model_validate(document(f"r{n}", description="x" * 1_000)) for n in range(100)]
    records = [control_record(n, key, value) for n, (key, value) in enumerate(to_records("large", rules))]
    for number, record in enumerate([rule("first"), *records[:-1]]):
        running.shards = workers[number % 2]
        running.cut([record], CLOCK)
    for worker in workers:
        running.shards = worker
        out = running.cut(records[-1:], CLOCK)
        assert {s["status"] for s in lane(out, STATUS)} <= {"accepted", "rejected"}
        shards = [shard.kernel for shard in worker.values()]
        assert {len(kernel.rules.evaluated_rules()) for kernel in shards if isinstance(kernel, RulesKernel)} == {101}


def test_the_metrics_of_a_cut_report_the_cost_of_each_rule() -> None:
    """The cost is counted in candidates, so a rule that no index can look up shows its true cost."""
    running = app(2)
    rules = [rule("narrow", where="card = 'c1' and amount > 1"), rule("wide", where="amount + 0 > 1 or card is null")]
    users = [f"u{n}" for n in range(20)]
    running.cut([*rules, *(pay(n, 1, user, f"c{n}") for n, user in enumerate(users))], CLOCK)
    counted: Counter[str] = Counter()
    for output in running.outputs:
        counted.update(output.metrics.counters)
    assert counted["candidates.narrow@1"] == 1
    assert counted["candidates.wide@1"] >= 20
    assert (counted["matches.narrow@1"], counted["matches.wide@1"]) == (1, 20)
