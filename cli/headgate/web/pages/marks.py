"""Texts and figures prepared for templates: lines of YAML with their mistakes, differences, bars. Pure functions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.web.problems import ProblemPlace

_ENTRY = re.compile(r"(\s*(?:- )*)([A-Za-z_][\w.]*)(:)(\s.*|)$")
_VERSION = re.compile(r"^version:[ \t]*\d+[ \t]*$", re.MULTILINE)
BAR_WIDTH, BAR_GAP, BARS_HEIGHT = 8, 2, 48


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of YAML: the part before its name, the name, the rest; and the mistakes in it."""

    number: int
    lead: str
    name: str
    rest: str
    problems: tuple[ProblemPlace, ...] = ()


def yaml_lines(text: str, problems: Sequence[ProblemPlace] = ()) -> list[TextLine]:
    """Return the lines of a YAML text."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        own = tuple(one for one in problems if one.line == number)
        entry = _ENTRY.match(line)
        lead, name, rest = (entry[1], entry[2], entry[3] + entry[4]) if entry else ("", "", line)
        lines.append(TextLine(number, lead, name, rest, own))
    return lines


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference. ``kind``: added, removed, same or place."""

    kind: str
    text: str


_KINDS = {"+": "added", "-": "removed", "@": "place"}


def diff_lines(old: str, new: str) -> list[DiffLine]:
    """Return the differences between two texts, with three lines around each."""
    lines = [*difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)][2:]
    return [DiffLine(_KINDS.get(line[:1], "same"), line if line[:1] == "@" else line[1:]) for line in lines]


def next_version(text: str, version: int) -> str:
    """Return the text of a rule with another version number."""
    return _VERSION.sub(f"version: {version}", text, count=1)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart, in its coordinates; ``title``: its text."""

    x: int
    y: int
    height: int
    title: str


def minute_bars(counts: Sequence[int]) -> list[Bar]:
    """Return a bar for each minute, the last one now."""
    most = max([*counts, 1])
    bars = []
    for number, count in enumerate(counts):
        height = round(count / most * BARS_HEIGHT) if count else 0
        height = max(height, 2) if count else 0
        ago = len(counts) - 1 - number
        when = "this minute" if ago == 0 else f"{ago} min ago"
        bars.append(Bar(number * (BAR_WIDTH + BAR_GAP), BARS_HEIGHT - height, height, f"{count:,} alerts {when}"))
    return bars


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, in percent."""

    name: str
    count: int
    percent: int


def shares(counts: Sequence[tuple[str, int]]) -> list[Share]:
    """Return each count with its share of the largest."""
    most = max([count for _, count in counts] or [1])
    return [Share(name, count, round(count / max(most, 1) * 100)) for name, count in counts]
