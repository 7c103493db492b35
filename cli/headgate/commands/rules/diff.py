"""``headgate rules diff``: compares rule files with the rules of an app or of other files."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.console.problems import problem_json
from headgate.kafka_login import KafkaLogin, login_option

if TYPE_CHECKING:
    from rulecore.documents.rule import Rule
    from rulecore.documents.yaml_reader import Problem
    from rulecore.ruleset.diff import FieldChange, RuleDiff, StateChange

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_WIDTH = 100
SAME, DIFFERENT, TROUBLE = 0, 1, 2


@click.command(name="diff", short_help="Compare rule files with the published rules.")
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
    """Compare rule files with the published rules: entries, normalized conditions, and the effect on state.

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
        found = _diff_rules(paths, against, streams, AppAt(login, app), prune=prune)
    except _UnreadError as error:
        emit(output, {"problems": [problem_json(p) for p in error.problems]}, _refusal(error.problems))
        return TROUBLE
    except StreamError as error:
        to_stderr(f"headgate: {error}")
        return TROUBLE
    emit(output, [_json(one) for one in found], "\n".join([*_lines(found), _sum(found)]))
    return DIFFERENT if changes(found) else SAME


@dataclass(frozen=True, slots=True)
class AppAt:
    """A rules app and where its Kafka is."""

    login: KafkaLogin
    name: str


class _UnreadError(Exception):
    """Rules on one of the sides have problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(len(problems))
        self.problems = problems


def _diff_rules(
    paths: Sequence[Path], against: Sequence[Path], streams: Path | None, app: AppAt, *, prune: bool
) -> tuple[RuleDiff, ...]:
    from headgate.rules.bundle import read_bundle, shipped_rules
    from rulecore.ruleset.diff import diff

    bundle = read_bundle(paths or [shipped_rules("shop")], streams)
    other = read_bundle(against, streams) if against else None
    if problems := [*bundle.problems, *(other.problems if other is not None else ())]:
        raise _UnreadError(problems)
    live = _live(app, streams) if other is None else [one.rule for one in other.rules]
    return diff(live, [one.rule for one in bundle.rules], bundle.streams, whole=prune)


def _live(app: AppAt, streams: Path | None) -> list[Rule]:
    """Read the versions in the live slots from the control topic."""
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, require_app
    from rulecore.documents.slots import Slot

    kafka, topics = app.login.settings("headgate-rules"), AppTopics(app.name)
    require_app(kafka, topics)
    rules = read_history(kafka, topics, streams).rules.rules
    return [rule.rule for place, rule in sorted(rules.items()) if place.slot is Slot.LIVE]


# --- what the results look like ---------------------------------------------------------------------------------------

_MARKS = {"added": "+", "removed": "-", "changed": "~"}


def _lines(found: Sequence[RuleDiff]) -> Iterable[str]:
    for one in found:
        if one.verdict == "same":
            continue
        yield f"{_MARKS[one.verdict]} {one.rule}  {_versions(one)}"
        if one.rejected is not None:
            yield f"    ! would be rejected: {one.rejected}; write version: {one.write_version}"
        for change in one.fields:
            yield from _field(change)
        for state in one.state:
            yield f"    state: {_state(state)}"


def _versions(one: RuleDiff) -> str:
    if one.old_version is None:
        return f"new, version {one.new_version}"
    if one.new_version is None:
        return f"would be removed, version {one.old_version}"
    return f"version {one.old_version} -> {one.new_version}"


def _field(change: FieldChange) -> Iterable[str]:
    normal = change.normal
    word = "" if normal is None else " (equivalent)" if normal.equivalent else " (different)"
    yield f"    {change.path}{word}"
    yield from _sides(change.path, change.old, change.new)
    if normal is not None and not normal.equivalent and (normal.old, normal.new) != (change.old, change.new):
        yield "      in normal form"
        yield from _sides("", normal.old, normal.new)


def _sides(path: str, old: Json, new: Json) -> Iterable[str]:
    for mark, value in (("-", old), ("+", new)):
        text = _value(path, value)
        yield from textwrap.wrap(text, _WIDTH, initial_indent=f"      {mark} ", subsequent_indent="        ") or [
            f"      {mark}"
        ]


def _value(path: str, value: Json) -> str:
    if value is None:
        return "(none)"
    if path == "tests" and isinstance(value, list):
        return f"{len(value)} tests"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _state(state: StateChange) -> str:
    from rulecore.documents.scalars import render_duration

    if state.incomplete_ms is None:
        return f"{state.what}: {state.fate}" + (", begins empty" if state.fate == "new" else "")
    incomplete = f", incomplete for {render_duration(state.incomplete_ms)}" if state.incomplete_ms else ""
    return f"{state.what}: {state.fate}{incomplete}"


def _sum(found: Sequence[RuleDiff]) -> str:
    count = {verdict: sum(one.verdict == verdict for one in found) for verdict in (*_MARKS, "same")}
    rejected = sum(one.rejected is not None for one in found)
    text = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    return f"{text}; {rejected} would be rejected" if rejected else text


def _refusal(problems: Sequence[Problem]) -> str:
    return "\n".join([*(p.render() for p in problems), "nothing was compared"])


def _json(one: RuleDiff) -> Json:
    return {
        "rule": one.rule,
        "verdict": one.verdict.value,
        "old_version": one.old_version,
        "new_version": one.new_version,
        "rejected": one.rejected,
        "write_version": one.write_version,
        "fields": [_field_json(change) for change in one.fields],
        "state": [{"what": s.what, "fate": s.fate.value, "incomplete_ms": s.incomplete_ms} for s in one.state],
    }


def _field_json(change: FieldChange) -> Json:
    normal = change.normal
    return {
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "equivalent": None if normal is None else normal.equivalent,
        "normal_old": None if normal is None else normal.old,
        "normal_new": None if normal is None else normal.new,
    }
