"""A rule as YAML reads back as the same rule; marks are what they say."""

from __future__ import annotations

import pytest

from headgate.rules.bundle import read_rules, shipped_rules
from headgate.rules.yaml_text import yaml_text
from headgate.web.pages import marks
from headgate.web.problems import ProblemPlace
from rulecore.documents.loading import load_text
from rulecore.documents.rule import Rule

SHIPPED = read_rules([shipped_rules("shop")])


@pytest.mark.parametrize("rule", SHIPPED, ids=[rule.id for rule in SHIPPED])
def test_a_shipped_rule_reads_back(rule: Rule) -> None:
    (loaded,), problems = load_text(yaml_text(rule))
    assert (problems, loaded.problems) == ([], ())
    assert loaded.rule == rule


@pytest.mark.parametrize(
    "text", ["no", "on", "12", "1e3", "~", "", " a ", "a: b", "# a", "x" * 200, "a\nb", "'", "2026-01-01"]
)
def test_a_text_stays_a_text(text: str) -> None:
    rule = SHIPPED[0].model_copy(update={"description": text, "owner": text or "x", "tags": (text[:100] or "x",)})
    (loaded,), _ = load_text(yaml_text(rule))
    assert loaded.rule == rule


def test_the_next_version_is_written_into_the_text() -> None:
    text = yaml_text(SHIPPED[0])
    (loaded,), _ = load_text(marks.next_version(text, 41))
    assert loaded.rule == SHIPPED[0].model_copy(update={"version": 41})


def test_lines_carry_their_mistakes_and_give_the_text_again() -> None:
    text = "id: a\nthen:\n  - severity: high\nplain text\n"
    lines = marks.yaml_lines(text, [ProblemPlace(line=3, column=5, message="wrong")])
    assert "".join(f"{one.lead}{one.name}{one.rest}\n" for one in lines) == text
    assert [bool(one.problems) for one in lines] == [False, False, True, False]


def test_bars_are_within_the_chart_and_a_single_alert_is_seen() -> None:
    bars = marks.minute_bars([0, 1, 1_000])
    assert [bar.height for bar in bars] == [0, 2, marks.BARS_HEIGHT]
    assert all(bar.y + bar.height == marks.BARS_HEIGHT for bar in bars)
