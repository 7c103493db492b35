"""The rules in ``examples/cookbook`` are valid, fire on their own events, and are silent on near misses."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml

from rulecore.check import check_rules
from rulecore.check_policies import check_policies
from rulecore.documents.loading import load_path, load_policies
from rulecore.documents.rule import Rule, RuleKind
from rulecore.lists.files import list_types, load_lists
from rulecore.streams import find_stream, stream_names
from rulecore.testing.in_process import decide_in_process, run_in_process
from rulecore.testing.rule_tests import run_policy_tests, run_tests
from streamcore.decode.scalar import DecodeLimits, ExtraFields, StreamRecord, decode_json_event
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

FOLDER = Path(__file__).parents[4] / "examples" / "cookbook"
STREAMS = {
    path.stem: StreamSchema.parse(yaml.safe_load(path.read_text())) for path in sorted((FOLDER / "streams").iterdir())
}
LISTS, LIST_PROBLEMS = load_lists(FOLDER / "lists")
LOADED, PROBLEMS = load_path(FOLDER / "rules")
RULES = [loaded.rule for loaded in LOADED if loaded.rule is not None]
POLICIES = load_policies(FOLDER / "policies")
CHECKED = check_rules(LOADED, STREAMS, lists=list_types(LISTS))
POLICY_STREAMS = ("logins", "payments")
#: The columns that a rule groups by and an event need not have; what does not come has no event.
NULLABLE = [
    (rule, name)
    for rule in RULES
    if rule.kind is not RuleKind.ABSENCE
    for name in rule.group_by
    if (field := find_stream(STREAMS, rule.on).get(name)) is not None and field.nullable
]
USED_LISTS = {rule.rule.id: rule.lists for rule in CHECKED.rules}


def test_all_rules_pass_the_check() -> None:
    assert [problem.render() for problem in (*LIST_PROBLEMS, *PROBLEMS, *CHECKED.problems, *CHECKED.warnings)] == []
    assert len(CHECKED.rules) == len(LOADED) >= 40


def test_the_policies_order_every_outcome_of_the_rules_of_their_stream() -> None:
    report = check_policies(
        POLICIES, [loaded for loaded in LOADED if loaded.rule and loaded.rule.on in POLICY_STREAMS], STREAMS
    )
    assert report.problems == ()
    assert [policy.name for policy in report.policies] == ["logins", "payments"]
    assert [warning.render() for warning in report.warnings if "is no outcome" in warning.message] == []


@pytest.mark.parametrize("name", POLICY_STREAMS)
@pytest.mark.slow
def test_a_policy_decides_as_its_tests_say(name: str) -> None:
    (policy,) = (one.policy for one in POLICIES if one.policy is not None and one.policy.decision_policy == name)
    rules = [rule for rule in RULES if rule.on == name]
    used = sorted({one for rule in rules for one in USED_LISTS[rule.id]})
    records = [record for one in LISTS if one.head.list in used for record in one.records()]
    results = run_policy_tests(policy, STREAMS, partial(decide_in_process, lists=records), rules)
    assert [(result.test, result.diff) for result in results if not result.passed] == []
    assert len(results) == 2


def test_every_list_is_used_by_a_rule_and_every_stream_too() -> None:
    assert {one.head.list for one in LISTS} == {name for rule in CHECKED.rules for name in rule.lists}
    assert set(STREAMS) == {name for rule in RULES for name in stream_names(rule.on)}


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_the_sample_of_a_stream_has_a_value_for_every_field(name: str) -> None:
    (record,) = (FOLDER / "samples" / f"{name}.jsonl").read_bytes().splitlines()
    schema = STREAMS[name]
    found = decode_json_event(
        schema,
        StreamRecord(record),
        clock_ms=2**41,
        zone=load_zone(schema.zone),
        limits=DecodeLimits(),
        extra_fields=ExtraFields.REJECT,
    )
    assert isinstance(found, tuple), found
    assert [field for field, value in zip(schema.names, found, strict=True) if value is None] == []


def test_the_rules_are_of_every_kind() -> None:
    assert {rule.kind.value for rule in RULES} == {"event", "feature", "window", "sequence", "absence", "score"}


def test_every_file_holds_the_rule_of_its_name_in_the_folder_of_its_stream() -> None:
    for loaded in LOADED:
        assert loaded.rule is not None
        path, names = Path(loaded.document.file), stream_names(loaded.rule.on)
        assert (path.stem, path.parent.name) == (loaded.rule.id, names[0] if len(names) == 1 else "accounts")


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_rule_says_what_it_looks_for_and_where_it_is_wrong(rule: Rule) -> None:
    _, false_alarms, tune = rule.description.split("\n\n")
    assert false_alarms.startswith("False alarms: ")
    assert tune.startswith("Tune: ")


def run(rule: Rule) -> list[tuple[str, ...]]:
    """Return the failed tests of a rule, with what differs."""
    used = USED_LISTS[rule.id].union(*(USED_LISTS[other] for other in (rule.score.of if rule.score else ())))
    records = [record for one in LISTS if one.head.list in used for record in one.records()]
    streams = {name: STREAMS[name] for name in stream_names(rule.on)}
    results = run_tests(rule, streams, partial(run_in_process, lists=records), RULES)
    return [(result.test, *result.diff) for result in results if not result.passed]


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
@pytest.mark.slow
def test_a_rule_fires_on_its_events_and_is_silent_on_near_misses(rule: Rule) -> None:
    assert sum(bool(test.expect) for test in rule.tests) >= 1
    assert sum(not test.expect for test in rule.tests) >= 2
    assert run(rule) == []


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("rule", "name"), NULLABLE, ids=[f"{rule.id}-{name}" for rule, name in NULLABLE])
def test_events_without_a_key_are_no_group(rule: Rule, name: str) -> None:
    test = next(test for test in rule.tests if test.expect)
    events = tuple({**event, name: None} for event in test.events)
    assert run(rule.model_copy(update={"tests": (test.model_copy(update={"events": events, "expect": ()}),)})) == []
