"""Each page as a pure function of its values to HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from pydantic import JsonValue

from headgate.web.changes.check import CheckValue
from headgate.web.pages import marks
from headgate.web.pages.frame import Frame
from headgate.web.problems import ProblemDocument
from headgate.web.rendering import render
from headgate.web.state.values import (
    AlertPage,
    AlertValue,
    AppValue,
    ChangeValue,
    DeadLetterPage,
    DeadLetterValue,
    RulePage,
    RuleValue,
    TestValue,
)

TABS = ("now", "yaml", "tests", "history")
MODES = ("live", "shadow", "canary=10%", "paused", "draft", "retired")


@dataclass(frozen=True, slots=True)
class RuleContent:
    """The content of a tab of a rule's page; parts of other tabs are empty. ``shown``: the version in the history tab;
    ``diff``: from the version before."""

    alerts: tuple[AlertValue, ...] = ()
    tests: tuple[TestValue, ...] = ()
    changes: tuple[ChangeValue, ...] = ()
    shown: int | None = None
    before: int | None = None
    diff: Sequence[marks.DiffLine] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """The text of a rule in a form, with the result of its check. ``etag``: of the rule as it was read; ``key``:
    names the publication, so that sending the form twice publishes once."""

    text: str
    etag: str
    key: str
    mode: str = ""
    why: str = ""
    check: CheckValue | None = None
    problem: ProblemDocument | None = None


def overview_page(frame: Frame, apps: Sequence[AppValue], faults: Mapping[str, str]) -> str:
    """Render all apps. ``faults``: the apps that cannot be read, with the reason."""
    bars = {app.app: marks.minute_bars(app.alerts_per_minute) for app in apps}
    return render("overview.html", frame=frame, apps=apps, faults=faults, bars=bars, chart=marks)


def app_page(frame: Frame, app: AppValue, changes: Sequence[ChangeValue]) -> str:
    """Render one app with its newest changes."""
    bars = {app.app: marks.minute_bars(app.alerts_per_minute)}
    return render("app.html", frame=frame, app=app, changes=changes, bars=bars, chart=marks)


def rules_page(frame: Frame, page: RulePage, words: Mapping[str, str]) -> str:
    """Render the rules that have all the words."""
    return render("rules.html", frame=frame, page=page, words=words, more=_query(words, page.next))


def rule_page(frame: Frame, rule: RuleValue, tab: str, content: RuleContent, draft: Draft) -> str:
    """Render a tab of a rule."""
    live = next((one for one in rule.slots if one.slot == "live"), rule.slots[0] if rule.slots else None)
    counts = [] if rule.trial is None else marks.shares([*rule.trial.counts.items()])
    values = {"live": live, "counts": counts, "lines": marks.yaml_lines(rule.yaml), "tabs": TABS, "modes": MODES}
    return render("rule.html", frame=frame, rule=rule, tab=tab, content=content, draft=draft, **values)


def new_rule_page(frame: Frame, draft: Draft) -> str:
    """Render the page on which a new rule is written."""
    return render("new_rule.html", frame=frame, draft=draft, modes=MODES)


def alerts_page(frame: Frame, page: AlertPage, words: Mapping[str, str]) -> str:
    """Render alerts, the newest first."""
    first = not words.get("cursor")
    shown = {name: word for name, word in words.items() if name != "cursor"}
    return render("alerts.html", frame=frame, page=page, words=shown, more=_query(shown, page.next), first=first)


def alert_page(frame: Frame, alert: AlertValue, why: JsonValue, fault: str) -> str:
    """Render an alert and why it was raised. ``fault``: why that is not known."""
    return render("alert.html", frame=frame, alert=alert, why=why, fault=fault)


def dead_letters_page(frame: Frame, page: DeadLetterPage, words: Mapping[str, str]) -> str:
    """Render dead letters, the newest first."""
    shown = {name: word for name, word in words.items() if name != "cursor"}
    share = {one.name: one for one in marks.shares([(code.code, code.count) for code in page.codes])}
    more = _query(shown, page.next)
    return render("dead_letters.html", frame=frame, page=page, words=shown, more=more, share=share)


def dead_letter_page(frame: Frame, letter: DeadLetterValue) -> str:
    """Render one dead letter."""
    return render("dead_letter.html", frame=frame, letter=letter)


def _query(words: Mapping[str, str], cursor: str | None) -> str:
    """Return the query of the next page; empty if there is none."""
    return "" if cursor is None else "?" + urlencode({**{n: w for n, w in words.items() if w}, "cursor": cursor})
