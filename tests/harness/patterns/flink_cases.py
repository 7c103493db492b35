"""The cases of ``tests/flink_cep`` as patterns of the engine, and what the step ``pattern`` gives for their events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import polars as pl

from streamcore.durations import Milliseconds
from streamcore.operators.base import LATE, MAIN, CutTime
from streamcore.operators.patterns.operator import TIMED_OUT, PatternOperator
from streamcore.operators.patterns.output import MatchApply
from streamcore.patterns.expressions import MatchExpression, candidate, matched
from streamcore.patterns.pattern import AfterMatchSkip, Pattern, SkipKind, WithinType
from streamcore.schema import EVENT_MS
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK

Json = Any
SCHEMA = {"id": pl.Int64(), "key": pl.String(), "kind": pl.String(), "v": pl.Float64()}
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def build(case: Json) -> Pattern:
    """Return the pattern of a case."""
    skip = case["skip"]
    strategy = AfterMatchSkip(SkipKind(skip["strategy"]), skip.get("step", ""))
    pattern = _steps(case["pattern"], strategy)
    return pattern.within(Milliseconds(case["within_ms"])) if case["within_ms"] is not None else pattern


def _steps(items: Sequence[Json], skip: AfterMatchSkip | None = None) -> Pattern:
    pattern: Pattern | None = None
    for item in items:
        step = _steps(item["group"]) if "group" in item else item["name"]
        pattern = Pattern.begin(step, skip) if pattern is None else getattr(pattern, item["contiguity"])(step)
        if "where" in item:
            pattern = pattern.where(condition(item["where"]))
        if "quantifier" in item:
            pattern = _quantified(pattern, item["quantifier"])
        if "until" in item:
            pattern = pattern.until(condition(item["until"]))
        if item.get("within_previous_ms") is not None:
            pattern = pattern.within(Milliseconds(item["within_previous_ms"]), WithinType.PREVIOUS_AND_CURRENT)
    assert pattern is not None
    return pattern


def _quantified(pattern: Pattern, quantifier: Json) -> Pattern:
    least, most = quantifier["min"], quantifier["max"]
    within_ms = None if quantifier.get("within_ms") is None else Milliseconds(quantifier["within_ms"])
    if (least, most) != (1, 1):
        pattern = (
            pattern.times_or_more(least, within_ms=within_ms)
            if most is None
            else pattern.times(least, most, within_ms=within_ms)
        )
    if quantifier.get("inner") == "consecutive":
        pattern = pattern.consecutive()
    if quantifier.get("inner") == "allow_combinations":
        pattern = pattern.allow_combinations()
    if quantifier.get("greedy"):
        pattern = pattern.greedy()
    return pattern.optional() if quantifier.get("optional") else pattern


def condition(node: Json) -> pl.Expr | MatchExpression:
    """Return a condition: a Polars expression if it reads the event alone."""
    if _is_simple(node):
        return _simple(node)
    return _iterative(node)


def _is_simple(node: Json) -> bool:
    if isinstance(node, dict):
        return not {"first", "last", "sum", "count"} & {*node} and all(map(_is_simple, node.values()))
    return all(map(_is_simple, node)) if isinstance(node, list) else True


def _simple(node: Json) -> pl.Expr:
    for word, join in (("and", and_), ("or", or_)):
        if word in node:
            return reduce(join, map(_simple, node[word]))
    if "not" in node:
        return ~_simple(node["not"])
    right = pl.col(node["than"]["field"]) if "than" in node else pl.lit(node["value"])
    found: pl.Expr = _COMPARE[node["op"]](pl.col(node["field"]), right)
    return found


def _iterative(node: Json) -> MatchExpression:
    for word, join in (("and", and_), ("or", or_)):
        if word in node:
            return reduce(join, map(_iterative, node[word]))
    if "not" in node:
        return ~_iterative(node["not"])
    left = _side(node)
    right = _side(node["than"]) if "than" in node else node["value"]
    compared: MatchExpression = _COMPARE[node["op"]](left, right)
    return compared.fill_null(bool(node.get("if_none", False)))


def _side(node: Json) -> MatchExpression:
    if "field" in node:
        return candidate(node["field"])
    if "count" in node:
        return matched(node["count"]).count()
    word = next(name for name in ("first", "last", "sum") if name in node)
    step, _, column = node[word].partition(".")
    found: MatchExpression = getattr(matched(step), word)(column)
    return found.fill_null(0) if word == "sum" else found


def _taken(match: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, str]]:
    yield {"steps": json.dumps({step: [event["id"] for event in events] for step, events in match.items()})}


def run(case: Json) -> dict[str, Any]:
    """Return the matches and time-outs of a case, as pairs of key and steps in order of output, and the late events."""
    operator = PatternOperator(
        build(case), ("key",), SCHEMA, MatchApply(_taken, {"steps": pl.String()}), timed_out=True
    )
    matches: list[tuple[str, Json]] = []
    timeouts: list[tuple[str, Json, int]] = []
    late: list[int] = []
    watermark, highest = NO_WATERMARK, NO_WATERMARK
    cuts = [*case["events"], None]
    for event in cuts:
        after = END_OF_TIME_MS
        rows = [] if event is None else [event]
        if event is not None:
            highest = max(highest, event[2])
            after = watermark if case["disorder_ms"] is None else max(watermark, highest - case["disorder_ms"])
        frame = pl.DataFrame(
            [(i, k, kind, v, ms) for i, k, ms, kind, v in rows], schema={**SCHEMA, EVENT_MS: pl.Int64()}, orient="row"
        )
        ports = operator.step([frame], CutTime(watermark, after, 0))
        matches += [(key, json.loads(steps)) for key, steps in ports[MAIN].select("key", "steps").rows()]
        timeouts += [
            (key, json.loads(steps), ms) for key, steps, ms in ports[TIMED_OUT].select("key", "steps", EVENT_MS).rows()
        ]
        late += ports[LATE]["id"].to_list()
        for table in operator.tables().values():
            table.changes()
        watermark = after
    return {"matches": matches, "timeouts": timeouts, "late": late}
