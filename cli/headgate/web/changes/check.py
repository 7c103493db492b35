"""Checks the text of one rule against an app: its mistakes with their places, its cost, its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import orjson
from pydantic import Field

from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.values import ClauseValue, ConditionValue, TestValue, Value
from rulecore.check import CheckReport, check_rules
from rulecore.compile.feature import with_definitions
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.loading import LoadedRule, load_text
from rulecore.documents.rule import Rule, RuleTest
from rulecore.documents.yaml_reader import Problem
from rulecore.errors import RuleError, RuleSetError
from rulecore.lists.snapshots import control_records
from rulecore.lists.store import ListStore
from rulecore.ruleset.history import RuleHistory
from rulecore.ruleset.ruleset import RuleSet
from streamcore.schema import Kind

FILE = "rule"
_SEEN = ("key", "message", "values", "window")
#: A value of each kind of field, for a test that only warms.
_WARM: Mapping[Kind, object] = {Kind.STRING: "1", Kind.LONG: 1, Kind.DOUBLE: 1.0, Kind.DECIMAL: 1, Kind.BOOLEAN: True}
_MOST_SEEN = 5  # alerts of a test that are shown


class CheckValue(Value):
    """The result of a check."""

    rule: Annotated[str | None, Field(description="Id of the rule; null if it cannot be read.")]
    version: Annotated[int | None, Field(description="Its version.")]
    problems: Annotated[tuple[ProblemPlace, ...], Field(description="Mistakes; with one, the rule is not published.")]
    warnings: Annotated[tuple[ProblemPlace, ...], Field(description="What its author should read.")]
    cost: Annotated[str | None, Field(description="What the rule is expected to cost.")]
    cheap: Annotated[bool | None, Field(description="Whether that is little.")]
    tests: Annotated[tuple[TestValue, ...], Field(description="The results of its tests, with the code of production.")]


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule text with the report of its check. ``problems``: those of the text too. ``places``: lines of the tests."""

    loaded: LoadedRule | None
    report: CheckReport
    problems: tuple[Problem, ...]

    @property
    def rule(self) -> Rule | None:
        """The rule; None if it cannot be read."""
        return None if self.loaded is None else self.loaded.rule

    @property
    def compiled(self) -> CompiledRule | None:
        """The compiled rule; None if it has problems."""
        return next(iter(self.report.rules), None)

    def require(self) -> Rule:
        """Return the rule. ``ProblemError`` with the places of its mistakes if it has any."""
        if self.problems or self.rule is None:
            places = [ProblemPlace.of(problem) for problem in self.problems]
            count = "a mistake" if len(places) == 1 else f"{len(places)} mistakes"
            raise ProblemError(422, ProblemCode.INVALID_RULE, f"the rule has {count}; nothing was published", places)
        return self.rule


def check_text(snapshot: Snapshot, text: str) -> CheckedRule:
    """Check the text of one rule against the streams, lists and other rules of an app."""
    documents, problems = load_text(text, FILE)
    faults = [*problems]
    if len(documents) != 1 and not problems:
        place = documents[1].document.place(()) if documents else None
        faults.append(_problem(f"one rule is needed; there are {len(documents)}", place))
    rules = snapshot.history.rules
    published = rules.features.documents
    report = check_rules(documents[:1], rules.streams, rules.limits, rules.lists, published=published)
    found = tuple(sorted([*faults, *report.problems]))
    return CheckedRule(documents[0] if documents else None, report, found)


def _problem(message: str, place: object) -> Problem:
    from rulecore.documents.yaml_reader import SourceLocation

    return Problem(FILE, place if isinstance(place, SourceLocation) else SourceLocation(1, 1), "", message)


def check_with_tests(
    snapshot: Snapshot, text: str, working: Callable[[], AbstractContextManager[None]], *, tests: bool = True
) -> CheckValue:
    """Check the text of one rule, and run its tests if it has no mistakes and ``tests`` is true. ``working``: holds a
    place for the tests."""
    checked = check_text(snapshot, text)
    if checked.problems or checked.rule is None or not tests:
        return _as_value(checked, ())
    with working():
        return _as_value(checked, run_tests(snapshot, checked.rule, checked.loaded))


def _as_value(checked: CheckedRule, tests: tuple[TestValue, ...]) -> CheckValue:
    rule, cost = checked.rule, next(iter(checked.report.costs), None)
    return CheckValue(
        rule=None if rule is None else rule.id,
        version=None if rule is None else rule.version,
        problems=tuple(ProblemPlace.of(problem) for problem in checked.problems),
        warnings=tuple(ProblemPlace.of(problem) for problem in checked.report.warnings),
        cost=None if cost is None else cost.note,
        cheap=None if cost is None else cost.cheap,
        tests=tests,
    )


def run_tests(snapshot: Snapshot, rule: Rule, loaded: LoadedRule | None = None) -> tuple[TestValue, ...]:
    """Run the tests of a rule with the kernel, in this process. ``loaded``: its text, for the lines of the tests."""
    from rulecore.testing.in_process import run_in_process
    from rulecore.testing.rule_tests import run_tests as run

    rules = snapshot.history.rules
    results = run(
        with_definitions(rule, rules.features.documents),
        rules.streams,
        partial(run_in_process, lists=_list_records(snapshot, rules)),
        _others(rules, rule),
    )
    return tuple(
        TestValue(
            name=result.test,
            passed=result.passed,
            diff=result.diff,
            seen=tuple({name: alert[name] for name in _SEEN if name in alert} for alert in result.alerts[:_MOST_SEEN]),
            line=None if loaded is None else loaded.document.place(("tests", number)).line,
            why=() if result.passed else _trace(snapshot, rule, rule.tests[number]),
        )
        for number, result in enumerate(results)
    )


def _trace(snapshot: Snapshot, rule: Rule, test: RuleTest) -> tuple[ConditionValue, ...]:
    """Return the rule's conditions on the events of a test; none if one is no event, which the result says."""
    from rulecore.explain.rule_tests import trace_test

    rules, lists = snapshot.history.rules, snapshot.history.lists
    with suppress(RuleError, RuleSetError):
        compiled = compile_rule(rule, rules.streams, RuleLimits(), lists.types(), rules.features.documents)
        traces = trace_test(compiled, test, rules.streams, lists)
        return tuple(
            ConditionValue(
                event=one.event,
                condition=one.condition,
                truth=one.clause.truth.value,
                clauses=tuple(ClauseValue.of(leaf) for leaf in one.clause.leaves()),
            )
            for one in traces
        )
    return ()


def warm_tests() -> None:
    """Run a test of a made-up rule: the first one imports the kernel, for which nobody should wait while typing."""
    from headgate.rules.bundle import load_streams

    snapshot = Snapshot("", RuleHistory(RuleSet.empty(load_streams())))
    name, schema = min(snapshot.history.rules.streams.items())
    event = {one.name: _WARM[one.type.kind] for one in schema.fields if one.type.kind in _WARM}
    rule = {
        "id": "warm",
        "version": 1,
        "owner": "console",
        "on": name,
        "where": f"{min(event)} is not null",
        "then": {"severity": "low", "message": f"{{{min(event)}}}"},
        "tests": [{"name": "warm", "events": [event], "expect": []}],
    }
    checked = check_text(snapshot, orjson.dumps(rule).decode())
    if checked.rule is not None:
        run_tests(snapshot, checked.rule, checked.loaded)


def _others(rules: RuleSet, rule: Rule) -> list[Rule]:
    wanted: Mapping[str, object] = rule.score.of if rule.score is not None else {}
    return [found.whole for name in wanted if (found := rules.live(name)) is not None]


def _list_records(snapshot: Snapshot, rules: RuleSet) -> list[tuple[str, bytes]]:
    lists: ListStore = snapshot.history.lists
    return [*control_records(lists, ())] if rules.lists else []
