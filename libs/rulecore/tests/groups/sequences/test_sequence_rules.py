"""The semantics of sequences, case by case; events are written as minute and kind (``5a``), in order of arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
import polars as pl
import pytest

from rulecore import language as lang
from rulecore.check import check_rules, cost
from rulecore.compile.rule import CompiledRule
from rulecore.documents.loading import load_text
from rulecore.errors import ExpressionError, RuleError
from rulecore.factory import RulesFactory
from rulecore.firing import FiringTime, RuleFiring
from rulecore.groups.sequences.group import SequenceGroup
from rulecore.language.columnar.compiler import to_polars
from rulecore.matching.access_plan import AccessPath
from rulecore.settings import GroupSettings
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS
from streamcore.wire.map_entries import KEY, VALUE
from tests.harness.apps.compile_failures import compile_with
from tests.harness.apps.rule_group import GroupRun, Row, compile_document

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
END = 2**60
DAY = T0 + 24 * 60 * MINUTE
SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)
Item = dict[str, object]
FAILED: Item = {"step": "failed", "where": "kind = 'a'", "times": 2}
BOUGHT: Item = {"step": "bought", "where": "kind = 'b'"}
NOT_C: Item = {"without": "kind = 'c'"}
BEGUN: Item = {"step": "begun", "where": "kind = 'a'"}


def document(items: Sequence[Item], **more: object) -> bytes:
    body = {
        "id": "r",
        "version": 1,
        "owner": "o",
        "on": "acts",
        "group_by": ["user"],
        "sequence": items,
        "within": "1h",
        "then": {"severity": "high", "message": "m"},
    }
    return orjson.dumps(body | more)


def rule(*items: Item, **more: object) -> CompiledRule:
    return compile_document(document(items, **more), SCHEMA)


def events(text: str) -> list[tuple[int, int, int, Row]]:
    """Return events of one user in one partition; the amount is the number of the event, in units."""
    rows: list[tuple[int, int, int, Row]] = []
    for offset, word in enumerate(text.split()):
        minute, kind = float(word[:-1]), word[-1]
        rows.append((T0 + int(minute * MINUTE), 0, offset, {"user": "u", "kind": kind, "amount": 100 * offset}))
    return rows


def firings(text: str, *items: Item, **more: object) -> list[RuleFiring]:
    return GroupRun(SCHEMA, [rule(*items, **more)]).cut(events(text), END)


def find_matches(text: str, *items: Item, **more: object) -> list[str]:
    """Return the events of each match, by their words."""
    words = text.split()
    return [" ".join(words[o.offset] for o in f.events) for f in firings(text, *items, **more)]


def test_other_events_may_come_between_two_steps() -> None:
    assert find_matches("1a 2x 3a 4a 5b", FAILED, BOUGHT) == ["1a 3a 5b"]
    assert find_matches("1b 2a 3a", FAILED, BOUGHT) == []


def test_order_is_that_of_event_time_and_not_of_arrival() -> None:
    assert find_matches("5b 3a 1a", FAILED, BOUGHT) == ["1a 3a 5b"]


def test_events_of_one_time_are_in_order_of_partition_and_offset() -> None:
    run = GroupRun(SCHEMA, [rule(BEGUN, BOUGHT)])
    (_, _, _, a), (_, _, _, b) = events("1a 1b")
    assert run.cut([(T0, 1, 0, a), (T0, 0, 5, b)], T0 + 1) == []
    assert len(run.cut([(T0 + MINUTE, 0, 6, a), (T0 + MINUTE, 1, 1, b)], END)) == 1


def test_an_event_is_processed_when_the_watermark_has_passed_it() -> None:
    run = GroupRun(SCHEMA, [rule(BEGUN, BOUGHT)])
    assert run.cut(events("1a 2b"), T0 + 2 * MINUTE) == []
    assert len(run.cut([], T0 + 2 * MINUTE + 1)) == 1


@pytest.mark.parametrize(("last", "expected"), [("61b", ["1a 2a 61b"]), ("61.001b", [])])
def test_a_match_lasts_at_most_within_inclusive(last: str, expected: list[str]) -> None:
    assert find_matches(f"1a 2a {last}", FAILED, BOUGHT) == expected


@pytest.mark.parametrize(("last", "expected"), [("7b", ["1a 2a 7b"]), ("7.001b", [])])
def test_a_step_ends_at_most_its_within_after_the_step_before_it(last: str, expected: list[str]) -> None:
    assert find_matches(f"1a 2a {last}", FAILED, {**BOUGHT, "within": "5m"}) == expected


@pytest.mark.parametrize(("last", "expected"), [("7b", ["1a 3b 7b"]), ("7.001b", [])])
def test_a_step_of_several_events_ends_with_its_last(last: str, expected: list[str]) -> None:
    assert find_matches(f"1a 3b {last}", BEGUN, {**BOUGHT, "times": 2, "within": "6m"}) == expected


@pytest.mark.parametrize(("second", "expected"), [("6a", ["1a 6a 30b"]), ("6.001a", [])])
def test_the_first_step_lasts_at_most_its_within_from_its_first_event(second: str, expected: list[str]) -> None:
    assert find_matches(f"1a {second} 30b", {**FAILED, "within": "5m"}, BOUGHT) == expected


def test_each_event_that_satisfies_the_first_step_begins_a_partial() -> None:
    assert find_matches("1a 8a 9a 10b", {**FAILED, "within": "5m"}, BOUGHT) == ["8a 9a 10b"]


def test_a_without_between_two_steps_ends_the_partials_between_them() -> None:
    assert find_matches("1a 2a 3c 4b", FAILED, NOT_C, BOUGHT) == []
    assert find_matches("1a 2a 3c 4a 5b", FAILED, NOT_C, BOUGHT) == ["2a 4a 5b"]


def test_a_without_applies_only_between_the_end_of_one_step_and_the_start_of_the_next() -> None:
    assert find_matches("1a 2c 3a 4b", FAILED, NOT_C, BOUGHT) == ["1a 3a 4b"]
    assert find_matches("1a 2b 3c 4b", BEGUN, NOT_C, {**BOUGHT, "times": 2}) == ["1a 2b 4b"]


def test_the_without_wins_when_an_event_also_satisfies_the_next_step() -> None:
    assert find_matches("1a 2b", BEGUN, {"without": "kind in ('b', 'c')"}, BOUGHT) == []


def test_an_event_that_ends_a_partial_may_begin_another() -> None:
    assert find_matches("1a 2a 3b", BEGUN, {"without": "kind = 'a'"}, BOUGHT) == ["2a 3b"]


def test_a_final_without_fires_when_the_watermark_passes_its_end() -> None:
    quiet = {**NOT_C, "within": "5m"}
    run = GroupRun(SCHEMA, [rule(BEGUN, quiet)])
    assert run.cut(events("1a"), T0 + 6 * MINUTE) == []
    (firing,) = run.cut([], T0 + 6 * MINUTE + 1)
    assert (firing.time_ms, firing.start_ms, firing.end_ms) == (T0 + 6 * MINUTE, T0 + MINUTE, T0 + 6 * MINUTE)


@pytest.mark.parametrize(("then", "expected"), [("1c", []), ("6c", []), ("6.001c", ["1a"])])
def test_a_final_without_applies_after_the_last_event_until_its_within_is_over(then: str, expected: list[str]) -> None:
    assert find_matches(f"1a {then}", BEGUN, {**NOT_C, "within": "5m"}) == expected
    assert find_matches("1c 1a", BEGUN, {**NOT_C, "within": "5m"}) == ["1a"]


def test_past_last_searches_on_after_the_last_event_of_a_match() -> None:
    text = "1a 2a 3a 4b 5a 6a 7b"
    assert find_matches(text, FAILED, BOUGHT) == ["1a 2a 4b", "5a 6a 7b"]


def test_past_last_does_not_start_with_the_last_event_of_a_match() -> None:
    assert find_matches("1a 2a 3a 4a", {**FAILED, "times": 2}) == ["1a 2a", "3a 4a"]


@pytest.mark.slow
@pytest.mark.parametrize("skip", ["to_next", "none"])
def test_the_other_skip_strategies_keep_every_other_partial(skip: str) -> None:
    assert find_matches("1a 2a 3a 4b", FAILED, BOUGHT, skip=skip) == ["1a 2a 4b", "2a 3a 4b"]
    assert find_matches("1a 2a 3a", FAILED, skip=skip) == ["1a 2a", "2a 3a"]


def test_a_pending_match_discards_partials_that_began_up_to_its_last_event_and_no_later_ones() -> None:
    quiet = {**NOT_C, "within": "10m"}
    assert find_matches("1a 2a 3b 4b", BEGUN, BOUGHT, quiet) == ["1a 3b"]
    assert find_matches("1a 3b 4a 5b", BEGUN, BOUGHT, quiet) == ["1a 3b", "4a 5b"]


def test_a_pending_match_that_ends_discards_nothing() -> None:
    quiet = {**NOT_C, "within": "5m"}
    assert find_matches("1a 2b 3a 4c 5b", BEGUN, BOUGHT, quiet) == ["3a 5b"]


def test_a_condition_that_is_null_is_not_satisfied() -> None:
    run = GroupRun(SCHEMA, [rule(BEGUN, {"without": "kind <> 'a'"}, BOUGHT)])
    rows: list[tuple[int, int, int, Row]] = [
        (T0, 0, 0, {"user": "u", "kind": "a"}),
        (T0 + 1, 0, 1, {"user": "u", "kind": None}),
    ]
    assert run.cut(rows, T0 + 2) == []
    assert run.last.group.state_size().entries == 1


def test_null_is_a_key_of_its_own() -> None:
    run = GroupRun(SCHEMA, [rule(BEGUN, BOUGHT)])
    rows: list[tuple[int, int, int, Row]] = [
        (T0, 0, 0, {"user": None, "kind": "a"}),
        (T0 + 1, 0, 1, {"user": None, "kind": "b"}),
    ]
    assert [f.key for f in run.cut(rows, END)] == [{"user": None}]


def test_the_common_where_applies_to_every_step_and_without() -> None:
    text = "0x 1a 2c 3b"  # amounts 0, 1, 2, 3
    assert find_matches(text, BEGUN, NOT_C, BOUGHT, where="amount <> 2") == ["1a 3b"]
    assert find_matches(text, BEGUN, BOUGHT, where="amount <> 1") == []


# --- the contents of a firing -----------------------------------------------------------------------------------------


def test_a_firing_has_its_events_in_order_and_its_time() -> None:
    (firing,) = firings("5b 3a 1a", FAILED, BOUGHT)
    assert [(o.topic, o.partition, o.offset, o.event_ms) for o in firing.events] == [
        ("events", 0, 2, T0 + MINUTE),
        ("events", 0, 1, T0 + 3 * MINUTE),
        ("events", 0, 0, T0 + 5 * MINUTE),
    ]
    assert (firing.time_ms, firing.timing, firing.row) == (T0 + 5 * MINUTE, FiringTime.FINAL, None)
    assert firing.mark == (0, 2, 0, 0, 3)


def app() -> InProcessApp:
    kernel = RulesFactory((RuleStream(SCHEMA, "acts"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    return InProcessApp(App("t", (Source(SCHEMA, "acts"),), "control", {}, (kernel,), shards=2, watermark=watermark))


def raw_records(text: str, first: int = 0) -> list[RawRecord]:
    return [
        RawRecord(0, 0, first + o, orjson.dumps({"ts": ms, "user": row["user"], "kind": row["kind"], "amount": o}))
        for ms, _, o, row in events(text)
    ]


def alerts(app: InProcessApp, records: Sequence[RawRecord]) -> list[Mapping[str, object]]:
    out = app.cut(records, T0 + 10_000 * MINUTE)
    return [orjson.loads(r.value or b"") for r in out if r.lane == ALERTS]


def test_an_alert_shows_count_and_duration_and_the_values_that_its_message_names() -> None:
    message = "{user}: {count} in {duration_ms} ms, paid {bought.amount} after {failed.amount}, from {started}"
    then = {"severity": "high", "message": message}
    published = control_record(1, "r", document([FAILED, BOUGHT], then=then))
    (alert,) = alerts(app(), [published, *raw_records("1a 2a 5b 6x")])
    assert alert["values"] == {
        "count": 3,
        "duration_ms": 240_000,
        "failed.amount": "1.00",
        "bought.amount": "2.00",
    }
    assert alert["message"] == f"u: 3 in 240000 ms, paid 2.00 after 1.00, from {T0 + MINUTE}"
    assert alert["kind"] == "sequence"


# --- rules that change --------------------------------------------------------------------------------------------


def test_another_message_or_severity_keeps_the_partials() -> None:
    one = app()
    alerts(one, [control_record(1, "r", document([FAILED, BOUGHT])), *raw_records("1a 2a")])
    then = {"severity": "low", "message": "paid {bought.amount} after {failed.amount}"}
    changed = control_record(2, "r", document([FAILED, BOUGHT], version=2, then=then))
    (alert,) = alerts(one, [changed, *raw_records("3b 4x", 10)])
    assert (alert["version"], alert["incomplete"]) == (2, False)
    # The first failed login was matched before a message named its amount.
    assert alert["message"] in ("paid 0.00 after 1.00", "paid 0.00 after null")


def test_another_structure_starts_without_partials() -> None:
    one = app()
    alerts(one, [control_record(1, "r", document([FAILED, BOUGHT])), *raw_records("1a 2a")])
    changed = control_record(2, "r", document([FAILED, {**BOUGHT, "within": "30m"}], version=2))
    assert alerts(one, [changed, *raw_records("3b 4x", 10)]) == []


def test_a_rule_that_is_deleted_and_published_again_starts_without_partials() -> None:
    one = app()
    alerts(one, [control_record(1, "r", document([FAILED, BOUGHT])), *raw_records("1a 2a 2x")])
    alerts(one, [control_record(2, "r", None)])
    again = control_record(3, "r", document([FAILED, BOUGHT], version=2))
    assert alerts(one, [again, *raw_records("3b 4x", 10)]) == []


def test_a_restart_does_not_restore_the_state_of_a_deleted_rule() -> None:
    one = app()
    alerts(one, [control_record(1, "r", document([FAILED, BOUGHT])), *raw_records("1a 2a 2x")])
    alerts(one, [control_record(2, "r", None)])
    alerts(one, [control_record(3, "r", document([FAILED, BOUGHT], version=2))])
    again = InProcessApp(one.app, one.blobs)
    assert alerts(again, raw_records("3b 4x", 10)) == []


def test_buffered_events_that_no_rule_needs_any_more_are_dropped() -> None:
    run, group = start_with_limits(GroupSettings(), FAILED, BOUGHT)
    run.cut(events("1a 2a 3b"), T0)
    run.change([rule(FAILED, {**BOUGHT, "where": "kind = 'c'"})])
    assert len(group.buffer) == 2
    run.change([rule({**FAILED, "where": "kind = 'x'"}, {**BOUGHT, "where": "kind = 'y'"})])
    assert len(group.buffer) == 0


def test_rules_of_one_structure_share_their_state() -> None:
    rules = [rule(FAILED, BOUGHT, id=name) for name in ("one", "two")]
    other = rule({**FAILED, "step": "renamed", "times": 3}, BOUGHT, id="three", where="amount >= 0")
    run = GroupRun(SCHEMA, [*rules, other])
    run.cut(events("1a"), T0 + 2 * MINUTE)
    assert run.last.group.state_size().entries == 2
    fired = run.cut(events("3a 4a 5b"), END)
    assert sorted(f.rule.rule.id for f in fired) == ["one", "three", "two"]


def test_rules_that_differ_in_conditions_share_a_partial_match_until_an_event_divides_it() -> None:
    kinds = {"one": "kind = 'a'", "two": "kind in ('a', 'c')", "three": "kind in ('a', 'd')"}
    run = GroupRun(SCHEMA, [rule({**FAILED, "where": where}, BOUGHT, id=name) for name, where in kinds.items()])
    group = run.last.group
    run.cut(events("1a"), T0 + 2 * MINUTE)
    assert group.state_size().entries == 1
    of_each = {name.split("@")[0]: size for name, size in group.state_use(0).by_rule.items()}
    assert {size.entries for size in of_each.values()} == {1}
    run.cut(events("3c"), T0 + 4 * MINUTE)  # the second of rule two, the first of another match of it
    assert group.state_size().entries == 3
    by_rule = {name.split("@")[0]: size.entries for name, size in group.state_use(0).by_rule.items()}
    assert by_rule == {"one": 1, "two": 2, "three": 1}
    assert [f.rule.rule.id for f in run.cut(events("5b"), T0 + 6 * MINUTE)] == ["two"]
    assert sorted(f.rule.rule.id for f in run.cut(events("6a 7b"), END)) == ["one", "three"]


def test_rules_whose_conditions_over_earlier_events_differ_share_a_partial_match_until_the_answers_differ() -> None:
    more: dict[str, Item] = {
        name: {"step": "more", "where": f"kind = 'c' and amount > {n} * last(a.amount)"} for n, name in enumerate("rst")
    }
    rules = [rule({"step": "a", "where": "kind = 'a'"}, one, BOUGHT, id=name) for name, one in more.items()]
    run = GroupRun(SCHEMA, rules)
    group = run.last.group
    acts = enumerate([("a", 100), ("c", 150), ("c", 250), ("b", 0)])
    rows = [(T0 + n * MINUTE, 0, n, {"user": "u", "kind": kind, "amount": cents}) for n, (kind, cents) in acts]
    sizes = []
    for row in rows[:3]:
        assert not run.cut([row], row[0] + 1)
        sizes.append(group.state_size().entries)
    assert sizes == [1, 2, 2]  # of all; r and s have taken 150; so has t taken 250
    fired = {f.rule.rule.id: [o.offset for o in f.events] for f in run.cut(rows[3:], END)}
    assert fired == {"r": [0, 1, 3], "s": [0, 1, 3], "t": [0, 2, 3]}


def test_rules_that_see_other_events_between_their_steps_share_no_partial_match() -> None:
    """What ends a partial match of one rule must not end that of another, which does not see the event."""
    directly: Item = {"next": "bought", "where": "kind = 'b'"}
    every = rule({**BEGUN, "where": "kind = 'a' and amount > 1"}, directly, id="every")
    large = rule(BEGUN, directly, id="large", where="amount > 1")
    acts = enumerate([("a", 500), ("c", 0), ("b", 500)])
    rows = [(T0 + n * MINUTE, 0, n, {"user": "u", "kind": kind, "amount": cents}) for n, (kind, cents) in acts]
    assert [f.rule.rule.id for f in GroupRun(SCHEMA, [every, large]).cut(rows, END)] == ["large"]


def test_a_paused_rule_keeps_matching_without_alerts() -> None:
    run = GroupRun(SCHEMA, [rule(FAILED, BOUGHT, mode="paused")])
    run.cut(events("1a 2a"), T0 + 3 * MINUTE)
    run.change([rule(FAILED, BOUGHT)])
    assert len(run.cut(events("4b"), END)) == 1


@pytest.mark.parametrize(("last", "incomplete"), [("70b", True), ("70.001b", False)])
def test_a_new_sequence_is_incomplete_until_the_longest_match_must_have_started_after_it(
    last: str, incomplete: bool
) -> None:
    run = GroupRun(SCHEMA, [rule(BEGUN, BOUGHT)])
    run.change([rule({**BEGUN, "times": 2}, BOUGHT)], latest_ms=T0 + 10 * MINUTE)
    (firing,) = run.cut(events(f"30a 31a {last}"), END)
    assert firing.incomplete is incomplete


def test_only_the_rule_that_raises_goes_into_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_or_break(expr: lang.Expr) -> pl.Expr:
        return pl.col("no such column") if "99" in lang.render(expr) else to_polars(expr)

    compile_with(monkeypatch, compile_or_break)
    one = app()
    bad = document([BEGUN, {"step": "odd", "where": "amount + 99 > length(kind)"}], id="bad")
    rules = [control_record(1, "bad", bad), control_record(2, "good", document([FAILED, BOUGHT], id="good"))]
    out = one.cut([*rules, *raw_records("1a 2a 3b 4x")], T0 + 10_000 * MINUTE)
    statuses = {(s["rule"], s["status"]) for s in (orjson.loads(r.value or b"") for r in out if r.lane == STATUS)}
    assert ("bad", "quarantined") in statuses
    assert ("good", "quarantined") not in statuses
    assert [orjson.loads(r.value or b"")["rule"] for r in out if r.lane == ALERTS] == ["good"]


# --- limits -------------------------------------------------------------------------------------------------------


def start_with_limits(settings: GroupSettings, *items: Item, processes: int = 1) -> tuple[GroupRun, SequenceGroup]:
    run = GroupRun(SCHEMA, [rule(*items)], processes, settings)
    assert isinstance(run.last.group, SequenceGroup)
    return run, run.last.group


def test_beyond_the_limit_the_oldest_partial_is_dropped_and_counted() -> None:
    run, group = start_with_limits(GroupSettings(partials=2), {**BEGUN, "times": 3}, BOUGHT)
    fired = run.cut(events("1a 2a 3a 4a 5b"), T0 + 6 * MINUTE)
    assert [[o.offset for o in f.events] for f in fired] == []
    assert group.metrics() == {"events_dropped": 0, "partials_dropped": 2}
    assert len(group.store) == 2
    assert group.metrics()["partials_dropped"] == 0


def test_beyond_the_limit_the_latest_new_events_are_rejected_and_counted() -> None:
    run, group = start_with_limits(GroupSettings(events=3), BEGUN, BOUGHT)
    run.cut(events("9b 1a"), T0)
    run.cut([(ms, 0, 10 + o, row) for ms, _, o, row in events("4b 2a")], T0)
    assert group.metrics() == {"events_dropped": 1, "partials_dropped": 0}
    assert (len(group.buffer), len(group.store)) == (3, 0)
    fired = run.cut([], END)
    assert [[o.offset for o in f.events] for f in fired] == [[1, 0]]  # 4b is missing, 9b was buffered before


def test_events_that_are_processed_in_their_own_cut_are_not_rejected() -> None:
    run, group = start_with_limits(GroupSettings(events=1), BEGUN, BOUGHT)
    assert len(run.cut(events("1a 2b 3a 4b"), END)) == 2
    assert group.metrics()["events_dropped"] == 0


def test_rejected_events_stay_rejected_after_a_restart() -> None:
    for processes in (0, 1):
        run, _ = start_with_limits(GroupSettings(events=2), BEGUN, BOUGHT, processes=processes)
        run.cut(events("1a 9b 8b 7b"), T0)
        run.cut([], T0 + 1)
        (firing,) = run.cut([], END)
        assert [o.offset for o in firing.events] == [0, 3]


def test_no_state_is_kept_of_unmatched_events_and_ended_partials() -> None:
    run, group = start_with_limits(GroupSettings(), FAILED, BOUGHT)
    run.cut(events("1x 2x 3a"), T0)
    assert len(group.buffer) == 1
    run.cut([], T0 + 63 * MINUTE)
    assert len(group.store) == 1
    run.cut([], T0 + 63 * MINUTE + 1)
    assert len(group.store) == 0
    assert sum(table.rows(0, 1).height for table in group.tables().values()) == 0


# --- checking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([{**BEGUN, "where": "kidn = 'a'"}, BOUGHT], "sequence.0.where"),
        ([BEGUN, {"without": "amount > 'x'"}, BOUGHT], "sequence.1.without"),
        ([BEGUN, NOT_C, {**BOUGHT, "where": "kind"}], "sequence.2.where"),
        ([BEGUN, {**BOUGHT, "where": "count(*) > 1"}], "sequence.1.where"),
    ],
)
def test_the_error_names_the_condition_with_the_fault(items: list[Item], field: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        rule(*items)
    assert caught.value.field == field


def test_an_error_in_a_condition_of_a_file_has_its_line() -> None:
    text = document([BEGUN, {**BOUGHT, "where": "kidn = 'b'"}])
    pretty = orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    (problem,) = check_rules(load_text(pretty, "r.yaml")[0], {"acts": SCHEMA}).problems
    wanted = next(n for n, line in enumerate(pretty.splitlines(), 1) if "kidn" in line)
    assert (problem.place.line, problem.path) == (wanted, "sequence.1.where")


def test_a_message_names_only_columns_of_steps_and_aggregates_of_them() -> None:
    for message, says in (
        ("{failed.amuont}", "unknown column failed.amuont"),
        ("{failed.amount + 1}", "neither a column of a step nor an aggregate"),
        ("{sum(failed.amount + bought.amount)}", "reads bought and failed"),
        ("{sum(failed)}", "failed is a step, no value"),
        ("{nobody.amount}", "unknown name"),
        ("{amount}", "unknown name"),
    ):
        with pytest.raises(ExpressionError) as caught:
            rule(FAILED, BOUGHT, then={"severity": "low", "message": message})
        assert caught.value.field == "then.message"
        assert says in caught.value.message


NUMBERED = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "n": "long", "d": "decimal(18,2)"},
    }
)


def numbered_app(schema: StreamSchema = NUMBERED, restart: InProcessApp | None = None) -> InProcessApp:
    kernel = RulesFactory((RuleStream(schema, "acts"),))
    strategy = WatermarkStrategy(max_out_of_orderness_ms=MINUTE)
    app = App("t", (Source(schema, "acts"),), "control", {}, (kernel,), shards=1, watermark=strategy)
    return InProcessApp(app) if restart is None else InProcessApp(app, restart.blobs)


def act(offset: int, minute: float, kind: str, n: float = 0, d: str = "0") -> RawRecord:
    event = {"ts": T0 + int(minute * MINUTE), "user": "u", "kind": kind, "n": n, "d": d}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def test_a_sum_outside_of_its_type_is_null_in_messages_and_conditions() -> None:
    most, digits = 2**63 - 1, "9999999999999999.99"
    then = {"severity": "high", "message": "{sum(a.n)} {sum(a.d)} {avg(a.n)}"}
    bought: Item = {"step": "b", "where": "kind = 'b' and sum(a.n) is null and sum(a.d) is null"}
    own = document([{"step": "a", "where": "kind = 'a'", "times": 3}, bought], then=then)
    app = numbered_app()
    acts = [act(n, n, "a", most, digits) for n in range(3)]
    app.cut([control_record(0, "r", own), *acts, act(3, 3, "b"), act(4, 4, "x")], DAY)
    found = [orjson.loads(r.value or b"") for r in app.cut([act(5, 30, "x")], DAY) if r.lane == ALERTS]
    assert [one["message"] for one in found] == ["null null 9.223372036854776e+18"]


def test_a_sum_that_its_type_just_holds_is_exact() -> None:
    then = {"severity": "high", "message": "{sum(a.n)} {sum(b.n)}"}
    own = document([{"step": "a", "where": "kind = 'a'", "times": 2}, {"step": "b", "where": "kind = 'b'"}], then=then)
    acts = [act(0, 0, "a", 2**62), act(1, 1, "a", 2**62 - 1), act(2, 2, "b", -5)]
    records = numbered_app().cut([control_record(0, "r", own), *acts, act(3, 30, "x")], DAY)
    found = [orjson.loads(r.value or b"") for r in records if r.lane == ALERTS]
    assert [one["message"] for one in found] == ["9223372036854775807 -5"]


def test_a_field_that_became_wider_is_so_in_waiting_and_taken_events() -> None:
    fields = {f.name: f"{f.type}{'' if f.nullable else ' not null'}" for f in NUMBERED.fields} | {"n": "double"}
    wider = StreamSchema.parse({"name": "acts", "event_time": "ts", "keys": [["user"]], "fields": fields})
    then = {"severity": "high", "message": "{sum(a.n)}"}
    steps: list[Item] = [{"step": "a", "where": "kind = 'a'", "times": 3}, {"step": "b", "where": "kind = 'b'"}]
    app = numbered_app()
    app.cut([control_record(0, "r", document(steps, then=then)), act(0, 0, "a", 1), act(1, 1, "a", 2)], DAY)
    app.cut([act(2, 1.5, "x")], DAY)
    app = numbered_app(wider, app)
    app.cut([act(3, 2, "a", 2.5), act(4, 3, "b", 4.5)], DAY)
    records = numbered_app(wider, app).cut([act(5, 30, "x")], DAY)
    found = [orjson.loads(r.value or b"") for r in records if r.lane == ALERTS]
    assert [one["message"] for one in found] == ["5.5"]


def test_a_group_by_that_the_stream_is_not_routed_by_becomes_a_key() -> None:
    assert rule(FAILED, BOUGHT, group_by=["kind"]).route_key == ("kind",)


def test_a_sequence_that_is_too_long_is_rejected() -> None:
    with pytest.raises(RuleError, match="within: a sequence of 500d, at most 400d"):
        rule(FAILED, BOUGHT, within="500d")


def test_the_fingerprint_depends_on_the_structure_only() -> None:
    def fingerprint(*items: Item, **more: object) -> str:
        one = rule(*items, **more).sequence
        assert one is not None
        return one.fingerprint

    same = fingerprint(FAILED, BOUGHT)
    assert fingerprint({**FAILED, "step": "x", "where": "'a' = kind"}, BOUGHT, id="other", mode="shadow") == same
    others = [
        fingerprint({**FAILED, "times": 3}, BOUGHT),
        fingerprint({**FAILED, "within": "5m"}, BOUGHT),
        fingerprint(FAILED, BOUGHT, within="2h"),
        fingerprint(FAILED, BOUGHT, skip="none"),
        fingerprint(FAILED, BOUGHT, where="amount > 1"),
        fingerprint(FAILED, NOT_C, BOUGHT),
        fingerprint(FAILED, {**BOUGHT, "where": "kind = 'c'"}),
    ]
    assert len({same, *others}) == len(others) + 1


def test_a_sequence_costs_what_its_most_expensive_condition_costs() -> None:
    cheap, dear = cost(rule(FAILED, BOUGHT)), cost(rule(FAILED, {**BOUGHT, "where": "kind <> 'a'"}))
    assert (cheap.cheap, cheap.access) == (True, AccessPath.EQUALITY)
    assert (dear.cheap, dear.access) == (False, AccessPath.SCAN)
    assert "3 events, 2 conditions" in cheap.note


NESTED = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "kind": "string",
            "device": "struct<os:string, at:struct<x:double>>",
            "tags": "array<string>",
            "labels": "map<string,string>",
        },
    }
)


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("device.os <> a.device.os", [2]),
        ("b.device.at.x > 1 + first(a.device.at.x)", [2]),
        ("arrays_overlap(tags, a.tags)", [1]),
        ("labels['city'] <> a.labels['city']", [3]),
        ("count(distinct a.device.os) = 1 and device.at.x + 1 > sum(length(a.device.os))", [2]),
        ("any(tags, t -> t = element_at(a.tags, 1))", [1]),
    ],
)
@pytest.mark.quick_cases(3)
def test_members_of_earlier_events_are_compared_and_shown(condition: str, expected: list[int], processes: int) -> None:
    steps: list[Item] = [BEGUN | {"step": "a"}, {"step": "b", "where": f"kind = 'b' and {condition}"}]
    then = {"severity": "low", "message": "{a.device.os} {max(b.device.at.x)} {b.device}"}
    run = GroupRun(NESTED, [compile_document(document(steps, then=then), NESTED)], processes)
    rows: list[dict[str, object]] = [
        {"device": {"os": "ios", "at": {"x": 1.0}}, "tags": ["x", "y"], "labels": [{KEY: "city", VALUE: "rome"}]},
        {"device": {"os": "ios", "at": None}, "tags": ["y", "x"], "labels": None},
        {"device": {"os": "mac", "at": {"x": 2.5}}, "tags": ["z"], "labels": [{KEY: "city", VALUE: "rome"}]},
        {"device": None, "tags": None, "labels": [{KEY: "city", VALUE: "bonn"}]},
    ]
    found = []
    for offset, row in enumerate(rows):
        event = {"user": "u", "kind": "b" if offset else "a", **row}
        found += run.cut([(T0 + offset, 0, offset, event)], T0 + offset)
    found += run.cut([], END)
    assert [[o.offset for o in firing.events] for firing in found] == [[0, *expected]]
    shown: dict[str, object] = {"a.device.os": "ios"}
    if expected == [2]:
        shown = {"a.device.os": "ios", "max(b.device.at.x)": 2.5, "b.device": {"os": "mac", "at": {"x": 2.5}}}
    assert {name: found[0].values[name] for name in shown} == shown
    assert found[0].steps == ("a", "b")


def test_a_match_that_waited_for_an_earlier_one_ends_with_its_last_event() -> None:
    one_more: Item = {"step": "b", "where": "kind = 'b' and amount = a.amount + 1"}
    (found,) = firings("1a 2a 3b 90x", {"step": "a", "where": "kind = 'a'"}, one_more)
    assert [o.offset for o in found.events] == [1, 2]
    assert (found.start_ms, found.end_ms) == (T0 + 2 * MINUTE, T0 + 3 * MINUTE)
    assert found.time_ms == T0 + 61 * MINUTE
