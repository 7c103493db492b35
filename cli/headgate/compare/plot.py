"""Draws the comparison of two apps as SVG: for each lane its counts, and its differences over time.

The time axis has one bar for each distinct time of a difference, in order; beyond ``_MOST_BARS`` neighbours share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from headgate.compare.differences import LaneDifferences

_WIDTH, _LEFT, _RIGHT = 860, 150, 20  # pixels
_ROW, _BAR, _TIMELINE = 24, 14, 90
_MOST_BARS = 60
_COLOURS = {"equal": "#9aa5b1", "changed": "#e0a100", "only_a": "#2f6fde", "only_b": "#d1495b"}
_LABELS = {"equal": "equal", "changed": "changed", "only_a": "only in A", "only_b": "only in B"}
_KINDS = ("changed", "only_a", "only_b")


def svg(first: str, second: str, lanes: Sequence[LaneDifferences]) -> str:
    """Return the picture as an SVG document."""
    parts, y = [*_legend(first, second)], 60
    largest = max((sum(_counts(lane).values()) for lane in lanes), default=0) or 1
    for lane in lanes:
        parts += _counts_bar(lane, y, largest)
        y += _ROW
    for lane in (lane for lane in lanes if lane.differs):
        y += 30
        parts += _timeline(lane, y)
        y += _TIMELINE + 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 20}" '
        f'viewBox="0 0 {_WIDTH} {y + 20}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y + 20}" fill="white"/>', *parts, "</svg>\n"])


def _counts(lane: LaneDifferences) -> dict[str, int]:
    return {
        "equal": lane.equal,
        "changed": len(lane.changed),
        "only_a": len(lane.only_a),
        "only_b": len(lane.only_b),
    }


def _legend(first: str, second: str) -> Iterator[str]:
    yield _text(10, 20, f"A: {first}    B: {second}", weight="bold")
    for n, (kind, label) in enumerate(_LABELS.items()):
        x = _LEFT + 110 * n
        yield _rect(x, 32, 12, 12, _COLOURS[kind])
        yield _text(x + 18, 42, label)


def _counts_bar(lane: LaneDifferences, y: int, largest: int) -> Iterator[str]:
    yield _text(10, y + _BAR - 2, lane.lane)
    x = float(_LEFT)
    for kind, count in _counts(lane).items():
        width = count * (_WIDTH - _LEFT - _RIGHT - 60) / largest
        if count:
            yield _rect(x, y, max(width, 1.0), _BAR, _COLOURS[kind], f"{lane.lane}: {count} {_LABELS[kind]}")
        x += width
    yield _text(x + 6, y + _BAR - 2, f"{sum(_counts(lane).values()):,}")


def _timeline(lane: LaneDifferences, y: int) -> Iterator[str]:
    by_time: dict[str, Counter[str]] = {}
    for kind, time in sorted(lane.times(), key=lambda one: one[1]):
        by_time.setdefault(time, Counter())[kind] += 1
    bars = _merged([*by_time.items()])
    top = max(sum(counts.values()) for _, counts in bars)
    step = (_WIDTH - _LEFT - _RIGHT) / len(bars)
    yield _text(10, y - 8, f"{lane.lane}: differences by time, at most {top} in a bar", weight="bold")
    for n, (time, counts) in enumerate(bars):
        bottom = float(y + _TIMELINE)
        for kind in _KINDS:
            height = counts[kind] * _TIMELINE / top
            bottom -= height
            if counts[kind]:
                title = f"{time}: {counts[kind]} {_LABELS[kind]}"
                yield _rect(_LEFT + n * step, bottom, max(step - 2, 1.0), height, _COLOURS[kind], title)
    yield _text(_LEFT, y + _TIMELINE + 14, bars[0][0])
    yield _text(_WIDTH - _RIGHT, y + _TIMELINE + 14, bars[-1][0], anchor="end")


def _merged(bars: Sequence[tuple[str, Counter[str]]]) -> list[tuple[str, Counter[str]]]:
    """Return at most ``_MOST_BARS`` bars, each with the time of its first."""
    size = -(-len(bars) // _MOST_BARS)
    groups = [bars[n : n + size] for n in range(0, len(bars), size)]
    return [(group[0][0], sum((counts for _, counts in group), Counter[str]())) for group in groups]


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">{inner}</rect>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
