"""Correlations become windows and sequences that fire as Sigma describes."""

from __future__ import annotations

import pytest

from rulecore.documents.rule import Emit, Rule, RuleKind, Severity
from rulecore.documents.rule_kinds import SequenceStep
from rulecore.documents.scalars import FieldValue
from rulecore.sigma import ImportedRule
from rulecore.sigma.correlation import CorrelationMember, correlate
from rulecore.sigma.detection import TranslatedDetection, translate
from rulecore.sigma.document import SigmaCorrelation, SigmaDetection, read_header, read_rule
from tests.harness.apps.sigma_import import documents, field_map, importing, run

PARTS = """\
title: Failed login
name: failed
id: 0e95725d-7320-415d-80f7-004da920fc11
logsource: {product: windows, service: security}
detection: {s: {EventID: [529, 4625]}, condition: s}
---
title: Good login
name: good
logsource: {product: windows, service: security}
detection: {s: {EventID: 4624}, condition: s}
---
title: Shell
name: shell
logsource: {product: windows, category: process_creation}
detection: {s: {Image|endswith: cmd.exe}, condition: s}
---
"""
HEAD = "title: The correlation\nlevel: high\ncorrelation:\n  timespan: 10m\n  "


def correlation(text: str, *group_by: str) -> ImportedRule:
    report = importing(PARTS + HEAD + text.strip().replace("\n", "\n  "), *group_by)
    assert not report.rejected, [one.problem.render() for one in report.rejected]
    return next(one for one in report.imported if one.title == "The correlation")


def failed_login(at: int, account: str | None = "bob", **more: FieldValue) -> dict[str, FieldValue]:
    return {"ts": f"+{at}s", "type": "login", "event_id": 4625, "account": account, **more}


def successful_login(at: int, account: str = "bob") -> dict[str, FieldValue]:
    return {"ts": f"+{at}s", "type": "login", "event_id": 4624, "account": account}


def start_of_shell(at: int, account: str = "bob") -> dict[str, FieldValue]:
    return {"ts": f"+{at}s", "type": "process", "image": "C:\\CMD.exe", "account": account}


EVENT_COUNT = "type: event_count\nrules: [failed]\ngroup-by: [User]\ncondition: {gte: 3}"


def test_an_event_count_fires_at_the_event_that_reaches_it() -> None:
    rule = correlation(EVENT_COUNT).rule
    assert (rule.kind, rule.group_by, rule.then.severity) == (RuleKind.WINDOW, ("account",), Severity.HIGH)
    (alert,) = run(
        rule, failed_login(1), failed_login(2, "ann"), failed_login(60), successful_login(61), failed_login(400)
    )
    assert alert["event_time_ms"] == 1_767_571_200_000 + 400_000
    assert alert["message"] == "The correlation, account bob"


def test_events_further_apart_than_the_timespan_do_not_count_together() -> None:
    rule = correlation(EVENT_COUNT).rule
    assert run(rule, failed_login(1), failed_login(2), failed_login(602)) == []


@pytest.mark.slow
def test_events_closer_than_the_timespan_less_a_pane_always_count_together() -> None:
    imported = correlation(EVENT_COUNT)
    assert "windows of 10m begin every 10s: events within 590s count together, beyond 10m never" in imported.notes
    for start in range(1, 12):
        assert run(imported.rule, failed_login(start), failed_login(start + 1), failed_login(start + 589))


def test_events_without_the_grouping_field_are_not_counted() -> None:
    assert run(correlation(EVENT_COUNT).rule, failed_login(1, None), failed_login(2, None), failed_login(3, None)) == []


def test_gt_is_one_more_than_gte() -> None:
    rule = correlation(EVENT_COUNT.replace("gte: 3", "gt: 3")).rule
    assert run(rule, failed_login(1), failed_login(2), failed_login(3)) == []
    assert len(run(rule, failed_login(1), failed_login(2), failed_login(3), failed_login(4))) == 1


def test_an_upper_bound_is_evaluated_at_the_end_of_the_window() -> None:
    imported = correlation(EVENT_COUNT.replace("{gte: 3}", "{gte: 2, lte: 3}"))
    assert imported.rule.emit is Emit.FINAL
    assert any("evaluated at the end" in note for note in imported.notes)
    assert len(run(imported.rule, failed_login(1), failed_login(2), failed_login(3))) == 1
    assert run(imported.rule, failed_login(1), failed_login(2), failed_login(3), failed_login(4)) == []


def test_a_correlation_can_name_a_rule_by_its_id() -> None:
    by_id = EVENT_COUNT.replace("[failed]", "[0e95725d-7320-415d-80f7-004da920fc11]")
    assert correlation(by_id).rule.where == correlation(EVENT_COUNT).rule.where


def test_events_of_all_rules_count_together() -> None:
    rule = correlation(EVENT_COUNT.replace("[failed]", "[failed, shell]")).rule
    assert len(run(rule, failed_login(1), start_of_shell(2), failed_login(3))) == 1


def test_a_value_count_counts_different_values() -> None:
    rule = correlation(
        "type: value_count\nrules: [failed]\ngroup-by: [SourceIp]\ncondition: {field: TargetUserName, gte: 3}"
    ).rule
    rows = [failed_login(n, None, ip="1.1.1.1", target=name) for n, name in enumerate(["a", "b", "a", None, "b"], 1)]
    assert run(rule, *rows) == []
    assert len(run(rule, *rows, failed_login(9, None, ip="1.1.1.1", target="c"))) == 1


TEMPORAL = "type: temporal\nrules: [failed, good, shell]\ngroup-by: [User]"


def test_temporal_needs_each_of_its_rules_in_any_order() -> None:
    rule = correlation(TEMPORAL).rule
    assert len(run(rule, start_of_shell(1), failed_login(2), successful_login(3))) == 1
    assert run(rule, start_of_shell(1), failed_login(2), failed_login(3)) == []
    assert run(rule, start_of_shell(1), failed_login(2), successful_login(3, "ann")) == []
    assert run(rule, start_of_shell(1), failed_login(2), successful_login(700)) == []


def test_temporal_with_a_condition_needs_that_number_of_rules() -> None:
    rule = correlation(TEMPORAL + "\ncondition: {gte: 2}").rule
    assert run(rule, failed_login(1), failed_login(2)) == []
    assert len(run(rule, failed_login(1), start_of_shell(2))) == 1


def test_rules_of_a_correlation_alert_by_themselves_only_with_generate() -> None:
    text = PARTS + HEAD + EVENT_COUNT.replace("\n", "\n  ")
    report = importing(text)
    parts = [(part.title, part.correlations) for part in report.correlation_parts]
    assert parts == [("Failed login", ("The correlation",))]
    assert [one.title for one in report.imported] == ["Good login", "Shell", "The correlation"]
    report = importing(text + "\n  generate: true")
    assert report.correlation_parts == ()
    assert [one.title for one in report.imported] == ["Failed login", "Good login", "Shell", "The correlation"]


def test_aliases_may_name_one_column_by_different_fields() -> None:
    text = "type: temporal\nrules: [failed, shell]\ngroup-by: [who]\naliases: {who: {failed: User, shell: account}}"
    assert correlation(text).rule.group_by == ("account",)


def test_a_correlation_without_a_group_by_uses_that_of_the_import() -> None:
    imported = correlation("type: event_count\nrules: [failed]\ncondition: {gte: 2}", "account")
    assert imported.rule.group_by == ("account",)
    assert any("no group-by of its own" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type: event_count\nrules: [failed]\ncondition: {gte: 2}", "no group-by: Headgate counts per key"),
        (EVENT_COUNT.replace("[failed]", "[nobody]"), "'nobody' is no rule among the files"),
        (EVENT_COUNT.replace("condition: {gte: 3}", ""), "event_count needs a condition"),
        (EVENT_COUNT.replace("gte: 3", "gte: many"), "gte: there are gt, gte, lt"),
        (EVENT_COUNT.replace("{gte: 3}", "failed or good"), "conditions as text are not supported"),
        (EVENT_COUNT.replace("User", "Nothing"), "write `Nothing: COLUMN` under fields"),
        (EVENT_COUNT.replace("User", "FullPath"), "is an expression; only a column can be grouped by"),
        (EVENT_COUNT.replace("event_count", "value_percentile"), "'value_percentile' is no type"),
        (EVENT_COUNT.replace("event_count", "value_count"), "needs the `field` whose values are counted"),
        (EVENT_COUNT + "\nwindow: tumbling", "'window' is not known in a correlation"),
        (TEMPORAL + "\naliases: {User: {failed: User}}", "the alias 'User' names no field of good"),
        (
            "type: temporal\nrules: [failed, shell]\ngroup-by: [who]\naliases: {who: {failed: User, shell: SourceIp}}",
            "'who' is account and ip, depending on the rule",
        ),
    ],
)
def test_a_correlation_that_cannot_be_expressed_is_rejected_with_a_reason(text: str, message: str) -> None:
    report = importing(PARTS + HEAD + text.replace("\n", "\n  "))
    (rejected,) = report.rejected
    assert rejected.title == "The correlation"
    assert message in rejected.problem.message


def test_the_error_of_a_correlation_explains_why_its_rule_cannot_be_imported() -> None:
    broken = PARTS.replace("Image|endswith", "Picture|endswith")
    text = TEMPORAL.replace("\n", "\n  ")
    (rejected,) = importing(broken + HEAD + text).rejected
    assert "its rule 'shell' (sigma.yml:15): 'Picture' is no column" in rejected.problem.message


def test_correlations_that_name_each_other_are_rejected() -> None:
    one = "title: {0}\nname: {0}\ncorrelation: {{type: event_count, rules: [{1}], group-by: [User], timespan: 1m, "
    text = (one.format("a", "b") + "condition: {gte: 1}}\n---\n") + (one.format("b", "a") + "condition: {gte: 1}}")
    report = importing(text)
    assert (report.imported, report.correlation_parts) == ((), ())
    assert [one.title for one in report.rejected] == ["a", "b"]


# --- sequences --------------------------------------------------------------------------------------------------------

ORDERED = "type: temporal_ordered\nrules: [failed, good, shell]\ngroup-by: [User]"
CHAIN = """\
title: Many failed
name: many_failed
correlation: {type: event_count, rules: [failed], group-by: [User], timespan: 5m, condition: {gte: 3}}
---
"""


def import_sequence(text: str) -> tuple[Rule, list[SequenceStep]]:
    report = importing(text)
    assert not report.rejected
    rule = next(one.rule for one in report.imported if one.title == "The correlation")
    assert rule.sequence is not None
    return rule, [item for item in rule.sequence if isinstance(item, SequenceStep)]


def test_temporal_ordered_becomes_a_sequence_of_its_rules() -> None:
    rule, steps = import_sequence(PARTS + HEAD + ORDERED.replace("\n", "\n  "))
    assert [step.step for step in steps] == ["failed", "good", "shell"]
    assert len(run(rule, failed_login(1), successful_login(2), start_of_shell(3))) == 1
    assert run(rule, start_of_shell(1), successful_login(2), failed_login(3)) == []
    assert run(rule, failed_login(1), successful_login(2), start_of_shell(700)) == []


def test_an_event_count_before_another_rule_becomes_a_step_with_times() -> None:
    text = ORDERED.replace("failed, good, shell", "many_failed, good").replace("\n", "\n  ")
    rule, steps = import_sequence(PARTS + CHAIN + HEAD + text)
    assert [(step.step, step.times, step.within) for step in steps] == [
        ("many_failed", 3, 300_000),
        ("good", 1, 600_000),
    ]
    assert len(run(rule, failed_login(1), failed_login(2), failed_login(3), successful_login(500))) == 1
    assert run(rule, failed_login(1), failed_login(2), successful_login(3)) == []


def test_the_entries_of_a_sequence_make_a_rule() -> None:
    report = importing(PARTS)
    member = [CorrelationMember(n, (n,), _translated(n)) for n in ("failed", "good")]
    found = correlate(_correlation(ORDERED), member, field_map(), ())
    assert len(report.imported) == 3
    entries = {"id": "x", "version": 1, "owner": "me", "on": "hosts", "then": {"severity": "low", "message": "m"}}
    rule = Rule.model_validate({**entries, **found.entries})
    assert rule.kind is RuleKind.SEQUENCE
    assert rule.sequence is not None
    assert [item.step for item in rule.sequence if isinstance(item, SequenceStep)] == ["failed", "good"]


def _translated(name: str) -> TranslatedDetection:
    rules = [read_rule(read_header(one)) for one in documents(PARTS.removesuffix("---\n"))]
    return next(translate(r, field_map()) for r in rules if isinstance(r, SigmaDetection) and r.header.name == name)


def _correlation(text: str) -> SigmaCorrelation:
    rule = read_rule(read_header(documents(HEAD + text.replace("\n", "\n  "))[0]))
    assert isinstance(rule, SigmaCorrelation)
    return rule
