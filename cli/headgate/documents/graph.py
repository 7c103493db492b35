"""Draws the settings document of an etl app as SVG: inputs, stages, look-ups and routes, from left to right.

The picture needs nothing beside it: its colours are those of the reader's theme, light or dark, its fonts those of the
system. What is cut off is in the title of its box, which a browser shows under the pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument, InputDocument, RouteDocument

_CHAR, _LINE, _PAD = 7.3, 18, 10  # pixels of a character, of a line, and inside a box
_MOST_CHARS, _MOST_LINES = 34, 14
_GAP_X, _GAP_Y, _MARGIN = 56, 22, 24
_HEAD = 46
_STYLE = """
  svg { color-scheme: light dark; --page: #ffffff; --text: #1b2430; --soft: #55606e; --line: #7b8794;
        --source: #e6f0fb; --step: #f3f4f6; --outside: #fff4dc; --route: #e5f6ea; --bad: #fdeaea; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #14181f; --text: #e8ecf1; --soft: #aab4c0; --line: #8592a1;
          --source: #1d3350; --step: #262c36; --outside: #46390f; --route: #17402a; --bad: #4d2327; } }
  text { fill: var(--text); font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  .title { font-weight: bold; } .soft { fill: var(--soft); }
  .head { font: bold 16px system-ui, "DejaVu Sans", sans-serif; }
  .page { fill: var(--page); } rect.box { stroke: var(--line); }
  .source { fill: var(--source); } .step { fill: var(--step); } .outside { fill: var(--outside); }
  .route { fill: var(--route); } .bad { fill: var(--bad); }
  path { fill: none; stroke: var(--line); stroke-width: 1.5; } path.aside { stroke-dasharray: 4 4; }
  #arrow path { fill: var(--line); stroke: none; }
"""


@dataclass
class _Box:
    """A box: its first line is the title. ``kind``: the class of its colour."""

    kind: str
    title: str
    lines: Sequence[str] = ()
    x: float = 0
    y: float = 0

    @property
    def shown(self) -> list[str]:
        """The lines below the title that are shown."""
        if len(self.lines) <= _MOST_LINES:
            return [*self.lines]
        return [*self.lines[: _MOST_LINES - 1], f"... and {len(self.lines) - _MOST_LINES + 1} more"]

    @property
    def width(self) -> float:
        """Its width in pixels."""
        longest = max(len(_cut(text)) for text in (self.title, *self.shown))
        return longest * _CHAR + 2 * _PAD

    @property
    def height(self) -> float:
        """Its height in pixels."""
        return (1 + len(self.shown)) * _LINE + 2 * _PAD - 4

    def parts(self) -> Iterator[str]:
        """Yield its elements."""
        whole = escape("\n".join([self.title, *self.lines]))
        yield f"<g><title>{whole}</title>"
        yield (
            f'<rect class="box {self.kind}" x="{self.x:.0f}" y="{self.y:.0f}" width="{self.width:.0f}" '
            f'height="{self.height:.0f}" rx="6"/>'
        )
        for number, text in enumerate([self.title, *self.shown]):
            style = "title" if number == 0 else "soft" if text.startswith("... ") else ""
            y = self.y + _PAD + 8 + number * _LINE
            yield f'<text class="{style}" x="{self.x + _PAD:.0f}" y="{y:.0f}">{escape(_cut(text))}</text>'
        yield "</g>"


@dataclass
class _Drawing:
    """Columns of boxes and the arrows between them. ``asides``: arrows from a store outside the app."""

    columns: list[list[_Box]] = field(default_factory=list)
    arrows: list[tuple[_Box, _Box]] = field(default_factory=list)
    asides: list[tuple[_Box, _Box]] = field(default_factory=list)

    def place(self) -> tuple[float, float]:
        """Give all boxes their places; return the size of the picture."""
        heights = [sum(box.height + _GAP_Y for box in column) - _GAP_Y for column in self.columns]
        tallest, x = max(heights), float(_MARGIN)
        for column, height in zip(self.columns, heights, strict=True):
            y = _HEAD + _MARGIN + (tallest - height) / 2
            for box in column:
                box.x, box.y = x, y
                y += box.height + _GAP_Y
            x += max(box.width for box in column) + _GAP_X
        return x - _GAP_X + _MARGIN, tallest + _HEAD + 2 * _MARGIN

    def svg(self, title: str) -> str:
        """Return the picture."""
        width, height = self.place()
        width = max(width, len(title) * 10 + 2 * _MARGIN)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0 L8 4 L0 8 Z"/></marker></defs>',
            f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
            f'<text class="head" x="{_MARGIN}" y="34">{escape(title)}</text>',
        ]
        parts += [_arrow(a, b, "") for a, b in self.arrows] + [_arrow(a, b, "aside") for a, b in self.asides]
        parts += [part for column in self.columns for box in column for part in box.parts()]
        return "\n".join([*parts, "</svg>", ""])


def draw_document(document: EtlDocument) -> str:
    """Return the picture of a document."""
    drawing = _Drawing()
    topics = [_Box("source", f"topic {each.topic}", _about_input(each)) for each in document.inputs]
    maps = [_Box("step", "map", _expressions(each.map)) for each in document.inputs]
    drawing.columns += [topics, maps]
    drawing.arrows += zip(topics, maps, strict=True)
    ends = maps
    for step, outside in _steps(document):
        drawing.columns.append([step, *outside])
        drawing.arrows += [(end, step) for end in ends]
        drawing.asides += [(store, step) for store in outside]
        ends = [step]
    routes = [_Box("route", f"{_target(document, each)}", _about_route(document, each)) for each in document.routes]
    letters = _Box("bad", f"topic {document.app}.deadletters", _about_letters(document))
    drawing.columns.append([*routes, letters])
    drawing.arrows += [(end, route) for end in ends for route in routes]
    drawing.asides += [(end, letters) for end in ends]
    return drawing.svg(f"{document.app}, version {document.version}")


def _steps(document: EtlDocument) -> Iterator[tuple[_Box, Sequence[_Box]]]:
    """Yield the steps after the inputs in order, each with the stores that it reads."""
    for lookup in document.all_lookups.values():
        store = _Box("outside", "store", [lookup.store])
        yield _Box("step", "look-up", [f"by {lookup.key}", *(f"adds {name}" for name in lookup.adds)]), [store]
    if document.deduplicate is not None:
        kept = document.deduplicate
        lines = [f"by {', '.join(document.id)}", f"within {_duration(kept.horizon_ms)}"]
        lines += [f"duplicates to {document.app}.{kept.duplicates_to}"] if kept.duplicates_to else []
        yield _Box("step", "deduplicate", lines), []
    if document.derive or document.lists:
        lists = [
            _Box("outside", f"list {name}", [f"of {each.of}" + (f" to {each.value}" if each.value else "")])
            for name, each in document.lists.items()
        ]
        yield _Box("step", "derive", _expressions(document.derive)), lists
    if document.rules:
        yield _Box("step", "rules", _expressions(document.rules, ": ")), []
    if document.mask:
        yield _Box("step", "mask", [f"{name}: {each.how}" for name, each in document.mask.items()]), []


def _about_input(each: InputDocument) -> list[str]:
    return [f"stream {each.schema_file.stem}", f"format {each.format.kind}"]


def _about_route(document: EtlDocument, route: RouteDocument) -> list[str]:
    condition = "all rows" if route.when is None else f"when {route.when}"
    lines = [f"route {route.name}", condition]
    if document.otherwise == route.name:
        lines.append("and rows of no other route")
    lines.append(f"{len(route.columns or document.model)} columns")
    return lines + ([f"key {', '.join(route.key)}"] if route.key else [])


def _about_letters(document: EtlDocument) -> list[str]:
    lines = ["records that cannot be read", "values that cannot be computed"]
    lines += ["rows that break a rule"] if document.rules else []
    if document.lookup is not None and document.lookup.failed == "dead_letter":
        lines.append("look-ups without a response")
    return lines + (["rows of no route"] if document.otherwise == "dead_letter" else [])


def _target(document: EtlDocument, route: RouteDocument) -> str:
    target = route.to.value
    if target == "kafka":
        return f"topic {document.app}.{route.name}"
    sink = getattr(document, target, None)
    for entry, word in (("tables", "table"), ("indexes", "alias")):
        found = getattr(sink, entry, {}).get(route.name)
        name = getattr(found, word, None)
        if name:
            return f"{target} {name}"
    return target


def _expressions(texts: dict[str, str], between: str = " = ") -> list[str]:
    return [f"{name}{between}{' '.join(text.split())}" for name, text in texts.items()]


def _duration(ms: int) -> str:
    for size, word in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms % size == 0:
            return f"{ms // size} {word}"
    return f"{ms} ms"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def _arrow(a: _Box, b: _Box, style: str) -> str:
    """Return an arrow: from the right side to the left one, or within a column to the box above."""
    if a.x == b.x:
        x, top = a.x + min(a.width, b.width) / 2, b.y + b.height
        way = f"M{x:.0f} {a.y:.0f} L{x:.0f} {top:.0f}"
    else:
        x1, y1, x2, y2 = a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2
        middle = (x1 + x2) / 2
        way = f"M{x1:.0f} {y1:.0f} C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return f'<path class="{style}" d="{way}" marker-end="url(#arrow)"/>'
