"""Plots as geometry: what the templates draw as SVG. Pure functions. A plot is ``WIDTH`` wide and ``HEIGHT`` high; the
page stretches it, so texts stand beside it as HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from headgate.time_arguments import show_minute, show_span, show_time
from headgate.web.state.comparison import split_time
from headgate.web.state.values import ComparisonValue, TimelineEntry, UpgradeValue

WIDTH, HEIGHT = 1000, 120
GANTT_HEIGHT = 16
_THINNEST = 2.0  # a phase of no length is seen too
_MUCH_LONGER = 6
_GAP = 0.12  # between two bars, as a part of a bar's place
_LANES = {"alert": 30, "event": 90}
_AGGREGATE = re.compile(r"^\w+\((\w+)\)$")


@dataclass(frozen=True, slots=True)
class PlotBar:
    """A part of a bar. ``kind``: its colour; ``title``: its text."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars with the texts of both axes. ``marks``: texts below, from left to right."""

    bars: Sequence[PlotBar]
    top: str
    marks: Sequence[str]


def comparison_plot(found: ComparisonValue) -> Plot:
    """Return the alerts of both versions over time: those of both below, then only new, then only live."""
    counts = [(one.both, one.only_new, one.only_live) for one in found.buckets]
    most = max((sum(one) for one in counts), default=0) or 1
    place = WIDTH / max(1, len(counts))
    bars = []
    for number, (bucket, own) in enumerate(zip(found.buckets, counts, strict=True)):
        y = float(HEIGHT)
        for kind, words, count in zip(("both", "new", "live"), ("both", "only new", "only live"), own, strict=True):
            height = count / most * HEIGHT
            y -= height
            if count:
                title = f"{show_minute(bucket.start_ms)} UTC: {count:,} {words}"
                x, width = number * place + place * _GAP / 2, place * (1 - _GAP)
                bars.append(PlotBar(kind, round(x, 2), round(y, 2), round(width, 2), round(height, 2), title))
    times = [one.start_ms for one in found.buckets]
    return Plot(bars, f"{most:,}", _marks(times[0], times[-1] + found.bucket_ms) if times else ())


def outcome_plot(times: Sequence[tuple[int, str]], tones: Mapping[str, str]) -> Plot:
    """Return the number of decisions over time by outcome, the strongest on top. ``times``: time and outcome of each;
    ``tones``: the colour of each outcome, the strongest first."""
    length, start, count = split_time([ms for ms, _ in times])
    counts = Counter(((ms - start) // length, outcome) for ms, outcome in times)
    sums = Counter((ms - start) // length for ms, _ in times)
    most, place = max(sums.values(), default=1), WIDTH / max(1, count)
    names = [*tones, *sorted({outcome for _, outcome in times} - tones.keys())]
    bars = []
    for number in range(count):
        y, when = float(HEIGHT), show_minute(start + number * length)
        for name in reversed(names):
            if own := counts[number, name]:
                height = own / most * HEIGHT
                y -= height
                x, width = number * place + place * _GAP / 2, place * (1 - _GAP)
                box = (round(x, 2), round(y, 2), round(width, 2), round(height, 2))
                bars.append(PlotBar(tones.get(name, "event"), *box, f"{when} UTC: {own:,} {name}"))
    return Plot(bars, f"{most:,}", _marks(start, start + count * length) if count else ())


@dataclass(frozen=True, slots=True)
class ScoreTrack:
    """The points of rules beside each other, and the bands. ``marks``: where bands begin, with their names."""

    bars: Sequence[PlotBar]
    marks: Sequence[PlotBar]


def score_plot(points: Sequence[tuple[str, str, int]], bands: Mapping[str, int]) -> ScoreTrack:
    """Return the points of rules along one line with the bands that they reach. ``points``: the colour, the text and
    the points of each; ``bands``: by text, where it begins."""
    end = max([sum(number for *_, number in points), *(round(least * 1.15) for least in bands.values()), 1])
    bars, at = [], 0
    for kind, text, number in points:
        if number:
            x, width = at / end * WIDTH, number / end * WIDTH
            bars.append(PlotBar(kind, round(x, 2), 0, round(width, 2), GANTT_HEIGHT, text))
        at += number
    marks = [PlotBar("band", round(least / end * WIDTH, 2), 0, 0, GANTT_HEIGHT, text) for text, least in bands.items()]
    return ScoreTrack(bars, marks)


def _signal_plot(score: Mapping[str, JsonValue]) -> ScoreTrack:
    """Return the points of the signals of a score rule beside each other, and its limit."""
    signals = (_mapping(one) for one in _sequence(score["signals"]))
    own = [(one["rule"], int(_number(one["points"]))) for one in signals if one["counts"]]
    limit = int(_number(score["limit"]))
    points = [("warn", f"{name}: {number:,} points", number) for name, number in own]
    return score_plot(points, {f"the limit, {limit:,} points": limit})


@dataclass(frozen=True, slots=True)
class ExplanationPlots:
    """The plots of an explanation: the events of its newest window, and the points of each score."""

    window: Plot | None
    scores: Sequence[ScoreTrack]


def explanation_plots(why: JsonValue) -> ExplanationPlots:
    """Return the plots of an explanation."""
    return ExplanationPlots(window_plot(why), [_signal_plot(one) for one in _scores(why)])


def signal_ids(why: JsonValue) -> list[str]:
    """Return the ids of the alerts that an explanation of a score names."""
    signals = [_mapping(signal) for score in _scores(why) for signal in _sequence(score["signals"])]
    return [str(one["alert_id"]) for one in signals if one["alert_id"] is not None]


def _scores(why: JsonValue) -> Sequence[Mapping[str, JsonValue]]:
    return [_mapping(one) for one in _sequence(_mapping(why).get("scores"))]


def timeline_plot(entries: Sequence[TimelineEntry]) -> Plot:
    """Return events and alerts of a key along one axis of time, alerts above."""
    if not entries:
        return Plot((), "", ())
    first, last = min(one.time_ms for one in entries), max(one.time_ms for one in entries)
    span = max(1, last - first)
    bars = []
    for one in entries:
        x = (one.time_ms - first) / span * (WIDTH - 6)
        kind = one.severity or one.what
        text = f"{show_time(one.time_ms)} UTC {one.title}: {one.text}"[:200]
        bars.append(PlotBar(kind, round(x, 2), _LANES[one.what] - 18, 6 if one.what == "alert" else 3, 36, text))
    return Plot(bars, "", _marks(first, last))


def window_plot(why: JsonValue) -> Plot | None:
    """Return the events of the newest window of an explanation as bars, as high as the value that it adds up; None if
    it has no window or no events."""
    if not isinstance(why, dict) or not why.get("windows") or not why.get("events"):
        return None
    windows, events = why["windows"], why["events"]
    assert isinstance(windows, list)
    assert isinstance(events, list)
    window = windows[-1]
    assert isinstance(window, dict)
    start, end = _number(window["start_ms"]), _number(window["end_ms"])
    column = next((m[1] for text in _mapping(window["values"]) if (m := _AGGREGATE.match(text))), None)
    inside = [
        (_number(event["event_time_ms"]), _mapping(event["values"]))
        for event in events
        if isinstance(event, dict) and start <= _number(event["event_time_ms"]) <= end
    ]
    if not inside:
        return None
    sizes = [_size(values, column) for _, values in inside]
    numeric = all(size is not None for size in sizes)
    most = max((size or 0.0 for size in sizes), default=0.0) if numeric else 1.0
    bars = []
    for (time_ms, values), size in zip(inside, sizes, strict=True):
        height = max(4.0, (size or 0.0) / (most or 1.0) * HEIGHT) if numeric else HEIGHT / 2
        x = (time_ms - start) / max(1.0, end - start) * (WIDTH - 8)
        title = f"{show_time(int(time_ms))} UTC" + (f": {column} {values[column]}" if numeric and column else "")
        bars.append(PlotBar("both", round(x, 2), round(HEIGHT - height, 2), 8, round(height, 2), title))
    top = f"{column} {most:g}" if numeric and column else ""
    return Plot(bars, top, _marks(int(start), int(end)))


@dataclass(frozen=True, slots=True)
class Gantt:
    """Upgrades along one axis, each from its own beginning. ``rows``: the bars of each, in the order of the upgrades;
    ``long``: the rows that end beyond the axis; ``marks``: texts below, from left to right."""

    rows: Sequence[Sequence[PlotBar]]
    long: Sequence[bool]
    marks: Sequence[str]


def upgrade_plot(upgrades: Sequence[UpgradeValue], now_ms: int) -> Gantt:
    """Return the phases of upgrades as bars. One that lasts much longer than the others ends beyond the axis: otherwise
    nothing could be seen of these."""
    lengths = [(now_ms if one.ended_ms is None else one.ended_ms) - one.started_ms for one in upgrades]
    longest, *others = sorted(lengths, reverse=True) or [0]
    span = max(1_000, longest if not others or longest <= _MUCH_LONGER * others[0] else round(others[0] * 1.25))
    rows = [_phase_bars(one, span, now_ms) for one in upgrades]
    marks = [show_span(ms) for ms in (0, span // 2, span)]
    return Gantt(rows, [length > span for length in lengths], marks)


def _phase_bars(upgrade: UpgradeValue, span: int, now_ms: int) -> list[PlotBar]:
    bars = []
    for one in upgrade.phases:
        end_ms = now_ms if one.end_ms is None else one.end_ms
        start, end = (min(WIDTH, (ms - upgrade.started_ms) / span * WIDTH) for ms in (one.start_ms, end_ms))
        title = f"{one.name}, {show_span(end_ms - one.start_ms)}: {one.meaning}"
        if start < WIDTH:
            bars.append(
                PlotBar(one.part, round(start, 2), 0, round(max(_THINNEST, end - start), 2), GANTT_HEIGHT, title)
            )
    return bars


def _marks(first_ms: int, last_ms: int) -> Sequence[str]:
    middle = (first_ms + last_ms) // 2
    same_day = show_minute(first_ms)[:10] == show_minute(last_ms)[:10]
    texts = [show_time(ms)[:19] for ms in (first_ms, middle, last_ms)]
    return [texts[0], *(text[11:] if same_day else text for text in texts[1:])]


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _sequence(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else []


def _size(values: Mapping[str, JsonValue], column: str | None) -> float | None:
    try:
        return float(str(values[column])) if column is not None else None
    except (KeyError, ValueError):
        return None
