"""Each page as a pure function of its values to HTML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from urllib.parse import urlencode

from pydantic import JsonValue

from headgate.rules.yaml_text import yaml_text
from headgate.web.changes.check import CheckValue
from headgate.web.changes.release import ReleaseReview
from headgate.web.changes.review import Review
from headgate.web.pages import marks, plots
from headgate.web.pages.frame import Frame
from headgate.web.problems import ProblemDocument
from headgate.web.rendering import render
from headgate.web.state.decision_values import DecisionValue
from headgate.web.state.feature_values import RuleFeatureValue
from headgate.web.state.values import (
    AlertPage,
    AlertValue,
    AppValue,
    BacktestValue,
    ChangeValue,
    ComparedAlert,
    ComparisonValue,
    DeadLetterPage,
    DeadLetterValue,
    EntityValue,
    FieldValue,
    HealthValue,
    ListEntry,
    ListValue,
    ReleaseValue,
    RulePage,
    RuleValue,
    SampleRecordValue,
    StreamValue,
    TestValue,
    UpgradesValue,
    VersionValue,
)

TABS = ("now", "yaml", "tests", "history", "trial", "backtest", "why")
MODES = ("live", "shadow", "canary=10%", "paused", "draft", "retired")


@dataclass(frozen=True, slots=True)
class RuleContent:
    """The content of a tab of a rule's page; parts of other tabs are empty. ``shown``: the version in the history tab;
    ``diff``: from the version before. ``tried``: the version on trial. ``fields``: by stream, for who writes.
    ``asked``: the question of the tab why; ``columns``: those of its key; ``fault``: why there is no answer;
    ``known``: ids of its signals' alerts that are there."""

    alerts: tuple[AlertValue, ...] = ()
    tests: tuple[TestValue, ...] = ()
    changes: tuple[ChangeValue, ...] = ()
    shown: int | None = None
    before: int | None = None
    diff: Sequence[marks.DiffLine] = ()
    tried: VersionValue | None = None
    compared: ComparisonValue | None = None
    backtests: Sequence[BacktestValue] = ()
    fields: Mapping[str, Sequence[FieldValue]] = field(default_factory=dict)
    columns: Sequence[str] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    why: JsonValue = None
    fault: str = ""
    known: Collection[str] = ()
    features: Sequence[RuleFeatureValue] = ()


@dataclass(frozen=True, slots=True)
class ShownReview:
    """A review with the addresses of its page: of the publication, of the editor, and of where it came from."""

    found: Review
    publish: str
    edit: str
    back: str


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
    return render("rules.html", frame=frame, page=page, words=words, more=next_query(words, page.next))


def rule_page(frame: Frame, rule: RuleValue, tab: str, content: RuleContent, draft: Draft) -> str:
    """Render a tab of a rule."""
    live = next((one for one in rule.slots if one.slot == "live"), rule.slots[0] if rule.slots else None)
    counts = [] if rule.trial is None else marks.shares([*rule.trial.counts.items()])
    values: dict[str, object] = {
        "live": live,
        "counts": counts,
        "lines": marks.yaml_lines(rule.yaml),
        "tabs": TABS,
        "modes": MODES,
    }
    drawn = None if content.compared is None else plots.comparison_plot(content.compared)
    values |= {"fields": content.fields, "drawn": drawn, "explained": plots.explanation_plots(content.why)}
    values["known"] = content.known
    return render("rule.html", frame=frame, rule=rule, tab=tab, content=content, draft=draft, **values)


def new_rule_page(frame: Frame, draft: Draft, fields: Mapping[str, Sequence[FieldValue]]) -> str:
    """Render the page on which a new rule is written. ``fields``: by stream."""
    return render("new_rule.html", frame=frame, draft=draft, fields=fields)


def review_page(frame: Frame, shown: ShownReview, draft: Draft) -> str:
    """Render the effects of a publication."""
    found = shown.found
    diff = marks.diff_lines(found.old_text, draft.text) if found.old_text else []
    review = {
        **{name: getattr(found, name) for name in ("rule", "old_version", "new_version", "mode", "fields", "state")},
        **{name: getattr(shown, name) for name in ("publish", "edit", "back")},
        "diff": diff,
    }
    return render("review.html", frame=frame, review=review, draft=draft, modes=MODES)


def alerts_page(frame: Frame, page: AlertPage, words: Mapping[str, str]) -> str:
    """Render alerts, the newest first."""
    return _listing("alerts.html", frame, page, words, first=not words.get("cursor"))


def alert_page(
    frame: Frame,
    alert: AlertValue,
    why: tuple[JsonValue, str],
    decision: DecisionValue | None,
    tones: Mapping[str, str],
    known: Collection[str],
) -> str:
    """Render an alert and why it was raised, or why that is not known. ``decision``: about its event, if it is known;
    ``tones``: the colours of outcomes. ``known``: ids of its signals' alerts that are there."""
    values = {"drawn": plots.explanation_plots(why[0]), "decision": decision, "tones": tones, "known": known}
    return render("alert.html", frame=frame, alert=alert, why=why[0], fault=why[1], **values)


def dead_letters_page(frame: Frame, page: DeadLetterPage, words: Mapping[str, str]) -> str:
    """Render dead letters, the newest first."""
    share = {one.name: one for one in marks.shares([(code.code, code.count) for code in page.codes])}
    return _listing("dead_letters.html", frame, page, words, share=share)


def dead_letter_page(
    frame: Frame, letter: DeadLetterValue, value: str | None = None, problem: ProblemDocument | None = None
) -> str:
    """Render one dead letter. ``value``: a repair that was refused, ``problem``: why."""
    return render("dead_letter.html", frame=frame, letter=letter, value=value, problem=problem)


def releases_page(frame: Frame, releases: Sequence[ReleaseValue]) -> str:
    """Render the releases."""
    return render("releases.html", frame=frame, releases=releases)


def release_page(frame: Frame, release: ReleaseValue, diffs: Mapping[str, Sequence[marks.DiffLine]], key: str) -> str:
    """Render a release. ``diffs``: of some of its rules; ``key``: names its roll-back."""
    deleted = sum(one.before is None for one in release.rules)
    counts = {"deleted": deleted, "restored": len(release.rules) - deleted}
    return render("release.html", frame=frame, release=release, diffs=diffs, key=key, counts=counts)


def new_release_page(
    frame: Frame,
    waiting: Sequence[VersionValue],
    draft: ReleaseReview | None,
    checks: Sequence[CheckValue | None],
    words: Mapping[str, str],
    problem: ProblemDocument | None = None,
) -> str:
    """Render the choice of the rules of a release; with a draft what it would change. ``waiting``: what can be chosen;
    ``checks``: of each rule of the draft, None if its tests did not run; ``words``: name, reason and key of the
    form."""
    shown = [] if draft is None else [*zip_longest(draft.rules, draft.reviews, checks)]
    changed = [one for _, one, _ in shown if one is not None and one.old_text]
    diffs = {one.rule: marks.diff_lines(one.old_text, _as_yaml(draft, one)) for one in changed}
    values = {"waiting": waiting, "draft": draft, "shown": shown, "diffs": diffs, "words": words, "problem": problem}
    return render("new_release.html", frame=frame, **values)


def _as_yaml(draft: ReleaseReview | None, one: Review) -> str:
    rules = () if draft is None else draft.rules
    return next((yaml_text(rule) for rule in rules if rule.id == one.rule), "")


def backtest_page(frame: Frame, job: BacktestValue) -> str:
    """Render a back-test."""
    drawn = None if job.result is None else plots.comparison_plot(job.result)
    return render("backtest_run.html", frame=frame, job=job, drawn=drawn)


def explained_page(
    frame: Frame, alert: ComparedAlert, sides: Sequence[tuple[str, JsonValue, str]], back: str, words: str
) -> str:
    """Render why versions raise an alert or not. ``sides``: title, explanation and fault of each."""
    drawn = [plots.explanation_plots(why) for _, why, _ in sides]
    return render("explained.html", frame=frame, alert=alert, sides=sides, back=back, words=words, drawn=drawn)


def keys_page(frame: Frame, columns: Sequence[str], entity: EntityValue | None, words: Mapping[str, str]) -> str:
    """Render a key, or the question for one."""
    drawn = None if entity is None else plots.timeline_plot(entity.entries)
    return render("keys.html", frame=frame, columns=columns, entity=entity, words=words, drawn=drawn)


def lists_page(frame: Frame, lists: Sequence[ListValue]) -> str:
    """Render the lists."""
    return render("lists.html", frame=frame, lists=lists)


def list_page(frame: Frame, found: ListValue, entries: Sequence[ListEntry], changes: Sequence[ChangeValue]) -> str:
    """Render a list."""
    return render("list.html", frame=frame, list=found, entries=entries, changes=changes)


def streams_page(frame: Frame, streams: Sequence[StreamValue]) -> str:
    """Render the streams."""
    return render("streams.html", frame=frame, streams=streams)


def stream_page(
    frame: Frame,
    stream: StreamValue,
    topic: str,
    sample: Sequence[SampleRecordValue],
    seen: Mapping[str, Sequence[str]],
    fault: str,
) -> str:
    """Render a stream. ``seen``: some values of each field in the sample; ``fault``: why there is no sample."""
    return render("stream.html", frame=frame, stream=stream, topic=topic, sample=sample, seen=seen, fault=fault)


def health_page(frame: Frame, health: HealthValue) -> str:
    """Render how an app works."""
    return render("health.html", frame=frame, health=health)


def _listing(
    template: str, frame: Frame, page: AlertPage | DeadLetterPage, words: Mapping[str, str], **values: object
) -> str:
    """Render a page of a list with the filter of its words and the way to the next page."""
    shown = {name: word for name, word in words.items() if name != "cursor"}
    return render(template, frame=frame, page=page, words=shown, more=next_query(shown, page.next), **values)


def next_query(words: Mapping[str, str], cursor: str | None) -> str:
    """Return the query of the next page; empty if there is none."""
    return "" if cursor is None else "?" + urlencode({**{n: w for n, w in words.items() if w}, "cursor": cursor})


def upgrades_page(frame: Frame, found: UpgradesValue) -> str:
    """Render the page of an app's upgrades."""
    gantt = plots.upgrade_plot(found.upgrades, frame.now_ms)
    return render("upgrades.html", frame=frame, found=found, gantt=gantt)
