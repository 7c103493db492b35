"""What `headgate rules check` costs: the whole command, from the interpreter's start, over files that it has not seen.

A mixed thousand: four in five are event rules, the others windowed, one in ten with a description and tests. Each file
holds one rule; a second figure has all of them in one file. The answer of the command is compared with what was
written, and one rule in a second folder is made wrong, which it must find.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import orjson
import yaml

from bench.harness.command import headgate
from bench.harness.environment import Place
from bench.harness.events import SCHEMA
from bench.harness.generated_rules import FIVE, event_rule_id, event_rules, published_windows, window_rules
from bench.harness.result import Result
from bench.harness.yardstick import Yardstick

_USERS = 50_000
_RUNS = 3
Document = dict[str, object]


def rule_check(place: Place, count: int) -> list[Result]:
    """CPU-seconds of the command for so many rules, and for one."""
    folder = place.run_folder(place.new_name("check"))
    documents = _documents(count)
    streams = _written(folder / "streams", {"bench": [{**SCHEMA}]})
    many = _written(folder / "many", {str(rule["id"]): [rule] for rule in documents})
    together = _written(folder / "together", {"all": documents})
    single = _written(folder / "single", {"one": documents[:1]})
    wrong = _written(folder / "wrong", {"all": [*documents[:-1], documents[-1] | {"on": "elsewhere"}]})
    _check(single, streams, 1, 0)  # bytecode of what is imported is on disk from here on
    with Yardstick() as yardstick:
        seconds = {name: _median(path, streams, rules) for name, path, rules in _asked(many, together, single, count)}
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


def _asked(many: Path, together: Path, single: Path, count: int) -> Sequence[tuple[str, Path, int]]:
    return [("many", many, count), ("together", together, count), ("single", single, 1)]


def _documents(count: int) -> list[Document]:
    windows = -(-count // (5 * len(FIVE)))
    bounds = {one: [10 * number + 5 for number in range(windows)] for one in FIVE}
    windowed = [value for _, value in published_windows(window_rules(bounds))][: count // 5]
    per_event = [value for _, value in event_rules(count - len(windowed), _USERS).published()]
    rules = [_plain(value) for value in (*per_event, *windowed)]
    assert rules[0]["id"] == event_rule_id(0)
    return [_tested(rule) if number % 10 == 0 else rule for number, rule in enumerate(rules)]


def _plain(value: bytes) -> Document:
    """As a person writes it: without what is left out by default."""
    return {name: entry for name, entry in orjson.loads(value).items() if entry not in (None, [], "")}


def _tested(rule: Document) -> Document:
    event = {"type": "payment", "user_id": "u1", "country": "DE", "currency": "EUR", "amount": 1.5, "risk": 0.25}
    test = {"name": "nothing of the kind", "events": [{**event, "quantity": n} for n in range(5)], "expect": []}
    return {**rule, "description": "One rule of many. " * 5, "tests": [test]}


def _written(folder: Path, files: dict[str, list[Document]]) -> Path:
    folder.mkdir()
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))
    return folder


def _median(rules: Path, streams: Path, count: int) -> float:
    return round(statistics.median(_check(rules, streams, count, 0) for _ in range(_RUNS)), 2)


def _check(rules: Path, streams: Path, sound: int, problems: int) -> float:
    """CPU-seconds of one run, whose answer must be so many sound rules and problems."""
    done = headgate("rules", "check", str(rules), "--streams", str(streams))
    answer = orjson.loads(done.output)
    found = (done.code, answer["rules"], len(answer["problems"]))
    if found != (min(problems, 1), sound, problems):
        raise RuntimeError(f"rules check ended with {found}: {answer['problems'][:3]}")
    return done.cpu_s
