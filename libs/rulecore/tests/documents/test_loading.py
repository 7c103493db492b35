"""Rule documents: which are accepted, which are rejected, and the location of each fault."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore.documents.json_schema import rule_json_schema
from rulecore.documents.loading import decode_record, load_path, load_text
from rulecore.documents.rule import Emit, Rule, RuleMode, Severity, canonical_json
from rulecore.documents.scalars import parse_duration_ms, parse_time_ms, render_time
from rulecore.documents.windows import SlidingSpec, TumblingSpec
from rulecore.documents.yaml_reader import LoadLimits, SourceLocation, read_yaml
from rulecore.errors import DocumentError
from streamcore.durations import render_duration

EVENT_RULE = """\
id: big
version: 1
owner: risk
on: shop
where: amount > 100
then: {severity: high, message: "{amount}"}
"""
WINDOW_RULE = """\
id: burst
version: 2
owner: risk
description: many
on: shop
where: type = 'refund'
group_by: [user_id]
within: {sliding: 24h, every: 1h}
having: count(*) >= 5
emit: final
then: {severity: low, outcome: notify, score: 7, message: m}
mode: shadow
tests:
  - name: none
    events: [{user_id: u1, amount: 1.5, status: null}]
    expect: []
"""


def load_rule(text: str) -> Rule:
    rules, problems = load_text(text, "f.yaml")
    assert problems == []
    (one,) = rules
    assert one.problems == ()
    assert one.rule is not None
    return one.rule


def problem_lines(text: str) -> list[str]:
    """Return all problems of a text, rendered."""
    rules, problems = load_text(text, "f.yaml")
    return [p.render() for p in [*problems, *(p for one in rules for p in one.problems)]]


def test_an_event_rule_has_the_defaults() -> None:
    rule = load_rule(EVENT_RULE)
    assert (rule.mode, rule.emit, rule.windowed) == (RuleMode.LIVE, Emit.EARLY, False)
    assert (rule.then.severity, rule.then.outcome, rule.then.score) == (Severity.HIGH, None, 0)


def test_all_entries_of_a_window_rule_are_read() -> None:
    rule = load_rule(WINDOW_RULE)
    assert rule.within == SlidingSpec.model_validate({"sliding": "1d", "every": "60m"})
    assert isinstance(rule.within, SlidingSpec)
    assert rule.within.size_ms == 24 * rule.within.slide_ms
    assert (rule.group_by, rule.emit, rule.mode) == (("user_id",), Emit.FINAL, RuleMode.SHADOW)
    assert rule.tests[0].events[0] == {"user_id": "u1", "amount": 1.5, "status": None}


def test_a_tumbling_window_slides_by_its_size() -> None:
    within = TumblingSpec.model_validate({"tumbling": "5m"})
    assert (within.size_ms, within.slide_ms) == (300_000, 300_000)


_FEATURES = "group_by: [user_id]\nfeatures:\n  - {name: one, of: count(*), within: {tumbling: 1d}}\n"


@pytest.mark.parametrize(
    ("more", "place", "message"),
    [
        (
            "group_by: [a]\nwithin: 1h\nsequence: [{without: a > 1}, {step: b, where: a > 1}]",
            "9:11",
            "begins with a step",
        ),
        ("sequence: [{step: a, wher: amount > 1}]", "7:22", "unknown entry; did you mean where?"),
        ("score: {limit: 3}", "7:8", "of is missing"),
        ("suppress: {for: 1h}", "7:11", "needs `by`"),
        ("suppress: {by: [user_id]}", "7:11", "for is missing"),
        ("mode: {canary: 100%}", "7:16", "write a percentage between 0% and 100%"),
        ("mode: canary", "7:7", "a canary needs its share of the keys"),
        ("effective: {from: 2026-12-01}", "7:19", "write a date, a time and its zone"),
        ("effective: {from: '2026-12-02T00:00:00Z', to: '2026-12-01T00:00:00Z'}", "7:12", "`to` must be after `from`"),
        ("within: {hopping: 1h}", "7:9", "a window is one of {tumbling: 1h}, {sliding: 24h, every: 1h}, {session"),
        ("within: {count: 10, every: 20}", "7:28", "within.every: 20 must be at most count: 10"),
        ("within: {tumbling: 1 hour}", "7:20", "is no duration; write a whole number and a unit: 500ms, 30s"),
        ("within: {tumbling: 60}", "7:20", "60 is no duration"),
        ("within: {sliding: 1h, every: 7m}", "7:30", "within.every: 7m must divide sliding: 1h"),
        ("within: {sliding: 1h}", "7:9", "every is missing: how often a window begins, such as"),
        ("colour: red", "7:1", "colour: unknown entry"),
        ("feature:\n  - name: a", "7:1", "feature: unknown entry; did you mean features?"),
        (_FEATURES + "  - {name: a, of: count(*), within: 90d}", "10:37", "features.1.within: is {sliding: 30d, every"),
        (
            _FEATURES + "  - {name: one, of: count(*), within: {tumbling: 1d}}",
            "10:12",
            "features.1.name: two are named",
        ),
        (
            _FEATURES + "  - {name: a, of: count(*), by: [a, a], within: {tumbling: 1d}}",
            "10:33",
            "names a column twice",
        ),
        ("mode: on", "7:7", "'on' is no mode; write live, shadow, {canary: 10%}"),
        ("group_by: ['*']", "7:13", "'*' is no name of a column: a name begins with a letter"),
        ("having: count(*) > 1", "1:1", "a window rule needs group_by, within and having; group_by and within is"),
        ("emit: final", "7:7", "final is for window rules"),
        ("tests: [{name: a, events: [{a: [99999999999999999999]}], expect: []}]", "7:32", "more than 64 bits"),
        ("tests: [{name: a, events: [{a: 99999999999999999999}], expect: []}]", "7:32", "more than 64 bits"),
    ],
)
def test_entries_that_contradict_each_other_are_rejected_at_their_location(more: str, place: str, message: str) -> None:
    lines = problem_lines(EVENT_RULE + more + "\n")
    assert any(message in line for line in lines), lines
    assert any(line.startswith(f"f.yaml:{place}") for line in lines), lines


@pytest.mark.parametrize("name", ["id", "version", "owner", "on", "then"])
def test_the_error_names_a_missing_entry(name: str) -> None:
    text = "\n".join(line for line in EVENT_RULE.splitlines() if not line.startswith(name + ":"))
    assert any(f"{name} is missing" in line for line in problem_lines(text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("id: Big Rule", "id: "),
        ("version: 0", "version: "),
        ("version: '1'", "version: "),
        ("version: 1.0", "version: "),
        ("owner: ''", "owner: "),
        ("where: ''", "where: "),
        ("then: {severity: bad, message: m}", "then.severity: "),
        ("then: {severity: low}", "message is missing"),
        ("then: {severity: low, message: m, score: -1}", "then.score: "),
    ],
)
def test_a_wrong_value_is_rejected_at_its_field(line: str, message: str) -> None:
    name = line.partition(":")[0]
    text = "\n".join(line if have.startswith(name + ":") else have for have in EVENT_RULE.splitlines())
    assert any(message in problem for problem in problem_lines(text)), problem_lines(text)


def test_a_rule_without_any_condition_is_rejected() -> None:
    text = "\n".join(line for line in EVENT_RULE.splitlines() if not line.startswith("where:"))
    assert any("needs `where`" in line for line in problem_lines(text))


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: &x 1\nb: *x", SourceLocation(1, 4), "anchors and aliases"),
        ("a: [*x]", SourceLocation(1, 5), "anchors and aliases"),
        ("&k a: 1", SourceLocation(1, 1), "plain text"),
        ("a: 1\nb: 2\na: 3", SourceLocation(3, 1), "'a' is written twice"),
        ("a: !!python/object/apply:os.system ['true']", SourceLocation(1, 4), "tags"),
        ("a: !!binary aGk=", SourceLocation(1, 4), "tags"),
        ("? [1, 2]\n: 3", SourceLocation(1, 3), "plain text"),
        ("a: [1, 2\n", SourceLocation(2, 1), "not YAML"),
        ("a: b: c", SourceLocation(1, 5), "not YAML"),
        (
            "where: 'admin' in roles",
            SourceLocation(1, 16),
            "begins with a quote is written on a line of its own, after >-",
        ),
        ("a:\n\t- b", SourceLocation(2, 1), "YAML is indented by spaces and takes no tab"),
        ("a:\n  - b\n - c", SourceLocation(3, 2), "look at the indentation: the entries of a list or a mapping"),
        (
            "{at: 1, b: coalesce(x, 'c')}",
            SourceLocation(1, 27),
            'an expression with a comma is in quotes, such as {a: "',
        ),
        ("[[[[1]]]]", SourceLocation(1, 5), "nested deeper than 3"),
        ("[" + "1, " * 200 + "1]", SourceLocation(1, 299), "more than 100 entries"),
        ("x" * 3_000, SourceLocation(1, 1), "more than 2000 bytes"),
        ("a: \x00", SourceLocation(1, 1), "not YAML"),
    ],
)
def test_dangerous_and_broken_yaml_is_rejected_with_its_location(
    text: str, place: SourceLocation, message: str
) -> None:
    limits = LoadLimits(file_bytes=2_000, depth=3, entries=100)
    _, (problem,) = read_yaml(text, "f.yaml", limits)
    assert message in problem.message
    assert problem.place == place


def test_scalars_follow_yaml_1_2() -> None:
    text = "{on: no, a: 2011-01-01 10:00:00, b: 010, c: 1e3, d: 'true', e: true, f: 1:30, g: ~, h: .5, i: 0x10, j: }"
    (document,), problems = read_yaml(text, "f.yaml")
    assert problems == []
    assert document.value == {
        "on": "no",
        "a": "2011-01-01 10:00:00",
        "b": 10,
        "c": 1000.0,
        "d": "true",
        "e": True,
        "f": "1:30",
        "g": None,
        "h": 0.5,
        "i": "0x10",
        "j": None,
    }


@given(st.text(max_size=200))
def test_no_text_makes_reading_raise(text: str) -> None:
    rules, problems = load_text(text)
    assert all(one.rule is None and one.problems for one in rules) or rules == []
    assert all(p.place.line >= 1 and p.place.column >= 1 for p in problems)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=8)
)
def test_no_value_of_a_field_makes_reading_raise(value: object) -> None:
    text = EVENT_RULE.replace("high", "low") + "tests: " + repr(value).replace("None", "null") + "\n"
    rules, problems = load_text(text)
    assert problems or rules


def test_the_loader_reads_several_documents_and_a_directory_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(EVENT_RULE + "---\n" + WINDOW_RULE)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.yml").write_text(EVENT_RULE.replace("big", "first"))
    (tmp_path / "a" / "notes.txt").write_text("not a rule")
    rules, problems = load_path(tmp_path)
    assert problems == []
    assert [one.rule.id for one in rules if one.rule] == ["first", "big", "burst"]
    assert rules[2].document.place(("having",)) == SourceLocation(16, 9)


def test_the_loader_reports_files_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    _, (missing,) = load_path(tmp_path / "none.yaml")
    _, (broken,) = load_path(tmp_path)
    assert "cannot be read" in missing.message
    assert "cannot be read" in broken.message
    _, (many,) = load_path(tmp_path, LoadLimits(files=0))
    assert "more than 0 files" in many.message


@pytest.mark.parametrize("text", [EVENT_RULE, WINDOW_RULE])
def test_a_control_record_reads_back_as_the_same_rule(text: str) -> None:
    rule = load_rule(text)
    value = canonical_json(rule)
    assert decode_record(value, 65_536) == rule
    assert canonical_json(decode_record(value, 65_536)) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "a rule is a JSON object"),
        (b"{}", "id: is missing"),
        (b'{"a": NaN}', "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"sequence": []}', "sequence: should have at least 1 item"),
        (b" " * 70_000, "the record has 70000 bytes, at most 65536 are read; move many values into a list"),
    ],
)
def test_a_record_without_a_rule_is_rejected_in_one_line(value: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        decode_record(value, 65_536)
    assert "\n" not in str(caught.value)


def record(**more: object) -> bytes:
    document = {"id": "a", "version": 1, "owner": "o", "on": "shop", "where": "a > 1"}
    return orjson.dumps({**document, "then": {"severity": "low", "message": "m"}, **more})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (record()[:-1] + b', "where": "a > 2"}', "'where' is written twice"),
        (record().replace(b'"message"', b'"message":"x","message"'), "'message' is written twice"),
        (record(owner="o\x1b[2J"), r"owner: character U\+001B is not accepted"),
        (record(tags=["fine", "a\u202eb"]), r"tags\.1: character U\+202E is not accepted"),
        (record(then={"severity": "low", "message": "\x00"}), r"then.message: character U\+0000 is not accepted"),
        (record(**{"a\nb\x1b": 1}), "a b\ufffd: unknown entry"),
        (record(effective={"from": "0001-01-01T00:00:00+23:59"}), "is no time"),
        (
            record(expect={"where": "a = 1", "every": "1h", "again": "soon"}),
            "^expect.again: 'soon' is neither once nor a duration; write once, or 30s, 5m, 1h$",
        ),
        (record(expect={"where": "a = 1", "every": "1h", "of": {"list": 5}}), "^expect.of.list: should be text$"),
        (record(sequence=[5], within="1h"), r"^sequence\.0: should be a mapping$"),
        (record(suppress={"by": 5, "for": "1h"}), "^suppress.by: should be a list$"),
        (record(score={"of": {"b": "x"}, "within": "1h", "limit": 1}), "^score.of.b: should be a whole number$"),
        (record(effective={"to": "9999-12-31T23:59:59-00:01"}), "is no time"),
    ],
)
def test_an_ambiguous_or_unreadable_record_is_rejected_in_one_line(value: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        decode_record(value, 65_536)
    assert "\n" not in str(caught.value)


def test_an_unreadable_character_in_a_file_is_rejected_at_its_location() -> None:
    (line,) = problem_lines(EVENT_RULE.replace("risk", '"ri\\u202esk"'))
    assert line == "f.yaml:3:9: owner: character U+202E is not accepted; remove it"


def test_a_problem_is_one_line_without_control_characters() -> None:
    (line,) = problem_lines(EVENT_RULE + '"od\\x1b[2Jd\\n\\u202ename": 1\n')
    assert line == "f.yaml:7:1: od\ufffd[2Jd \ufffdname: unknown entry"


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_formatted_time_parses_to_the_same_time(time_ms: int) -> None:
    assert parse_time_ms(render_time(time_ms)) == time_ms


@given(st.integers(1, 10**12))
def test_a_formatted_duration_parses_to_the_same_duration(duration_ms: int) -> None:
    assert parse_duration_ms(render_duration(duration_ms)) == duration_ms


def test_the_json_schema_declares_every_entry_of_a_rule() -> None:
    schema = orjson.loads(orjson.dumps(rule_json_schema()))
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"id", "version", "owner", "on", "then"}
    assert {"where", "within", "having", "tests"} <= set(schema["properties"])
