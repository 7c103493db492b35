"""``check``: the same rejections as the rule set, with file and line, and the cost of a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rulecore.check import CheckReport, check_rules
from rulecore.documents.loading import load_text
from rulecore.documents.rule import Rule
from rulecore.documents.yaml_reader import SourceLocation
from rulecore.errors import RuleError
from rulecore.language import ListType
from rulecore.matching.access_plan import AccessPath
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import START_MS, Alert, Event, compare, complete, run_tests
from streamcore.schema import STRING, StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "event_id": "event_id",
        "keys": [["user_id"]],
        "fields": {
            "event_id": "string not null",
            "ts": "timestamp not null",
            "user_id": "string",
            "type": "string",
            "amount": "decimal(12,2)",
        },
    }
)
STREAMS = {"shop": SCHEMA}
RULE = """\
id: big
version: 1
owner: risk
on: shop
where: type = 'payment' and amount > 100
then: {severity: high, message: "{user_id}: {amount}"}
tests:
  - name: fires
    events: [{user_id: u1, type: payment, amount: 100.01}, {user_id: u2, type: payment, amount: 100}]
    expect: [{user_id: u1, severity: high}]
  - name: does not
    events: [{user_id: u1, type: refund, amount: 900}]
    expect: []
"""


def check_text(text: str) -> CheckReport:
    documents, problems = load_text(text, "f.yaml")
    assert problems == []
    return check_rules(documents, STREAMS)


def check_rule(text: str) -> Rule:
    (one,) = check_text(text).rules
    return one.rule


def test_a_valid_rule_has_a_cost_and_no_problems() -> None:
    report = check_text(RULE)
    assert report.problems == ()
    (cost,) = report.costs
    assert (cost.rule, cost.access, cost.cheap) == ("big", AccessPath.EQUALITY_AND_BOUND, True)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("amount > 100\n", "amount > 'x'\n", SourceLocation(5, 38), "decimal(12,2)"),
        ("where: type = 'payment' and amount > 100\n", 'where: "colour > 1"\n', SourceLocation(5, 9), "colour"),
        (
            "where: type = 'payment' and amount > 100\n",
            "where: |\n  amount > 1 and\n  colour = 1\n",
            SourceLocation(7, 1),
            "colour",
        ),
        ("{amount}", "{colour}", SourceLocation(6, 45), "unknown name {colour}"),
        ("on: shop", "on: shp", SourceLocation(4, 5), "there is no stream 'shp'; there are shop"),
        ("{user_id: u2,", "{usr_id: u2,", SourceLocation(9, 69), "there is no usr_id"),
        ("{user_id: u1, severity", "{usr_id: u1, severity", SourceLocation(10, 23), "there is no usr_id"),
    ],
)
def test_a_problem_has_its_location(old: str, new: str, place: SourceLocation, words: str) -> None:
    assert old in RULE
    report = check_text(RULE.replace(old, new))
    (problem,) = report.problems
    assert words in problem.message
    assert problem.place == place
    assert problem.rule == "big"
    assert report.rules == ()


def test_a_problem_shows_the_expression_with_the_fault_underlined() -> None:
    (problem,) = check_text(RULE.replace("amount > 100\n", "amont > 100\n")).problems
    assert "^^^^^" in problem.render()


def test_an_id_that_is_used_twice_is_a_problem() -> None:
    (problem,) = check_text(RULE + "---\n" + RULE).problems
    assert problem.message == "the id 'big' is taken by f.yaml:1"
    assert problem.place == SourceLocation(15, 5)


def test_a_rule_too_large_for_a_record_is_a_problem() -> None:
    event = "{user_id: " + "u" * 1_000 + "}"
    (problem,) = check_text(RULE.replace("events: [", "events: [" + f"{event}, " * 70)).problems
    assert "at most 65536" in problem.message


@pytest.mark.parametrize(
    ("where", "access", "cheap"),
    [
        ("type = 'a'", AccessPath.EQUALITY, True),
        ("amount > 1", AccessPath.BOUND, True),
        ("type in ('a', 'b') and amount > 1", AccessPath.EQUALITY_AND_BOUND, True),
        ("type = 'a' or amount > 1", AccessPath.BOUND, True),
        ("user_id is null", AccessPath.SCAN, False),
        ("type like '%a%b'", AccessPath.LITERALS, True),
        ("regexp_like(type, '[a-z]+[0-9]')", AccessPath.SCAN, False),
        ("not contains(type, 'a')", AccessPath.SCAN, False),
        ("type like '%a%b' or amount > 1", AccessPath.BOUND, True),
        ("regexp_like(type, '[a-z]+[0-9]') or amount > 1", AccessPath.ALL, False),
    ],
)
def test_the_cost_of_a_rule_follows_its_access_path(where: str, access: AccessPath, cheap: bool) -> None:
    (cost,) = check_text(RULE.replace("type = 'payment' and amount > 100\n", where + "\n")).costs
    assert (cost.access, cost.cheap) == (access, cheap)


def test_the_cost_of_a_window_is_its_number_of_panes() -> None:
    text = RULE.partition("tests:")[0].replace("{amount}", "{count_distinct}")
    text += "group_by: [user_id]\nwithin: {sliding: 1d, every: 1h}\nhaving: count_distinct(type) > 2\nemit: final\n"
    (cost,) = check_text(text).costs
    assert (cost.panes, cost.bytes_per_key, cost.cheap) == (24, 24 * 56, True)
    assert "distinct" in cost.note


def test_the_tests_of_a_rule_run_through_the_kernel() -> None:
    results = run_tests(check_rule(RULE), STREAMS, run_in_process)
    assert [(r.test, r.passed) for r in results] == [("fires", True), ("does not", True)]


def test_a_test_that_expects_something_else_fails_with_a_difference() -> None:
    text = RULE.replace("user_id: u1, severity: high", "user_id: u1, severity: low").replace(
        "expect: []", "expect: [{}]"
    )
    fires, silent = run_tests(check_rule(text), STREAMS, run_in_process)
    assert fires.diff[0] == '- missing  {"user_id":"u1","severity":"low"}'
    assert fires.diff[1] == '           nearest: severity: expected "low", got "high"'
    assert fires.diff[2].startswith("+ too many {")
    assert silent.diff == ("- missing  {}",)


def test_an_event_that_the_stream_rejects_fails_the_test() -> None:
    (result, _) = run_tests(check_rule(RULE.replace("amount: 100.01", "amount: abc")), STREAMS, run_in_process)
    assert "events[0] is not an event of shop" in result.diff[0]


def test_a_time_of_a_test_that_is_none_is_a_problem_at_its_line() -> None:
    (problem,) = check_text(RULE.replace("amount: 100.01", "ts: +soon, amount: 100.01")).problems
    assert problem.path == "tests.0.events.0.ts"
    assert "'soon' is no duration; write a whole number and a unit" in problem.message
    assert "+soon" in RULE.replace("amount: 100.01", "ts: +soon, amount: 100.01").splitlines()[problem.place.line - 1]


def test_a_runner_that_raises_fails_the_test_only() -> None:
    def raise_error(
        rules: Sequence[Rule], streams: Mapping[str, StreamSchema], events: Mapping[str, Sequence[Event]]
    ) -> Sequence[Alert]:
        raise RuleError("no kernel today")

    assert [r.diff for r in run_tests(check_rule(RULE), STREAMS, raise_error)] == [
        ("the run failed: no kernel today",)
    ] * 2


def test_an_event_of_a_test_gets_a_default_id_and_time() -> None:
    rows = complete([{}, {"ts": "+90s", "event_id": "x"}, {"ts": 5}, {"ts": "+0s"}], SCHEMA)
    assert rows == [
        {"event_id": "e1", "ts": "2026-01-05T00:00:00.000Z"},
        {"event_id": "x", "ts": "2026-01-05T00:01:30.000Z"},
        {"event_id": "e3", "ts": 5},
        {"event_id": "e4", "ts": "2026-01-05T00:00:00.000Z"},
    ]
    assert START_MS % 86_400_000 == 0


ALERT: Alert = {
    "rule": "r",
    "severity": "low",
    "key": {"user": "u", "n": 1},
    "values": {"sum(a)": "1.50", "count(*)": 2},
}


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"severity": "low"},
        {"user": "u"},
        {"key": {"n": 1}},
        {"values": {"sum(a)": 1.5}},
        {"values": {"sum(a)": "1.50", "count(*)": 2}},
    ],
)
def test_an_expected_alert_may_name_some_entries_only(
    expected: dict[str, str | dict[str, int | str | float | bool | None]],
) -> None:
    assert compare([expected], [ALERT]) == ()


@pytest.mark.parametrize(
    "expected",
    [{"severity": "high"}, {"user": "x"}, {"other": 1}, {"values": {"sum(a)": 1.51}}, {"values": {"count(*)": True}}],
)
def test_a_test_reports_each_difference(
    expected: dict[str, str | int | dict[str, int | str | float | bool | None]],
) -> None:
    assert len(compare([expected], [ALERT])) > 1


def test_each_expected_alert_needs_an_alert_of_its_own_in_any_order() -> None:
    other = {**ALERT, "severity": "high"}
    assert compare([{"rule": "r"}, {"severity": "low"}], [ALERT, other]) == ()
    assert compare([{"rule": "r"}, {"rule": "r"}], [ALERT]) == ('- missing  {"rule":"r"}',)
    assert len(compare([{"rule": "r"}], [ALERT, other])) == 1


UNIQUE = """\
id: flood
version: 1
owner: risk
on: shop
where: type = 'payment' and user_id is not null
group_by: [user_id{more}]
within: {{tumbling: 400d}}
having: count(*) > 3
then: {{severity: high, message: m}}
"""


@pytest.mark.parametrize(("column", "why"), [("event_id", "every event has another"), ("ts", "almost every event has")])
def test_a_key_that_is_new_with_every_event_gives_a_warning_with_a_location_and_advice(column: str, why: str) -> None:
    report = check_text(UNIQUE.format(more=f", {column}"))
    assert report.problems == ()
    (warning,) = report.warnings
    assert (warning.place.line, warning.path, warning.rule) == (6, "group_by", "flood")
    assert warning.message.startswith(f"{column}, user_id: {why}")
    assert "`max_rule_state_bytes`" in warning.message
    assert "take columns whose values come again" in warning.message


def test_a_sample_reveals_keys_that_are_new_with_almost_every_event() -> None:
    documents, _ = load_text(UNIQUE.format(more=""), "f.yaml")
    every = [{"user_id": f"u{n}"} for n in range(100)]
    (warning,) = check_rules(documents, STREAMS, samples={"shop": every}).warnings
    assert "100 events of the sample have 100 different values" in warning.message
    for known in ([{"user_id": f"u{n % 80}"} for n in range(100)], every[:99], []):
        assert check_rules(documents, STREAMS, samples={"shop": known}).warnings == ()


def test_a_feature_that_remembers_every_event_id_gives_a_warning() -> None:
    window = "within: {sliding: 30d, every: 1d}"
    text = UNIQUE.format(more="").replace("within: {tumbling: 400d}\nhaving: count(*) > 3\n", "features:\n")
    text = text.replace("where: type = 'payment'", "where: not known")
    for of, paths in (
        ("seen(event_id)", ["features.0.of"]),
        ("seen(amount)", []),
        ("count(distinct event_id)", ["features.0.of"]),
        ("last(event_id)", []),
    ):
        where = "not known" if of.startswith("seen") else "known is not null"
        rule = text.replace("where: not known", f"where: {where}")
        report = check_text(rule.replace("features:\n", f"features:\n  - {{name: known, of: {of}, {window}}}\n"))
        assert report.problems == ()
        assert [warning.path for warning in report.warnings] == paths
    by = text.replace("features:\n", f"features:\n  - {{name: known, of: seen(amount), by: [user_id, ts], {window}}}\n")
    assert [warning.path for warning in check_text(by).warnings] == ["features.0.of", "features.0.by"]


def test_a_suppression_by_the_event_id_gives_a_warning() -> None:
    text = RULE.replace("then:", "suppress: {by: [user_id, event_id], for: 30d}\nthen:")
    assert [w.path for w in check_text(text).warnings] == ["suppress.by"]
    assert check_text(RULE).warnings == ()


@pytest.mark.parametrize(("back", "paths"), [("34d", ["features.0.within"]), ("35d", [])])
def test_a_decayed_value_that_leaves_out_much_gives_a_warning(back: str, paths: list[str]) -> None:
    of = f'{{name: n, of: "time_decayed_sum(amount, interval 7 days)", within: {{sliding: {back}, every: 1d}}}}'
    text = UNIQUE.format(more="").replace("within: {tumbling: 400d}\nhaving: count(*) > 3\n", f"features: [{of}]\n")
    report = check_text(text.replace("where: type = 'payment'", "where: n > 1"))
    assert report.problems == ()
    assert [warning.path for warning in report.warnings] == paths
    assert all("write 5 half-lives, 35d, or more" in warning.message for warning in report.warnings)


def test_a_score_of_a_rule_that_is_in_none_of_several_files_gives_a_warning() -> None:
    score = "id: s\nversion: 1\nowner: o\non: shop\ngroup_by: [user_id]\nscore: {of: {NAME: 5}, within: 1h, limit: 5}\n"
    score += "then: {severity: high, message: m}\n"

    def warned(name: str, *others: str) -> list[str]:
        texts = (score.replace("NAME", name), *others)
        documents = [one for n, text in enumerate(texts) for one in load_text(text, f"{n}.yaml")[0]]
        return [warning.path for warning in check_rules(documents, STREAMS).warnings]

    flood = UNIQUE.format(more="")
    assert warned("flod", flood) == ["score.of.flod"]
    assert warned("flood", flood) == []
    assert warned("flod") == []  # the others may be elsewhere


def test_the_cost_says_how_long_a_match_may_wait_and_how_long_a_count_window_is_kept() -> None:
    steps = "sequence: [{step: a, where: amount > 1}, {step: b, where: amount > 2 * a.amount}]\nwithin: 30d\n"
    text = UNIQUE.format(more="").replace("within: {tumbling: 400d}\nhaving: count(*) > 3\n", steps)
    assert "up to 30d: `skip: none` with `suppress` alerts at once" in check_text(text).costs[0].note
    for other in (text.replace("2 * a.amount", "2"), text.replace("within: 30d", "within: 30d\nskip: none")):
        (cost,) = check_text(other).costs
        assert "alerts at once" not in cost.note
    counted = UNIQUE.format(more="").replace("{tumbling: 400d}", "{count: 100}")
    assert "until the key is idle for 30 days" in check_text(counted).costs[0].note


@pytest.mark.parametrize(("read", "paths"), [("a.amount", ["sequence"]), ("last(a.amount)", []), ("b.amount", [])])
def test_a_step_that_compares_its_event_with_itself_gives_a_warning(read: str, paths: list[str]) -> None:
    steps = f"sequence: [{{step: b, where: amount > 1}}, {{step: a, where: amount > {read}}}]\nwithin: 1h\n"
    report = check_text(UNIQUE.format(more="").replace("within: {tumbling: 400d}\nhaving: count(*) > 3\n", steps))
    assert report.problems == ()
    assert [warning.path for warning in report.warnings] == paths
    assert all("amount > amount is never true" in warning.message for warning in report.warnings)


KEYED = """\
id: keyed
version: 1
owner: risk
on: shop
where: WHERE
group_by: [user_id]
OF_KIND
then: {severity: high, message: m}
"""
OF_KIND = {
    "window": "within: {tumbling: 1h}\nhaving: count(*) > 3",
    "feature": "features: [{name: n, of: count(*), within: {tumbling: 1d}}]",
    "sequence": "sequence: [{step: a, where: amount > 1, times: 2}]\nwithin: 1h",
}


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_key_that_may_be_null_gives_a_warning_unless_where_leaves_null_out(kind: str) -> None:
    def warned(where: str) -> list[tuple[int, str, str]]:
        documents, _ = load_text(KEYED.replace("WHERE", where).replace("OF_KIND", OF_KIND[kind]), "f.yaml")
        report = check_rules(documents, STREAMS, lists={"known": ListType("known", STRING)})
        assert report.problems == ()
        return [(one.place.line, one.path, one.message) for one in report.warnings]

    silent = ["user_id is not null", "user_id in ('a', 'b')", "not user_id in list('known')", "length(user_id) > 2"]
    assert [warned(f"type = 'payment' and {term}") for term in silent] == [[]] * len(silent)
    for term in ("amount > 1", "coalesce(user_id, '') <> 'x'", "(user_id is not null or amount > 1)"):
        ((line, path, message),) = warned(f"type = 'payment' and {term}")
        assert (line, path) == (6, "group_by")
        assert message.startswith("user_id: all events without it are one group; write `where:")


def test_another_key_of_a_feature_that_may_be_null_gives_a_warning_unless_a_condition_leaves_null_out() -> None:
    def warned(where: str, filtered: str) -> list[tuple[str, str]]:
        entry = f'features: [{{name: n, of: count(*), by: [type], where: "{filtered}", within: {{tumbling: 1d}}}}]'
        text = KEYED.replace("WHERE", f"user_id is not null and {where}").replace("OF_KIND", entry)
        report = check_rules(load_text(text, "f.yaml")[0], STREAMS)
        assert report.problems == ()
        return [(one.path, one.message) for one in report.warnings if "one group" in one.message]

    assert warned("type is not null", "amount > 1") == []
    assert warned("amount > 1", "type is not null") == []
    ((path, message),) = warned("amount > 1", "amount > 1")
    assert path == "features.0.by"
    assert message.startswith("type: all events without it are one group; write `where:")


def test_a_message_names_each_of_several_aggregates() -> None:
    text = """\
id: both
version: 1
owner: risk
on: shop
where: user_id is not null
group_by: [user_id]
within: {tumbling: 1h}
having: count(*) >= 2 and count_if(type = 'payment') >= 1
then: {severity: high, message: "{count_if(type = 'payment')} of {count(*)}, and {count}"}
tests:
  - name: one of two
    events: [{user_id: u1, type: refund}, {user_id: u1, type: payment}]
    expect: [{message: "1 of 2, and 2", values: {"count_if(type = 'payment')": 1, "count(*)": 2}}]
"""
    assert [result.diff for result in run_tests(check_rule(text), STREAMS, run_in_process)] == [()]
