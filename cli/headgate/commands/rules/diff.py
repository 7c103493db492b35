"""``headgate rules diff``: compares rule files with the rules of an app or of other files."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.console.problems import problem_json
from headgate.kafka_login import KafkaLogin, login_option

if TYPE_CHECKING:
    from headgate.rules.bundle import RuleBundle
    from rulecore.documents.decision_policy import DecisionPolicy
    from rulecore.documents.yaml_reader import Problem
    from rulecore.ruleset.diff import FieldChange, RuleDiff, StateChange
    from rulecore.ruleset.ruleset import RuleSet

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_WIDTH = 100
#: Exit codes, as in diff(1).
SAME, DIFFERENT, TROUBLE = 0, 1, 2


@click.command(name="diff", short_help="Compare rule files with the live rules.")
@click.argument("paths", nargs=-1, type=_PATH)
@click.option("--against", multiple=True, type=_PATH, help="Files or folders instead of the app. Repeatable.")
@click.option("--prune", is_flag=True, help="Show live rules that are in no file as deleted.")
@click.option("--streams", type=_FOLDER, default=None, help="Folder of the streams (default: streams/).")
@login_option
@click.option("--app", default="shop", show_default=True, help="The rules app.")
@output_option
def command(
    paths: Sequence[Path],
    against: Sequence[Path],
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    output: Output,
    *,
    prune: bool,
) -> int:
    """Compare rule files with the live rules of an app: entries, normalized conditions, and the effect on state.

    Decision policies and published features among the files are compared too.

    Without PATHS, the rules of the demo shop, which are shipped with Headgate, are compared.

    Exit codes are those of diff(1): 0 no difference, 1 differences, 2 the rules or the app cannot be read.

    \b
    Examples:
        headgate rules diff rules/shop --app shop
        headgate rules diff rules/shop --prune -o json
        headgate rules diff rules/shop --against ../released/rules/shop
    """
    from headgate.console.messages import to_stderr
    from rulecore.ruleset.diff import changes
    from streamcore.errors import StreamError

    try:
        diffs = _diff_rules(paths, against, streams, AppConnection(login, app), prune=prune)
    except RuleProblemsError as error:
        emit(output, {"problems": [problem_json(p) for p in error.problems]}, _render_problems(error.problems))
        return TROUBLE
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return TROUBLE
    emit(
        output, [_diff_json(rule_diff) for rule_diff in diffs], "\n".join([*_render_lines(diffs), _summary_line(diffs)])
    )
    return DIFFERENT if changes(diffs) else SAME


@dataclass(frozen=True, slots=True)
class AppConnection:
    """The name of a rules app, and the login of its Kafka."""

    login: KafkaLogin
    name: str


class RuleProblemsError(Exception):
    """The rule files have problems, so their rules cannot be compared."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} problems in the rule files")
        self.problems = problems


def _diff_rules(
    paths: Sequence[Path], against: Sequence[Path], streams: Path | None, app: AppConnection, *, prune: bool
) -> tuple[RuleDiff, ...]:
    from headgate.rules.bundle import read_bundle, shipped_rules
    from rulecore.documents.slots import Slot
    from rulecore.documents.status import Subject
    from rulecore.ruleset.diff import diff, diff_named

    live = None if against else _read_app(app, streams)
    published = {} if live is None else live.features.documents
    bundle = read_bundle(paths or [shipped_rules("shop")], streams, published=published)
    other = read_bundle(against, streams) if against else None
    if problems := [*bundle.problems, *(other.problems if other is not None else ())]:
        raise RuleProblemsError(problems)
    held = [] if live is None else [rule for key, rule in sorted(live.rules.items()) if key.slot is Slot.LIVE]
    old_rules = [one.rule for one in (held if other is None else other.rules)]
    features = {**published, **({} if other is None else other.features), **bundle.features}
    wanted = [loaded.rule for loaded in bundle.rules]
    policies = _policies(other) if live is None else live.policies.documents
    named = diff_named(Subject.DECISION_POLICY, policies, _policies(bundle), whole=prune)
    old_features = published if other is None else other.features
    named += diff_named(Subject.FEATURE, old_features, bundle.features, whole=prune)
    return (*named, *diff(old_rules, wanted, bundle.streams, whole=prune, published=features))


def _policies(bundle: RuleBundle | None) -> Mapping[str, DecisionPolicy]:
    return {} if bundle is None else {one.name: one.policy for one in bundle.policies}


def _read_app(app: AppConnection, streams: Path | None) -> RuleSet:
    """Read the rules of the app from the control topic."""
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, require_app

    kafka, topics = app.login.settings("headgate-rules"), AppTopics(app.name)
    require_app(kafka, topics)
    return read_history(kafka, topics, streams).rules


# --- the form of the results ------------------------------------------------------------------------------------------

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


def _render_lines(diffs: Sequence[RuleDiff]) -> Iterable[str]:
    for rule_diff in diffs:
        if rule_diff.change == "same":
            continue
        what = "" if rule_diff.subject == "rule" else f"{rule_diff.subject.replace('_', ' ')} "
        yield f"{_MARKS[rule_diff.change]} {what}{rule_diff.rule}  {_render_versions(rule_diff)}"
        if (reason := rule_diff.rejection_reason) is not None:
            yield f"    ! would be rejected: {reason}; set its version to {rule_diff.required_version}"
        for field_change in rule_diff.fields:
            yield from _render_field(field_change)
        for state in rule_diff.state:
            yield f"    state: {_render_state(state)}"


def _render_versions(rule_diff: RuleDiff) -> str:
    if rule_diff.old_version is None:
        return f"new, version {rule_diff.new_version}"
    if rule_diff.new_version is None:
        return f"would be removed, version {rule_diff.old_version}"
    return f"version {rule_diff.old_version} -> {rule_diff.new_version}"


def _render_field(change: FieldChange) -> Iterable[str]:
    normal_forms = change.normal_forms
    word = "" if normal_forms is None else " (equivalent)" if normal_forms.equivalent else " (different)"
    yield f"    {change.path}{word}"
    yield from _render_sides(change.path, change.old, change.new)
    if (
        normal_forms is not None
        and not normal_forms.equivalent
        and (normal_forms.old, normal_forms.new) != (change.old, change.new)
    ):
        yield "      normalized:"
        yield from _render_sides("", normal_forms.old, normal_forms.new)


def _render_sides(path: str, old: Json, new: Json) -> Iterable[str]:
    for mark, value in (("-", old), ("+", new)):
        text = _render_value(path, value)
        yield from textwrap.wrap(text, _WIDTH, initial_indent=f"      {mark} ", subsequent_indent="        ") or [
            f"      {mark}"
        ]


def _render_value(path: str, value: Json) -> str:
    if value is None:
        return "(none)"
    if path == "tests" and isinstance(value, list):
        return "1 test" if len(value) == 1 else f"{len(value)} tests"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _render_state(state: StateChange) -> str:
    from streamcore.durations import render_duration

    if state.incomplete_ms is None:
        return f"{state.state_name}: {state.outcome}" + (", begins empty" if state.outcome == "new" else "")
    incomplete = f", incomplete for {render_duration(state.incomplete_ms)}" if state.incomplete_ms else ""
    return f"{state.state_name}: {state.outcome}{incomplete}"


def _summary_line(diffs: Sequence[RuleDiff]) -> str:
    count = {change: sum(rule_diff.change == change for rule_diff in diffs) for change in (*_MARKS, "same")}
    rejected = sum(rule_diff.rejection_reason is not None for rule_diff in diffs)
    text = ", ".join(f"{number} {change}" for change, number in count.items())
    return f"{text}; {rejected} would be rejected" if rejected else text


def _render_problems(problems: Sequence[Problem]) -> str:
    return "\n".join([*(p.render() for p in problems), "nothing was compared"])


def _diff_json(rule_diff: RuleDiff) -> Json:
    return {
        "subject": rule_diff.subject.value,
        "rule": rule_diff.rule,
        "verdict": rule_diff.change.value,
        "old_version": rule_diff.old_version,
        "new_version": rule_diff.new_version,
        "rejected": rule_diff.rejection_reason,
        "required_version": rule_diff.required_version,
        "fields": [_field_json(field_change) for field_change in rule_diff.fields],
        "state": [
            {"state": s.state_name, "outcome": s.outcome.value, "incomplete_ms": s.incomplete_ms}
            for s in rule_diff.state
        ],
    }


def _field_json(change: FieldChange) -> Json:
    normal_forms = change.normal_forms
    return {
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "equivalent": None if normal_forms is None else normal_forms.equivalent,
        "normal_old": None if normal_forms is None else normal_forms.old,
        "normal_new": None if normal_forms is None else normal_forms.new,
    }
