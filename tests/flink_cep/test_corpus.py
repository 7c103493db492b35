"""The corpus is whole: its cases are those of the seed, and each match in it is one that its pattern allows.

The checks know nothing of an automaton: they hold a match of Flink's against its own events and conditions.
"""

from __future__ import annotations

import copy
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flink_cep.generate import generate

CORPUS = Path(__file__).parent / "corpus.jsonl"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FIELDS = {"kind": 3, "v": 4}
# A case, a match and an event as JSON has them.
Case = dict[str, Any]
Row = list[Any]


def read_corpus() -> list[Case]:
    return [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


def all_steps(pattern: list[Case]) -> Iterator[Case]:
    for step in pattern:
        yield from all_steps(step["group"]) if "group" in step else [step]


def holds(condition: Case, event: Row, earlier: dict[str, list[Row]]) -> bool:
    """Whether the event satisfies the condition; `earlier` has the match's events before it, by step."""
    if "and" in condition:
        return all(holds(part, event, earlier) for part in condition["and"])
    if "or" in condition:
        return any(holds(part, event, earlier) for part in condition["or"])
    if "not" in condition:
        return not holds(condition["not"], event, earlier)
    left = side(condition, event, earlier)
    right = side(condition["than"], event, earlier) if "than" in condition else condition["value"]
    if left is None or right is None:
        return bool(condition.get("if_none", False))
    return _COMPARE[condition["op"]](left, right)


def side(node: Case, event: Row, earlier: dict[str, list[Row]]) -> Any:
    if "field" in node:
        return event[_FIELDS[node["field"]]]
    function = next(name for name in ("first", "last", "sum", "count") if name in node)
    step, _, column = node[function].partition(".")
    events = earlier.get(step, [])
    if function == "count":
        return len(events)
    values = [each[_FIELDS[column]] for each in events]
    if function == "sum":
        return sum(values)
    return (values[0] if function == "first" else values[-1]) if values else None


def faults(case: Case) -> Iterator[str]:
    """What is wrong with the results of a case, as sentences."""
    flink = case["flink"]
    if "matches" not in flink:
        return
    order = sorted((row for row in case["events"] if row[0] not in flink["late"]), key=lambda row: row[2])
    for match in flink["matches"]:
        yield from faults_of_match(case, match, order)
        times = [row[2] for row in rows_of(match, order)]
        if times and case["within_ms"] is not None and times[-1] - times[0] >= case["within_ms"]:
            yield f"{match} takes {times[-1] - times[0]} ms"
    for partial in flink["timeouts"]:
        yield from faults_of_match(case, partial, order)
        yield from faults_of_time_out(case, partial, order)


def rows_of(match: Case, order: list[Row]) -> list[Row]:
    ids = {number for numbers in match["steps"].values() for number in numbers}
    return [row for row in order if row[0] in ids]


def faults_of_match(case: Case, match: Case, order: list[Row]) -> Iterator[str]:
    """A match or a partial match: events of its key, each once, in the order of time, that satisfy their steps."""
    steps = {step["name"]: step for step in all_steps(case["pattern"])}
    place = {row[0]: number for number, row in enumerate(order)}
    taken = [(number, name) for name, numbers in match["steps"].items() for number in numbers]
    if not taken:
        yield f"{match} has no event"
    if not {number for number, _ in taken} <= place.keys():
        yield f"{match} has events that are not there, or late"
        return
    if len({number for number, _ in taken}) < len(taken):
        yield f"{match} has an event twice"
    earlier: dict[str, list[Row]] = {}
    for number, name in sorted(taken, key=lambda each: place[each[0]]):
        event, step = order[place[number]], steps[name]
        if event[1] != match["key"]:
            yield f"{match} has event {number} of another key"
        if step.get("contiguity", "").startswith("not_"):
            yield f"{match} has an event in a step that must not come"
        if not holds(step.get("where", {"and": []}), event, earlier):
            yield f"{match}: event {number} does not satisfy the condition of {name}"
        earlier.setdefault(name, []).append(event)
    for name, numbers in match["steps"].items():
        if [row[0] for row in earlier.get(name, [])] != numbers:
            yield f"{match}: the events of {name} are not in the order of time"
    yield from faults_of_sequence(case, match, place)


def faults_of_sequence(case: Case, match: Case, place: dict[int, int]) -> Iterator[str]:
    """Steps outside of groups: no more events than the quantifier allows, and all after those of the step before."""
    end = -1
    for step in case["pattern"]:
        names = [each["name"] for each in all_steps([step])]
        places = [place[number] for name in names for number in match["steps"].get(name, [])]
        most = step.get("quantifier", {"max": 1})["max"]
        if "group" not in step and most is not None and len(places) > most:
            yield f"{match} has {len(places)} events in {names[0]}"
        if places and min(places) <= end:
            yield f"{match} has an event of {names} before the end of the step before"
        end = max([end, *places])


def faults_of_time_out(case: Case, partial: Case, order: list[Row]) -> Iterator[str]:
    times = [row[2] for row in rows_of(partial, order)]
    limits = {times[0] + case["within_ms"]} if case["within_ms"] is not None else set()
    for step in all_steps(case["pattern"]):
        between = step.get("within_previous_ms", step.get("quantifier", {}).get("within_ms"))
        if between is not None:
            limits.add(times[-1] + between)
    if partial["timestamp"] not in limits:
        yield f"{partial} timed out at no limit of {sorted(limits)}"
    if partial["watermark"] is not None and partial["watermark"] < partial["timestamp"]:
        yield f"{partial} timed out before its time"


CASES = {case["id"]: case for case in read_corpus()}


def test_the_cases_are_those_of_the_seed() -> None:
    bare = [{name: value for name, value in case.items() if name != "flink"} for case in CASES.values()]
    assert bare == json.loads(json.dumps(generate())), "run make flink-cep"


def test_each_match_is_one_that_the_pattern_allows() -> None:
    found = {name: list(faults(case)) for name, case in CASES.items()}
    assert {name: sentences for name, sentences in found.items() if sentences} == {}


def test_there_are_matches_for_each_feature() -> None:
    seen: Counter[str] = Counter()
    for case in CASES.values():
        if not case["flink"].get("matches"):
            continue
        seen[case["skip"]["strategy"]] += 1
        seen["within"] += case["within_ms"] is not None
        seen["time-out"] += bool(case["flink"]["timeouts"])
        seen["late"] += bool(case["flink"]["late"])
        for part in [*case["pattern"], *all_steps(case["pattern"])]:
            seen[part.get("contiguity", "first")] += 1
            seen["until"] += "until" in part
            seen["group"] += "group" in part
            quantifier = part.get("quantifier", {})
            seen.update(name for name in ("optional", "greedy") if quantifier.get(name))
            seen[quantifier.get("inner", "once")] += 1
    wanted = "no_skip skip_to_next skip_past_last_event skip_to_first skip_to_last within time-out late until group "
    wanted += "optional greedy next followed_by followed_by_any not_next not_followed_by "
    wanted += "relaxed consecutive allow_combinations"
    assert {name: seen[name] for name in wanted.split() if seen[name] < 2} == {}
    assert sum("refused" in case["flink"] for case in CASES.values()) >= 15


def test_flink_refuses_the_patterns_of_that_theme() -> None:
    assert [name for name, case in CASES.items() if name.startswith("refused") and "refused" not in case["flink"]] == []


HARMS: dict[str, Callable[[Case], object]] = {
    "another key": lambda match: match.update(key="nobody"),
    "an event in another step": lambda match: match["steps"].update(a=match["steps"]["b"], b=match["steps"]["a"]),
    "an event twice": lambda match: match["steps"]["a"].append(match["steps"]["a"][0]),
    "events in another order": lambda match: match["steps"]["a"].reverse(),
    "an event that is not there": lambda match: match["steps"]["b"].append(99),
    "a step that has no event": lambda match: match["steps"].clear(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_match_is_found(harm: str) -> None:
    case = copy.deepcopy(CASES["within-8"])
    assert list(faults(case)) == []
    HARMS[harm](case["flink"]["matches"][0])
    assert list(faults(case)) != []


def test_a_time_out_at_another_time_is_found() -> None:
    case = copy.deepcopy(CASES["within-8"])
    case["flink"]["timeouts"][0]["timestamp"] += 1
    assert len(list(faults(case))) == 1
