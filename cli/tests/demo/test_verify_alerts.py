"""The comparison of alerts finds lost, repeated and unexpected ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.demo.shop.expected_alerts import AlertId, ExpectedAlerts
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.verify.alerts import AlertOutput, comparable, compare, expectations
from headgate.demo.workspace import AppNames, Workspace
from headgate.rules.bundle import read_bundle, shipped_rules
from rulecore.documents.rule import RuleMode

EVENTS = 5_000
SHOP = Workspace(Path("/unused"), AppNames("shop"), ShopSettings(seed=3, start_ms=1_700_000_000_000), "none")
SHIPPED = [rule.rule for rule in read_bundle([shipped_rules("shop")]).rules]
RULES, OTHERS = comparable(SHIPPED, {rule.id: rule for rule in SHIPPED})
NOTHING = AlertOutput(0, (), 0, 0)


@pytest.fixture(scope="module")
def expected() -> ExpectedAlerts:
    (output,) = expectations(SHOP, [EVENTS])
    return output


@pytest.fixture
def output(expected: ExpectedAlerts) -> AlertOutput:
    """Return the output of an app without faults."""
    alerts = tuple((str(number), alert) for number, alert in enumerate(expected.alerts))
    return AlertOutput(EVENTS, alerts, expected.dead_letters, expected.late)


def test_a_run_without_faults_passes(output: AlertOutput) -> None:
    verdict = compare(NOTHING, output, SHOP, RULES, OTHERS)
    assert verdict.passed
    assert verdict.not_compared == ()
    assert verdict.run == verdict.run_expected == verdict.total
    assert verdict.run.alerts > 20


def test_a_missing_alert_is_lost(output: AlertOutput) -> None:
    verdict = compare(NOTHING, replace(output, alerts=output.alerts[1:]), SHOP, RULES, OTHERS)
    assert (verdict.missing, verdict.duplicated, verdict.unexpected, verdict.passed) == (1, 0, 0, False)


def test_an_alert_that_comes_twice_is_duplicated(output: AlertOutput) -> None:
    verdict = compare(NOTHING, replace(output, alerts=(*output.alerts, output.alerts[0])), SHOP, RULES, OTHERS)
    assert (verdict.missing, verdict.duplicated, verdict.unexpected, verdict.passed) == (0, 1, 0, False)


def test_an_alert_outside_of_the_expectation_is_unexpected(output: AlertOutput) -> None:
    wrong = ("new", AlertId("large-payment", source=(0, 10**9)))
    verdict = compare(NOTHING, replace(output, alerts=(*output.alerts, wrong)), SHOP, RULES, OTHERS)
    assert (verdict.missing, verdict.duplicated, verdict.unexpected, verdict.passed) == (0, 0, 1, False)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["dead_letters", "late"])
def test_an_event_that_is_not_accounted_for_fails_the_verification(output: AlertOutput, lane: str) -> None:
    less = replace(output, **{lane: getattr(output, lane) - 1})
    assert not compare(NOTHING, less, SHOP, RULES, OTHERS).passed


@pytest.mark.slow
def test_the_figures_of_a_run_exclude_earlier_runs(output: AlertOutput) -> None:
    (early,) = expectations(SHOP, [2_000])
    before = AlertOutput(2_000, tuple(("", a) for a in early.alerts), early.dead_letters, early.late)
    verdict = compare(before, output, SHOP, RULES, OTHERS)
    assert verdict.run.events == verdict.run_expected.events == 3_000
    assert verdict.run == verdict.run_expected
    assert verdict.total.events == EVENTS


def test_edited_rules_are_named_and_not_compared(output: AlertOutput) -> None:
    published = {rule.id: rule for rule in SHIPPED}
    published["large-payment"] = published["large-payment"].model_copy(update={"version": 3})
    published["card-testing"] = published["card-testing"].model_copy(update={"mode": RuleMode.SHADOW})
    published["mine"] = published["large-refund"].model_copy(update={"id": "mine"})
    del published["view-flood"]
    rules, others = comparable(SHIPPED, published)
    assert others == ("card-testing", "large-payment", "mine", "view-flood")
    left = tuple((i, a) for i, a in output.alerts if a is not None and a.rule in rules)
    assert compare(NOTHING, replace(output, alerts=left), SHOP, rules, others).passed
