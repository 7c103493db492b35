"""Measures the CPU time of `headgate rules check`: the whole command, from the start of the interpreter.

Four in five rules are event rules, the others are windowed; one in ten has a description and tests. One figure is for
files of one rule each, another for all rules in one file. The command must report the number of rules that were
written, and the one invalid rule of another folder.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import orjson
import yaml

from bench.harness.command import headgate
from bench.harness.environment import Environment
from bench.harness.events import SCHEMA
from bench.harness.generated_rules import FIVE, event_rule_id, event_rules, window_control_records, window_rules
from bench.harness.result import Result
from bench.harness.yardstick import Yardstick

_USERS = 50_000
_RUNS = 3
Document = dict[str, object]


def rule_check(environment: Environment, count: int) -> list[Result]:
    """Measure the CPU-seconds of the command for ``count`` rules and for one."""
    folder = environment.run_folder(environment.new_name("check"))
    documents = _documents(count)
    streams = _write_files(folder / "streams", {"bench": [{**SCHEMA}]})
    many = _write_files(folder / "many", {str(rule["id"]): [rule] for rule in documents})
    together = _write_files(folder / "together", {"all": documents})
    single = _write_files(folder / "single", {"one": documents[:1]})
    wrong = _write_files(folder / "wrong", {"all": [*documents[:-1], documents[-1] | {"on": "elsewhere"}]})
    _check(single, streams, 1, 0)  # writes the bytecode of all imported modules
    with Yardstick() as yardstick:
        seconds = {
            name: _median_cpu_s(path, streams, rules)
            for name, path, rules in _measured_folders(many, together, single, count)
        }
        _check(wrong, streams, count - 1, 1)
    return [
        {
            "workload": "check-rules",
            "rules": count,
            "cpu_seconds": seconds["many"],
            "cpu_seconds_one_file": seconds["together"],
            "cpu_seconds_one_rule": seconds["single"],
            "cpu_ms_per_rule": round((seconds["many"] - seconds["single"]) * 1e3 / count, 2),
            "runs": _RUNS,
            "checked": True,
            **yardstick.figures(),
        }
    ]


def _measured_folders(many: Path, together: Path, single: Path, count: int) -> Sequence[tuple[str, Path, int]]:
    return [("many", many, count), ("together", together, count), ("single", single, 1)]


def _documents(count: int) -> list[Document]:
    windows = -(-count // (5 * len(FIVE)))
    bounds = {aggregate: [10 * number + 5 for number in range(windows)] for aggregate in FIVE}
    windowed = [value for _, value in window_control_records(window_rules(bounds))][: count // 5]
    per_event = [value for _, value in event_rules(count - len(windowed), _USERS).control_records()]
    rules = [_drop_defaults(value) for value in (*per_event, *windowed)]
    assert rules[0]["id"] == event_rule_id(0)
    return [_add_test(rule) if number % 10 == 0 else rule for number, rule in enumerate(rules)]


def _drop_defaults(value: bytes) -> Document:
    """Return the rule without empty fields, as a person would write it."""
    return {name: entry for name, entry in orjson.loads(value).items() if entry not in (None, [], "")}


def _add_test(rule: Document) -> Document:
    event = {"type": "payment", "user_id": "u1", "country": "DE", "currency": "EUR", "amount": 1.5, "risk": 0.25}
    test = {"name": "nothing of the kind", "events": [{**event, "quantity": n} for n in range(5)], "expect": []}
    return {**rule, "description": "One rule of many. " * 5, "tests": [test]}


def _write_files(folder: Path, files: dict[str, list[Document]]) -> Path:
    folder.mkdir()
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))
    return folder


def _median_cpu_s(rules: Path, streams: Path, count: int) -> float:
    return round(statistics.median(_check(rules, streams, count, 0) for _ in range(_RUNS)), 2)


def _check(rules: Path, streams: Path, valid: int, problems: int) -> float:
    """Run the command and return its CPU-seconds. Raise ``RuntimeError`` if it reports other numbers.

    ``valid``: the expected number of valid rules; ``problems``: the expected number of problems.
    """
    result = headgate("rules", "check", str(rules), "--streams", str(streams))
    answer = orjson.loads(result.output)
    outcome = (result.code, answer["rules"], len(answer["problems"]))
    if outcome != (min(problems, 1), valid, problems):
        raise RuntimeError(f"rules check ended with {outcome}: {answer['problems'][:3]}")
    return result.cpu_s
