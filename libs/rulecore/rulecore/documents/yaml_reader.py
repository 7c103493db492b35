"""Reads YAML without its dangerous or surprising features, and keeps the line and column of every entry.

No tags, no anchors and aliases (a kilobyte of them expands to gigabytes), no duplicate keys, YAML 1.2's scalars (``on``
and ``no`` are text, not booleans; dates stay text), limits on bytes, depth and entries. Promises: no text makes
``read_yaml`` raise; text that it does not accept is a ``Problem`` with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import yaml

from rulecore.printable import in_one_line, printable
from streamcore.yaml_loader import SAFE_LOADER

#: A value of JSON.
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
PathKey = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: Final[Mapping[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Limits on the input: bytes, levels and entries of a file, and files of a directory."""

    file_bytes: int = 1 << 20
    depth: int = 12
    entries: int = 100_000
    files: int = 20_000


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """A position in a file. Lines and columns are counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A fault that the author of a file has to correct.

    ``path``: the entry, such as ``then.severity``. ``rule``: the id of the rule. ``detail``: further lines, such as an
    underlined expression.
    """

    file: str
    place: SourceLocation
    path: str
    message: str
    rule: str | None = None
    detail: str = ""

    def render(self) -> str:
        """Return ``file:line:column: path: message``, and the detail below it."""
        where = f"{self.file}:{self.place.line}:{self.place.column}"
        head = in_one_line(f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}")
        return f"{head}\n{printable(self.detail)}" if self.detail else head


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML document: its value, the place of every entry in it, and which entries are blocks (``|``, ``>``).

    ``places``: where the values begin; ``names``: where the names of the entries of mappings do.
    """

    file: str
    value: Json
    places: Mapping[PathKey, SourceLocation]
    blocks: frozenset[PathKey] = frozenset()
    names: Mapping[PathKey, SourceLocation] = field(default_factory=dict)

    def place(self, path: Sequence[str | int]) -> SourceLocation:
        """Return the location of the entry, or of the deepest entry around it that exists."""
        return self.places[self.known_prefix(path)]

    def name_place(self, path: Sequence[str | int]) -> SourceLocation:
        """Return the location of the entry's name; for an item of a list, and for the document, that of its value."""
        known = self.known_prefix(path)
        return self.names.get(known, self.places[known])

    def expression_place(self, path: Sequence[str | int], line: int, column: int) -> SourceLocation:
        """Return the place in the file of a place in an expression: exact on one line, else the line or the entry."""
        start = self.place(path)
        if self.known_prefix(path) in self.blocks:
            return SourceLocation(start.line + line, 1)
        return SourceLocation(start.line, start.column + column - 1) if line == 1 else start

    def known_prefix(self, path: Sequence[str | int]) -> PathKey:
        """Return ``path`` without the parts that the document does not have, such as the names that pydantic adds."""
        found: PathKey = ()
        for part in path:
            if (*found, part) in self.places:
                found = (*found, part)
        return found


class _RejectedError(Exception):
    """YAML that is not accepted. ``read_yaml`` turns it into a ``Problem``."""

    def __init__(self, message: str, place: SourceLocation) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


class _Mark(Protocol):
    """A position as libyaml reports it; both numbers begin with 0."""

    line: int
    column: int


def _location(mark: _Mark | None) -> SourceLocation:
    return SourceLocation(1, 1) if mark is None else SourceLocation(mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Reader:
    """Builds values from the events of the YAML parser. ``LoadLimits.depth`` bounds the recursion.

    ``repeated``: takes entries that are written twice, of which the last one counts; None: such a document is rejected.
    """

    events: Iterator[yaml.Event]
    limits: LoadLimits
    repeated: list[tuple[PathKey, SourceLocation]] | None = None
    entries: int = 0
    places: dict[PathKey, SourceLocation] = field(default_factory=dict)
    blocks: set[PathKey] = field(default_factory=set)
    names: dict[PathKey, SourceLocation] = field(default_factory=dict)

    def read_document(self, file: str) -> YamlDocument:
        self.places, self.blocks, self.names = {}, set(), {}
        value = self.read_value(next(self.events), ())
        return YamlDocument(file, value, self.places, frozenset(self.blocks), self.names)

    def read_value(self, event: yaml.Event, path: PathKey) -> Json:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise _RejectedError(f"more than {self.limits.entries} entries", _location(event.start_mark))
        if len(path) > self.limits.depth:
            raise _RejectedError(f"nested deeper than {self.limits.depth}", _location(event.start_mark))
        self.places[path] = _location(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _RejectedError("anchors and aliases are not read; write the value out", _location(event.start_mark))
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            raise _RejectedError(f"tags ({tag}) are not read; remove it", _location(event.start_mark))
        match event:
            case yaml.ScalarEvent():
                return self.read_scalar(event, path)
            case yaml.SequenceStartEvent():
                return self.read_sequence(path)
            case yaml.MappingStartEvent():
                return self.read_mapping(path)
        raise _RejectedError("unexpected YAML", _location(event.start_mark))

    def read_scalar(self, event: yaml.ScalarEvent, path: PathKey) -> Json:
        if event.style in ("|", ">"):
            self.blocks.add(path)
        elif event.style in ("'", '"'):
            start = self.places[path]
            self.places[path] = SourceLocation(start.line, start.column + 1)  # behind the quote
        return _parse_scalar(event)

    def read_sequence(self, path: PathKey) -> list[Json]:
        items: list[Json] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.read_value(event, (*path, len(items))))
        return items

    def read_mapping(self, path: PathKey) -> dict[str, Json]:
        entries: dict[str, Json] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None:
                raise _RejectedError("the name of an entry must be plain text", _location(event.start_mark))
            if event.value in entries:
                if self.repeated is None:
                    raise _RejectedError(f"{event.value!r} is written twice", _location(event.start_mark))
                self.repeated.append(((*path, event.value), _location(event.start_mark)))
            self.names[(*path, event.value)] = _location(event.start_mark)
            entries[event.value] = self.read_value(next(self.events), (*path, event.value))
        return entries


def _parse_scalar(event: yaml.ScalarEvent) -> Json:
    """Return a scalar's value by the core schema of YAML 1.2. Very long and infinite numbers stay text."""
    text = str(event.value)
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) and len(text) <= 20:
        return int(text)
    if _FLOAT.match(text) and len(text) <= 40 and abs(number := float(text)) < float("inf"):
        return number
    return text


def read_yaml(
    text: str,
    file: str,
    limits: LoadLimits | None = None,
    repeated: list[tuple[PathKey, SourceLocation]] | None = None,
) -> tuple[list[YamlDocument], list[Problem]]:
    """Return the documents of a text up to its first fault, and the fault. ``file``: the name in problems.

    ``repeated``: takes path and place of entries that are written twice; None: these are faults.
    """
    limits = limits or LoadLimits()
    if len(text.encode("utf-8", "surrogatepass")) > limits.file_bytes:
        return [], [Problem(file, SourceLocation(1, 1), "", f"more than {limits.file_bytes} bytes")]
    documents: list[YamlDocument] = []
    try:
        reader = _Reader(iter(yaml.parse(text, Loader=SAFE_LOADER)), limits, repeated)
        for event in reader.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents.append(reader.read_document(file))
    except _RejectedError as rejected:
        return documents, [Problem(file, rejected.place, "", rejected.message)]
    except yaml.MarkedYAMLError as error:
        place = _location(error.problem_mark or error.context_mark)
        found = error.problem or error.context or ""
        message = f"not YAML: {found}{_advice(text, place, found)}"
        return documents, [Problem(file, place, "", message)]
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        return documents, [Problem(file, SourceLocation(1, 1), "", f"not YAML: {one_line(error)}")]
    return documents, []


#: A value that begins with a quote and goes on behind the closing one, as in ``where: 'admin' in roles``.
_HALF_QUOTED = re.compile(r"""[^'"]*:\s+(['"])[^'"]*\1\s+[^\s,}#]""")


#: A call with several arguments inside of brackets: YAML reads the comma as the end of the entry.
_CALL_IN_BRACKETS = re.compile(r"[{\[].*[a-z_]\([^()\"]*,")
#: A line that is indented by a tab.
_TABBED = re.compile(r" *\t")


def _advice(text: str, place: SourceLocation, found: str) -> str:
    """Return what to do about a tab, a value that only begins in quotes, a comma inside of brackets, or an indentation;
    else nothing. ``found``: what the parser says."""
    line = "".join(text.split("\n")[place.line - 1 : place.line])
    if _TABBED.match(line) or line[place.column - 1 : place.column] == "\t":
        return "; YAML is indented by spaces and takes no tab"
    if _HALF_QUOTED.match(line):
        return "; a value that begins with a quote is written on a line of its own, after >-"
    if "expected ',' or" in found and _CALL_IN_BRACKETS.search(line):
        return "; inside of { } or [ ] an expression with a comma is in quotes, such as {a: \"coalesce(b, 'c')\"}"
    if "expected" in found or "mapping values" in found:
        return "; look at the indentation: the entries of a list or a mapping begin in one column"
    return ""


def dotted_path(path: Sequence[str | int]) -> str:
    """Return ``("tests", 0, "events")`` as ``tests.0.events``."""
    return ".".join(map(str, path))


def parse_path(text: str) -> PathKey:
    """Return ``tests.0.events`` as ``("tests", 0, "events")``."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split("."))


def one_line(error: Exception) -> str:
    """Return the message of an error without line breaks, cut to 200 characters."""
    return in_one_line(str(error))[:200]
