"""``headgate rules``: check, test, publish and list rules; the longer commands are modules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.backtest_command import backtest
from headgate.explain_command import explain
from headgate.output import Json, Output, emit, output_option
from headgate.rules_options import DEFAULT_APP, files_option, target_option

if TYPE_CHECKING:
    from headgate.publishing import Listed, Published
    from headgate.rulebook import Book
    from rulecore.check import Cost
    from rulecore.ruletests import TestResult
    from rulecore.yamldoc import Problem

_DEFAULT = DEFAULT_APP


@click.group(name="rules")
def command() -> None:
    """Check and test rules in files, try them on past events, publish them to a running app, list what it has, and ask
    why they fired.

    PATHS are files and folders of rules; without any, the shipped rules/shop.
    """


command.add_command(backtest)
command.add_command(explain)


@command.command()
@files_option
@output_option
def check(paths: Sequence[Path], streams: Path | None, output: Output) -> int:
    """Say what is wrong with rules, and what they will cost. Needs no cluster."""
    book = _read(paths, streams)
    data: Json = {
        "rules": len(book.rules),
        "problems": [_problem_json(p) for p in book.problems],
        "costs": [_cost_json(c) for c in book.costs],
    }
    emit(output, data, "\n".join([*_check_lines(book), _verdict(book)]))
    return 1 if book.problems else 0


@command.command()
@files_option
@output_option
def test(paths: Sequence[Path], streams: Path | None, output: Output) -> int:
    """Run the tests that rules carry, through the real kernel in this process. Needs no cluster."""
    from rulecore.ruletests import run_tests
    from rulecore.runner import run_in_process

    book = _read(paths, streams)
    results = [r for rule in book.rules for r in run_tests(rule.rule, book.streams, run_in_process)]
    untested = [rule.rule.id for rule in book.rules if not rule.rule.tests]
    failed = [r for r in results if not r.passed]
    data: Json = {
        "passed": len(results) - len(failed),
        "failed": [{"rule": r.rule, "test": r.test, "diff": list(r.diff)} for r in failed],
        "untested": untested,
        "problems": [_problem_json(p) for p in book.problems],
    }
    lines = [p.render() for p in book.problems] + [_failure(r) for r in failed]
    lines += [f"{name}: has no tests" for name in untested]
    lines.append(f"{len(results)} tests of {len(book.rules)} rules: {len(failed)} failed")
    emit(output, data, "\n".join(lines))
    return 1 if failed or book.problems else 0


@command.command()
@files_option
@target_option
@click.option("--wait", type=click.FloatRange(0.1), default=30.0, show_default=True, help="For answers, in seconds.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the app's answers.")
@output_option
def publish(
    paths: Sequence[Path],
    streams: Path | None,
    bootstrap: str,
    app: str,
    wait: float,
    output: Output,
    *,
    no_wait: bool,
) -> int:
    """Check rules, publish all of them or none, and show what the app answers.

    Exit code 1 when a rule was rejected, here or by the app, or when an answer did not come in time.
    """
    from headgate.publishing import AppTopics, require_app
    from headgate.publishing import publish as send
    from streamcore.kafka.settings import KafkaSettings

    book = _read(paths, streams)
    if book.problems:
        problems: Json = {"published": [], "problems": [_problem_json(p) for p in book.problems]}
        emit(output, problems, "\n".join([*(p.render() for p in book.problems), "nothing was published"]))
        return 1
    kafka, topics = KafkaSettings(bootstrap, client_id="headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    done = send(kafka, topics, [rule.rule for rule in book.rules], None if no_wait else round(wait * 1000))
    data: Json = {"published": [_published_json(p) for p in done], "problems": []}
    silent = [p.rule for p in done if p.answer is None and not no_wait]
    lines = [_published_line(p, waited=not no_wait) for p in done]
    if silent:
        lines.append(
            f"no answer of app {app} for {len(silent)} rules in {wait:g} s: is it running? "
            "It will read them when it starts; see headgate rules list"
        )
    emit(output, data, "\n".join(lines))
    return 0 if no_wait or all(p.answer is not None and p.answer.accepted for p in done) else 1


@command.command(name="list")
@target_option
@output_option
def list_(bootstrap: str, app: str, output: Output) -> None:
    """List the rules that were published to an app, with its last answer to each."""
    from headgate.publishing import AppTopics, list_rules, require_app
    from streamcore.kafka.settings import KafkaSettings

    kafka, topics = KafkaSettings(bootstrap, client_id="headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    found = list_rules(kafka, topics)
    emit(output, [_listed_json(one) for one in found], _table([_listed_row(one) for one in found]))


def _read(paths: Sequence[Path], streams: Path | None) -> Book:
    from headgate.rulebook import read_book, shipped_rules

    return read_book(paths or [shipped_rules(_DEFAULT)], streams)


# --- what the results look like ---------------------------------------------------------------------------------------


def _check_lines(book: Book) -> list[str]:
    width = max((len(c.rule) for c in book.costs), default=0)
    lines = [f"{'ok  ' if c.cheap else 'cost'} {c.rule:{width}}  {c.note}" for c in book.costs]
    return lines + [p.render() for p in book.problems]


def _verdict(book: Book) -> str:
    wrong = len(book.problems)
    return f"{len(book.rules)} rules are sound, {wrong} {'problem' if wrong == 1 else 'problems'}"


def _failure(result: TestResult) -> str:
    return "\n".join([f"FAILED {result.rule}: {result.test}", *(f"    {line}" for line in result.diff)])


def _published_line(one: Published, *, waited: bool) -> str:
    name = f"{one.rule} version {one.version}"
    if one.answer is None:
        return f"published  {name}{': no answer' if waited else ''}"
    reason = "" if one.answer.reason is None else ": " + one.answer.reason.replace("\n", "\n    ")
    return f"{one.answer.status:10} {name}{reason}"


def _problem_json(problem: Problem) -> Json:
    return {
        "file": problem.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "path": problem.path,
        "message": problem.message,
        "rule": problem.rule,
    }


def _cost_json(cost: Cost) -> Json:
    return {
        "rule": cost.rule,
        "access": None if cost.access is None else cost.access.value,
        "panes": cost.panes,
        "bytes_per_key": cost.bytes_per_key,
        "cheap": cost.cheap,
        "note": cost.note,
    }


def _published_json(one: Published) -> Json:
    return {
        "rule": one.rule,
        "version": one.version,
        "offset": one.position.offset,
        "status": None if one.answer is None else one.answer.status,
        "reason": None if one.answer is None else one.answer.reason,
    }


_HEAD = ("RULE", "VERSION", "MODE", "KIND", "STREAM", "SEVERITY", "STATUS", "REASON")


def _listed_json(one: Listed) -> Json:
    return dict(zip((name.lower() for name in _HEAD), _listed_values(one), strict=True))


def _listed_values(one: Listed) -> tuple[str | int | None, ...]:
    status = None if one.answer is None else one.answer.status
    reason = None if one.answer is None else one.answer.reason
    if one.rule is None:
        return (one.name, None, None, None, None, None, status, reason)
    rule = one.rule
    return (rule.id, rule.version, rule.mode_text, rule.kind.value, rule.on, rule.then.severity.value, status, reason)


def _listed_row(one: Listed) -> tuple[str, ...]:
    values = ["-" if value is None else str(value).split("\n", 1)[0] for value in _listed_values(one)]
    return (*values[:-1], "" if values[-1] == "-" else values[-1])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their longest entry, for people and for ``awk``."""
    everything = [_HEAD, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(_HEAD))]
    return "\n".join("  ".join(f"{v:{w}}" for v, w in zip(row, widths, strict=True)).rstrip() for row in everything)
