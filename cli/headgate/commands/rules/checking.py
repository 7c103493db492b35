"""``headgate rules check`` and ``headgate rules test``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.commands.rules.options import read
from headgate.console.output import Json, Output, emit, output_option
from headgate.console.problems import problem_json
from headgate.rules.options import files_option
from rulecore.printable import format_count

if TYPE_CHECKING:
    from headgate.rules.bundle import RuleBundle
    from rulecore.check import RuleCost
    from rulecore.testing.rule_tests import TestResult


def _samples(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """Return the file of each stream."""
    if wrong := [value for value in values if not all(value.partition("="))]:
        raise click.BadParameter(f"{wrong[0]}: write STREAM=FILE")
    return {stream: Path(file) for stream, _, file in (value.partition("=") for value in values)}


@click.command()
@files_option
@click.option(
    "--sample",
    "samples",
    metavar="STREAM=FILE",
    multiple=True,
    callback=_samples,
    help="Events of a stream, one JSON object on each line: keys that are new with almost every event are named.",
)
@output_option
def check(
    paths: Sequence[Path], streams: Path | None, lists: Path | None, samples: Mapping[str, Path], output: Output
) -> int:
    """Check rules, features and decision policies for errors, estimate the cost of rules, and warn of keys whose state
    only grows and of rules that take no part in the policy of their stream. Needs no cluster."""
    bundle = read(paths, streams, lists, samples)
    data: Json = {
        "rules": len(bundle.rules),
        "policies": [policy.name for policy in bundle.policies],
        "features": [*bundle.features],
        "problems": [problem_json(p) for p in bundle.problems],
        "warnings": [problem_json(w) for w in bundle.warnings],
        "costs": [_cost_json(c) for c in bundle.costs],
    }
    emit(output, data, "\n".join([*_check_lines(bundle), _check_summary(bundle)]))
    return 1 if bundle.problems else 0


@click.command(short_help="Run the tests in rule files.")
@files_option
@output_option
def test(paths: Sequence[Path], streams: Path | None, lists: Path | None, output: Output) -> int:
    """Run the tests of rules and decision policies with the engine's kernel, in this process. Needs no cluster."""
    from rulecore.testing.in_process import decide_in_process, run_in_process
    from rulecore.testing.rule_tests import run_policy_tests, run_tests

    bundle = read(paths, streams, lists)
    records = bundle.list_records()
    rules = [rule.whole for rule in bundle.rules]  # with the features of the files
    used = {rule.rule.id: rule.lists for rule in bundle.rules}
    results: list[TestResult] = []
    for rule in rules:
        # the rules whose scores it adds run, too
        names = used[rule.id].union(*(used.get(other, ()) for other in (rule.score.of if rule.score else ())))
        list_records = [record for name in sorted(names) for record in records[name]]
        results += run_tests(rule, bundle.streams, partial(run_in_process, lists=list_records), rules)
    every_list = [record for name in sorted(records) for record in records[name]]
    for policy in bundle.policies:
        decide = partial(decide_in_process, lists=every_list)
        results += run_policy_tests(policy.policy, bundle.streams, decide, rules)
    untested = [rule.rule.id for rule in bundle.rules if not rule.rule.tests]
    failed = [r for r in results if not r.passed]
    data: Json = {
        "passed": len(results) - len(failed),
        "failed": [{"rule": r.rule, "test": r.test, "diff": list(r.diff)} for r in failed],
        "untested": untested,
        "problems": [problem_json(p) for p in bundle.problems],
    }
    lines = [p.render() for p in bundle.problems] + [_render_failure(r) for r in failed]
    lines += [f"{name}: has no tests" for name in untested]
    if bundle.policies and not rules:
        lines.append("no rule was given: the tests of decision policies run with the rules among PATHS alone")
    lines.append(f"{format_count(len(results), 'test')} of {_subjects(bundle)}: {len(failed)} failed")
    emit(output, data, "\n".join(lines))
    return 1 if failed or bundle.problems else 0


# --- the form of the results ------------------------------------------------------------------------------------------


def _check_lines(bundle: RuleBundle) -> list[str]:
    width = max((len(c.rule) for c in bundle.costs), default=0)
    lines = [f"{'ok  ' if c.cheap else 'cost'} {c.rule:{width}}  {c.note}" for c in bundle.costs]
    lines += [f"warning: {warning.render()}" for warning in bundle.warnings]
    return lines + [p.render() for p in bundle.problems]


def _check_summary(bundle: RuleBundle) -> str:
    verb = "is" if len(bundle.rules) + len(bundle.policies) + len(bundle.features) == 1 else "are"
    summary = f"{_subjects(bundle)} {verb} sound, {format_count(len(bundle.problems), 'problem')}"
    return f"{summary}, {format_count(len(bundle.warnings), 'warning')}" if bundle.warnings else summary


def _subjects(bundle: RuleBundle) -> str:
    parts, policies = [format_count(len(bundle.rules), "rule")], len(bundle.policies)
    parts += [format_count(len(bundle.features), "feature")] if bundle.features else []
    parts += [f"{policies} decision {'policy' if policies == 1 else 'policies'}"] if policies else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _render_failure(result: TestResult) -> str:
    return "\n".join([f"FAILED {result.rule}: {result.test}", *(f"    {line}" for line in result.diff)])


def _cost_json(cost: RuleCost) -> Json:
    return {
        "rule": cost.rule,
        "access": None if cost.access is None else cost.access.value,
        "panes": cost.panes,
        "bytes_per_key": cost.bytes_per_key,
        "cheap": cost.cheap,
        "note": cost.note,
    }
