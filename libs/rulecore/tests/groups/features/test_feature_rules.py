"""Feature rules as documents and in the rule set: what is rejected, what is shared, what survives a change."""

from __future__ import annotations

from typing import Any

import orjson
import polars as pl
import pytest

from rulecore import language as lang
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import RuleError
from rulecore.factory import RulesFactory
from rulecore.groups.features import history
from rulecore.language.columnar.compiler import to_polars
from rulecore.ruleset.diff import StateOutcome, diff
from rulecore.settings import GroupSettings, StateBudgets
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record

HOUR = 3_600_000
T0 = 1_700_006_400_000
CLOCK = T0 + 1000 * 86_400_000
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"], ["card"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "double", "card": "string"},
    }
)
MEAN = {"name": "usual", "of": "avg(amount)", "within": {"sliding": "30d", "every": "1h"}}


def document(version: int = 1, name: str = "r", **entries: Any) -> dict[str, object]:
    own = {"group_by": ["user"], "features": [MEAN], "where": "amount > 3 * usual"}
    then = {"severity": "low", "message": "{user}"}
    return {"id": name, "version": version, "owner": "o", "on": "pay", "then": then, **own, **entries}


def new_app(
    schema: StreamSchema = SCHEMA, *, restart: InProcessApp | None = None, max_delay_ms: int = 0, **settings: Any
) -> InProcessApp:
    kernel = RulesFactory((RuleStream(schema, "pay"),), **settings)
    watermark = WatermarkStrategy(max_out_of_orderness_ms=max_delay_ms)
    app = App("t", (Source(schema, "pay"),), "control", {}, (kernel,), shards=2, watermark=watermark)
    return InProcessApp(app) if restart is None else InProcessApp(app, restart.blobs)


def with_amount(kind: str) -> StreamSchema:
    """Return ``SCHEMA`` with an amount of that type."""
    fields = {one.name: f"{one.type}{'' if one.nullable else ' not null'}" for one in SCHEMA.fields}
    return StreamSchema.parse(
        {"name": "pay", "event_time": "ts", "keys": [["user"], ["card"]], "fields": fields | {"amount": kind}}
    )


def publish(offset: int, own: dict[str, object]) -> RawRecord:
    return control_record(offset, str(own["id"]), orjson.dumps(own))


def pay(offset: int, hour: float, amount: float, user: str = "ann", card: str | None = "k") -> RawRecord:
    event = {"ts": T0 + int(hour * HOUR), "user": user, "amount": amount, "card": card}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def lane(records: list[Record], name: str) -> list[dict[str, Any]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"where": None}, "features: needs `where`"),
        ({"group_by": []}, "features: needs group_by"),
        ({"having": "count(*) > 1"}, "having: has no meaning in a rule of kind feature"),
        ({"within": {"tumbling": "1h"}}, "within: has no meaning in a rule of kind feature"),
        ({"features": [MEAN, MEAN]}, "two are named usual"),
        ({"features": [{**MEAN, "within": {"session": "5m"}}]}, "features.0.within: is {sliding: 30d, every: 1h}"),
        ({"features": [{**MEAN, "by": ["user", "user"]}]}, "features.0.by: names a column twice"),
    ],
)
def test_a_document_with_a_wrong_feature_is_rejected(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        Rule.model_validate(document(**entries))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"name": "amount"}, "features.0.name: amount is a field of pay"),
        ({"of": "amount"}, "features.0.of:1:1: amount"),
        ({"of": "avg(amount) + 1"}, "features.0.of: is one aggregate, such as avg\\(amount\\); there are count, "),
        (
            {"of": "average(amount)"},
            "unknown function average; did you mean avg\\? accepted here: avg, count, .*, sum, first, last, seen, ",
        ),
        ({"of": "avg(amont)"}, "features.0.of:1:5: unknown column amont"),
        ({"of": "last()"}, "accepted here: last\\(x\\)"),
        ({"of": "time_decayed_sum(amount)"}, "accepted here: time_decayed_sum\\(x, interval 7 days\\)"),
        ({"of": "time_decayed_count(amount)"}, "takes a half-life, an interval above 0"),
        ({"of": "time_decayed_count(interval 1 second)"}, "1h for a half-life of 1s, at most 500 times"),
        ({"of": "time_since_last(ts)"}, "accepted here: time_since_last\\(\\)"),
        ({"where": "amont > 1"}, "features.0.where:1:1: unknown column amont"),
        ({"by": ["user", "nobody"]}, "features.0.by: stream pay has no nobody"),
        ({"name": "not"}, "features.0.name: not is a word of the language"),
        ({"within": {"sliding": "10s", "every": "100ms"}}, "panes of 100ms, at least 1s"),
        ({"within": {"sliding": "30d", "every": "1s"}}, "2592000 panes, at most 2000; make `every` longer"),
        ({"within": {"sliding": "500d", "every": "1d"}}, "features.0.within: 500d back, at most 400d"),
    ],
)
def test_a_feature_that_does_not_fit_the_stream_is_rejected(feature: dict[str, Any], message: str) -> None:
    name = str(feature.get("name", "usual"))
    rule = Rule.model_validate(document(features=[{**MEAN, **feature}], where=f"amount > {name}"))
    with pytest.raises(RuleError, match=message):
        compile_rule(rule, {"pay": SCHEMA}, RuleLimits())


def test_a_condition_suggests_the_name_of_a_feature() -> None:
    with pytest.raises(RuleError, match="unknown column usua; did you mean usual"):
        compile_rule(Rule.model_validate(document(where="amount > usua")), {"pay": SCHEMA}, RuleLimits())


def test_rules_share_a_feature_and_a_new_version_keeps_its_past() -> None:
    app = new_app()
    renamed = {**MEAN, "name": "mean"}
    rules = [document(), document(name="s", features=[renamed], where="amount > 10 * mean")]
    answers = lane(app.cut([publish(n, own) for n, own in enumerate(rules)], CLOCK), STATUS)
    assert [answer["status"] for answer in answers] == ["accepted", "accepted"]
    app.cut([pay(n, n, 10.0) for n in range(3)], CLOCK)
    shorter = {**MEAN, "within": {"sliding": "10d", "every": "1h"}}
    app.cut([publish(2, document(version=2, features=[shorter], where="amount > 4 * usual"))], CLOCK)
    found = lane(app.cut([pay(3, 4, 41.0), pay(4, 5, 900.0)], CLOCK), ALERTS)
    first = [alert for alert in found if alert["event_time_ms"] < T0 + 5 * HOUR]
    assert [(one["rule"], one["version"], one["values"]) for one in first] == [("r", 2, {"usual": 10.0})]
    assert {a["rule"] for a in found} == {"r", "s"}


def test_a_feature_that_was_given_up_begins_without_a_past() -> None:
    app = new_app()
    app.cut([publish(0, document())], CLOCK)
    app.cut([pay(0, 0, 10.0), pay(1, 1, 10.0)], CLOCK)
    app.cut([control_record(1, "r", None)], CLOCK)
    app.cut([publish(2, document(version=2))], CLOCK)
    restarted = InProcessApp(app.app, app.blobs)
    (alert,) = lane(restarted.cut([pay(2, 2, 900.0), pay(3, 3, 9000.0)], CLOCK), ALERTS)
    assert alert["values"] == {"usual": 900.0}


def test_a_longer_feature_of_another_rule_keeps_what_is_there() -> None:
    app = new_app()
    counted = {"name": "n", "of": "count(*)", "within": {"sliding": "10d", "every": "1h"}}
    app.cut([publish(0, document(features=[counted], where="n >= 0"))], CLOCK)
    app.cut([pay(0, 0, 1.0), pay(1, 1, 1.0)], CLOCK)
    longer = {**counted, "within": {"sliding": "30d", "every": "1h"}}
    app.cut([publish(1, document(name="s", features=[longer], where="n >= 0", mode="shadow"))], CLOCK)
    (alert,) = lane(app.cut([pay(2, 2, 1.0)], CLOCK), ALERTS)
    assert alert["values"] == {"n": 2}


@pytest.mark.parametrize("turns", [False, True])
def test_a_new_feature_beside_another_is_the_same_in_all_processes(turns: bool) -> None:
    app = new_app()
    other = InProcessApp(app.app, app.blobs) if turns else app
    first = {"name": "n", "of": "count(*)", "within": MEAN["within"]}
    second = {"name": "s", "of": "sum(amount)", "within": MEAN["within"]}
    app.cut([publish(0, document(features=[first], where="n >= 0")), pay(0, 0, 1.0)], CLOCK)
    other.cut([pay(1, 1, 1.0)], CLOCK)
    app.cut([publish(1, document(name="q", features=[second], where="s >= 0")), pay(2, 2, 100.0)], CLOCK)
    other.projection = None  # what rules need is a fact of the driver, of which there is one
    (alert,) = [one for one in lane(other.cut([pay(3, 3, 1.0)], CLOCK), ALERTS) if one["rule"] == "q"]
    assert alert["values"] == {"s": 100.0}


def test_a_field_that_is_inserted_keeps_the_past() -> None:
    app = new_app()
    app.cut([publish(0, document(features=[{**MEAN, "by": ["user", "card"]}])), pay(0, 0, 10.0)], CLOCK)
    fields = {"ts": "timestamp not null", "region": "string", "card": "string", "user": "string", "amount": "double"}
    changed = StreamSchema.parse({"name": "pay", "event_time": "ts", "keys": [["user"], ["card"]], "fields": fields})
    kernel = RulesFactory((RuleStream(changed, "pay"),))
    later = InProcessApp(App("t", (Source(changed, "pay"),), "control", {}, (kernel,), shards=2), app.blobs)
    (alert,) = lane(later.cut([pay(1, 1, 100.0)], CLOCK), ALERTS)
    assert alert["values"] == {"usual": 10.0}


def test_events_that_no_feature_counts_take_no_state_and_texts_count_for_the_budget() -> None:
    app = new_app(budgets=StateBudgets(rule_bytes=100_000))
    never = {**MEAN, "where": "amount < 0"}
    app.cut([publish(0, document(features=[never]))], CLOCK)
    quiet = lane(app.cut([pay(n, 0, 1.0, user=f"u{n}") for n in range(2_000)], CLOCK), STATUS)
    assert quiet == []
    text = {**MEAN, "name": "last", "of": "last(card)"}
    app.cut([publish(1, document(name="t", features=[text], where="card <> last"))], CLOCK)
    statuses = lane(app.cut([pay(5_000, 1, 1.0, card="k" * 200_000)], CLOCK), STATUS)
    assert [(one["rule"], one["status"]) for one in statuses] == [("t", "quarantined")]


def test_a_rule_whose_features_take_too_much_state_goes_into_quarantine() -> None:
    app = new_app(budgets=StateBudgets(rule_bytes=2_000))
    known = {**MEAN, "name": "known", "of": "seen(card)"}
    own = document(features=[known], where="not known")
    app.cut([publish(0, own)], CLOCK)
    statuses = lane(app.cut([pay(n, 0, 1.0, card=f"k{n}") for n in range(100)], CLOCK), STATUS)
    assert [s["status"] for s in statuses] == ["quarantined"]
    assert "100 entries of state in one shard" in statuses[0]["reason"]


def test_an_alert_says_when_a_feature_cannot_be_complete() -> None:
    app = new_app()
    app.cut([pay(0, 0, 10.0)], CLOCK)
    app.cut([publish(0, document())], CLOCK)
    found = lane(
        app.cut([pay(1, 1, 10.0), pay(2, 2, 100.0), pay(3, 24 * 31, 1.0), pay(4, 24 * 31, 10.0)], CLOCK), ALERTS
    )
    assert [(alert["event_time_ms"] - T0) // HOUR for alert in found] == [2, 744]
    assert [alert["incomplete"] for alert in found] == [True, False]


COUNTED = {"name": "n", "of": "count(*)", "within": {"sliding": "10d", "every": "1h"}}


def test_an_in_order_rule_fires_when_the_watermark_has_passed_the_event_and_names_it() -> None:
    app = new_app()
    own = document(features=[COUNTED], where="n >= 0 and amount > 5", order="in_order")
    (alert,) = lane(app.cut([publish(0, own), pay(0, 0, 1.0), pay(1, 5, 9.0), pay(2, 2, 8.0)], CLOCK), ALERTS)
    assert (alert["values"], alert["source"]["offset"], alert["event_time_ms"]) == ({"n": 1}, 2, T0 + 2 * HOUR)
    (alert,) = lane(app.cut([pay(3, 9, 1.0, user="bob")], CLOCK), ALERTS)
    assert (alert["values"], alert["source"]["offset"], alert["event_time_ms"]) == ({"n": 2}, 1, T0 + 5 * HOUR)
    assert lane(app.cut([pay(4, 9, 1.0, user="bob")], CLOCK), ALERTS) == []


def test_a_rule_that_changes_its_order_begins_anew() -> None:
    (change,) = diff(
        [Rule.model_validate(document(features=[COUNTED], where="n > 0"))],
        [Rule.model_validate(document(version=2, features=[COUNTED], where="n > 0", order="in_order"))],
        {"pay": SCHEMA},
    )
    assert [one.outcome for one in change.state] == [StateOutcome.NEW, StateOutcome.DROPPED]


def test_an_in_order_rule_that_fails_takes_no_events_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_or_break(expr: lang.Expr) -> pl.Expr:
        return pl.col("no such column") if "99" in lang.render(expr) else to_polars(expr)

    monkeypatch.setattr(history, "to_polars", compile_or_break)
    app = new_app()
    broken = {**COUNTED, "name": "s", "of": "sum(amount + 99)"}
    bad = document(name="bad", features=[broken], where="s > 0", order="in_order")
    good = document(features=[COUNTED], where="n >= 0", order="in_order")
    found = app.cut([publish(0, bad), publish(1, good), *(pay(n, n, 1.0) for n in range(3))], CLOCK)
    assert [one["rule"] for one in lane(found, STATUS) if one["status"] == "quarantined"] == ["bad"]
    assert [(one["rule"], one["values"]) for one in lane(found, ALERTS)] == [("r", {"n": 0}), ("r", {"n": 1})]


def test_waiting_events_count_for_the_budget_and_a_limit_drops_the_latest() -> None:
    own = document(features=[COUNTED], where="n >= 0", order="in_order")
    app = new_app(budgets=StateBudgets(rule_bytes=20_000))
    app.cut([publish(0, own)], CLOCK)
    statuses = lane(app.cut([pay(n, 0, 1.0) for n in range(500)], CLOCK), STATUS)
    assert [one["status"] for one in statuses] == ["quarantined"]
    limited = new_app(groups=GroupSettings(events=10))
    limited.cut([publish(0, own), *(pay(n, 0, 1.0) for n in range(30))], CLOCK)
    assert len(lane(limited.cut([pay(30, 9, 1.0, user="bob")], CLOCK), ALERTS)) == 10


def test_a_waiting_event_has_no_columns_that_only_later_rules_read() -> None:
    """It is not taken for one in which they are NULL."""

    def version(number: int, where: str) -> RawRecord:
        return publish(number, document(number, features=[COUNTED], where=f"n >= 0 and {where}", order="in_order"))

    app = new_app(max_delay_ms=HOUR)
    app.cut([version(1, "amount > 0"), pay(0, 0, 1.0), pay(1, 0.1, 1.0)], CLOCK)
    app.cut([version(2, "card is null"), pay(2, 0.2, 1.0), pay(3, 0.3, 1.0, card=None)], CLOCK)
    app = InProcessApp(app.app, app.blobs)
    found = lane(app.cut([pay(4, 9, 1.0, user="bob")], CLOCK), ALERTS)
    assert [(one["source"]["offset"], one["values"]) for one in found] == [(3, {"n": 3})]


def test_a_column_that_is_read_again_is_not_null_in_waiting_events() -> None:
    def version(number: int, where: str) -> RawRecord:
        return publish(number, document(number, features=[COUNTED], where=f"n >= 0 and {where}", order="in_order"))

    app = new_app(max_delay_ms=HOUR)
    app.cut([version(1, "card = 'k'"), pay(0, 0, 1.0)], CLOCK)
    app.cut([version(2, "amount > 0")], CLOCK)
    app.cut([version(3, "coalesce(card, 'none') = 'none'"), pay(1, 0.1, 1.0, card=None)], CLOCK)
    found = lane(app.cut([pay(2, 9, 1.0, user="bob")], CLOCK), ALERTS)
    assert [one["source"]["offset"] for one in found] == [1]


def test_a_waiting_event_is_not_counted_by_a_feature_that_came_after_it() -> None:
    """Its backfill has counted it. At the waiting events themselves it is incomplete."""
    app = new_app(max_delay_ms=HOUR)
    other = document(name="other", features=[COUNTED], where="n >= 0", order="in_order", mode="shadow")
    own = document(name="q", features=[{**COUNTED, "where": "amount > 0"}], where="n >= 0", order="in_order")
    app.cut([publish(0, other), publish(1, document(name="q", where="usual > 0", order="in_order"))], CLOCK)
    app.cut([pay(0, 0, 1.0), pay(1, 0.1, 1.0)], CLOCK)
    app.cut([publish(2, {**own, "version": 2}), pay(2, 0.2, 1.0), pay(3, 0.3, 1.0)], CLOCK)
    app = InProcessApp(app.app, app.blobs)
    found = lane(app.cut([pay(4, 9, 1.0, user="bob")], CLOCK), ALERTS)
    own_alerts = [one for one in found if one["rule"] == "q"]
    assert [(one["source"]["offset"], one["values"]["n"]) for one in own_alerts] == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert [one["incomplete"] for one in own_alerts] == [True] * 4


def test_a_field_that_became_wider_is_so_in_waiting_events() -> None:
    own = document(features=[COUNTED], where="n >= 0 and amount > 0", order="in_order")
    app = new_app(with_amount("long"), max_delay_ms=HOUR)
    app.cut([publish(0, own), pay(0, 0, 1), pay(1, 0.1, 2)], CLOCK)
    wider = new_app(with_amount("double"), restart=app, max_delay_ms=HOUR)
    wider.cut([pay(2, 0.2, 0.5)], CLOCK)
    again = new_app(with_amount("double"), restart=wider, max_delay_ms=HOUR)  # loads rows of both types
    found = lane(again.cut([pay(3, 9, 1.0, user="bob")], CLOCK), ALERTS)
    assert [(one["source"]["offset"], one["values"]) for one in found] == [(n, {"n": n}) for n in range(3)]


@pytest.mark.parametrize("every", ["1h", "5m", "1m"])
def test_an_event_with_a_later_time_counts_at_most_once_in_a_decayed_value(every: str) -> None:
    within = {"sliding": "10h", "every": every}
    features = [
        {"name": "n", "of": "time_decayed_count(interval 1 minute)", "within": within},
        {"name": "s", "of": "time_decayed_sum(amount, interval 1 minute)", "within": within},
    ]
    app = new_app(max_delay_ms=20 * HOUR)
    app.cut([publish(0, document(features=features, where="n >= 0")), pay(0, 0.5, 3.0)], CLOCK)
    found = lane(app.cut([pay(1, 1 / 6, 3.0), pay(2, 31 / 60, 3.0), pay(3, 15, 1.0), pay(4, 0, 1.0)], CLOCK), ALERTS)
    values = {one["source"]["offset"]: one["values"] for one in found}
    assert values[1] == {"n": 1.0, "s": 3.0}
    assert values[2]["n"] == pytest.approx(0.5 + 0.5**21)
    assert values[4]["n"] <= 4
    assert values[4]["s"] <= 10


def test_an_order_is_for_features_only() -> None:
    with pytest.raises(ValueError, match="order: is for rules with features"):
        Rule.model_validate(document(features=[], group_by=[], where="amount > 1", order="in_order"))


def test_a_diff_tells_what_becomes_of_features() -> None:
    def changes(before: dict[str, object], after: dict[str, object]) -> list[tuple[str, StateOutcome]]:
        old, new = (Rule.model_validate(own) for own in (before, after))
        (change,) = diff([old], [new], {"pay": SCHEMA})
        return [(one.state_name, one.outcome) for one in change.state]

    name = "feature usual, avg(amount) by user over 30d"
    assert changes(document(), document(version=2, where="amount > 4 * usual")) == [(name, StateOutcome.KEPT)]
    other = {**MEAN, "of": "max(amount)"}
    assert changes(document(), document(version=2, features=[other])) == [
        ("feature usual, max(amount) by user over 30d", StateOutcome.NEW),
        (name, StateOutcome.DROPPED),
    ]
