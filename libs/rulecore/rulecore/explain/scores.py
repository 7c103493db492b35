"""Traces the sum of a score rule: the signals (matches of other rules) that were in its window, with their points.

The kernel computes the alerts of the rules whose scores are added up, as if nothing suppressed them: each is a signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import orjson
import polars as pl

from rulecore.backtest.run import BacktestRun
from rulecore.compile.overrides import without_suppression
from rulecore.compile.rule import CompiledRule
from rulecore.compile.score import CompiledScore
from rulecore.compile.score_compatibility import incompatibility
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import MAX_EVENTS, ExplainQuestion, ScoreTrace, SignalTrace
from rulecore.lists.store import ListStore
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS
from streamcore.watermark import NO_WATERMARK

_MOST_SCORES = 3  # in an answer to a question


def trace_scores(
    rule: CompiledRule,
    source: RuleInput,
    frames: Mapping[str, pl.DataFrame],
    question: ExplainQuestion,
    support: Sequence[CompiledRule],
    in_question: Sequence[Mapping[str, Json]],
    lists: ListStore,
) -> tuple[ScoreTrace, ...]:
    """Return the sums at the latest alerts in question; without one, the sum at the time of the question.

    ``support``: the rules whose scores the rule adds up. ``in_question``: the alerts that the question is about.
    """
    scoring = rule.score
    assert scoring is not None, "a score rule"
    signals = _find_signals(rule, source, frames, question.closing_ms, support, lists)
    if in_question:
        return tuple(_at_alert(scoring, signals, alert) for alert in in_question[-_MOST_SCORES:])
    times = [one.time_ms for one in signals]
    at_ms = max(times, default=0) if question.at_ms is None else question.at_ms
    start_ms = at_ms - scoring.within_ms
    own = [one for one in signals if start_ms < one.time_ms <= at_ms]
    return (_trace(scoring, own, start_ms, at_ms),) if signals else ()


def _at_alert(scoring: CompiledScore, signals: Sequence[SignalTrace], alert: Mapping[str, Json]) -> ScoreTrace:
    window, values = alert["window"], alert["values"]
    assert isinstance(window, dict)
    assert isinstance(values, dict)
    start_ms, end_ms = int(str(window["start_ms"])), int(str(window["end_ms"]))
    inside = [one for one in signals if start_ms < one.time_ms <= end_ms]
    return _trace(scoring, inside[: int(str(values["count"]))], start_ms, end_ms)


def _trace(scoring: CompiledScore, signals: Sequence[SignalTrace], start_ms: int, end_ms: int) -> ScoreTrace:
    """Return the sum of signals. Where only the best of each rule counts, the first of equal ones is the best."""
    best: dict[str, int] = {}
    for number, one in enumerate(signals):
        if one.rule not in best or one.points > signals[best[one.rule]].points:
            best[one.rule] = number
    added = {*range(len(signals))} if scoring.every else {*best.values()}
    total = sum(signals[number].points for number in added)
    marked = [replace(one, counts=number in added) for number, one in enumerate(signals)]
    return ScoreTrace(start_ms, end_ms, total, scoring.limit, len(marked), _chosen(marked))


def _chosen(signals: Sequence[SignalTrace]) -> tuple[SignalTrace, ...]:
    """Return the latest of the signals, those that count first."""
    chosen = sorted(signals, key=lambda one: one.counts)[-MAX_EVENTS:]
    return tuple(sorted(chosen, key=lambda one: (one.time_ms, one.rule)))


def _find_signals(
    rule: CompiledRule,
    source: RuleInput,
    frames: Mapping[str, pl.DataFrame],
    closing_ms: int,
    support: Sequence[CompiledRule],
    lists: ListStore,
) -> list[SignalTrace]:
    """Return the signals over these events, in the order in which the sum takes them."""
    streams = {one.schema.name: one.schema for one in source.streams}
    fit = [without_suppression(one) for one in support if incompatibility(rule, one, streams) is None]
    times = [int(frame[EVENT_MS].max()) for frame in frames.values() if frame.height]  # type: ignore[arg-type]
    if not fit or not times:
        return []
    alerts: list[bytes] = []
    run = BacktestRun(source, fit, lists=lists, on_alert=alerts.append)
    run.step(frames, max(times), NO_WATERMARK, closing_ms)
    silent = {one.rule.id for one in support if not one.rule.then.alert}
    assert rule.score is not None, "a score rule"
    return sorted(_read(map(orjson.loads, alerts), rule.score, silent), key=lambda one: (one.time_ms, one.rule))


def _read(alerts: Iterable[Mapping[str, Json]], scoring: CompiledScore, silent: set[str]) -> Iterable[SignalTrace]:
    for alert in alerts:
        name, place = str(alert["rule"]), alert["source"]
        weight = scoring.weights[name]
        yield SignalTrace(
            rule=name,
            version=int(str(alert["version"])),
            points=int(str(alert["score"])) if weight is None else weight,
            time_ms=int(str(alert["event_time_ms"])),
            message=str(alert["message"]),
            place=place if isinstance(place, dict) else None,
            alert_id=None if name in silent else str(alert["alert_id"]),
        )
