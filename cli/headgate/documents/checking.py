"""Finds all mistakes in a settings document at once, each with its line and column.

The form is checked by the service's own model. What is wrong is left out, or replaced by something that is right, and
the rest is checked again, until the names, expressions, routes and tables of the rest can be checked too. So a mistake
hides no other one, and a consequence of a mistake is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a document is made of anything

import yaml
from pydantic import BaseModel, ValidationError

from headgate.documents.stream_faults import find_stream_faults
from rulecore.documents.loading import simplify_message
from rulecore.documents.yaml_files import read_text
from rulecore.documents.yaml_reader import (
    LoadLimits,
    PathKey,
    Problem,
    SourceLocation,
    YamlDocument,
    dotted_path,
    one_line,
    read_yaml,
)
from streamcore.app import Source
from streamcore.arguments import check_app_name
from streamcore.errors import ConfigError, StreamError
from streamcore.service.config.documents import StreamDocument, with_files_of
from streamcore.settings import unknown_entry
from streamcore.yaml_loader import SAFE_LOADER

if TYPE_CHECKING:
    from streamcore.service.definition import ServiceDefinition

_LIMITS = LoadLimits(depth=64)
_ROUNDS = 60
#: Mappings whose entries have names that the author chose, and that expressions use.
_DECLARING = frozenset({"model", "map", "derive", "lists"})
_START = SourceLocation(1, 1)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_QUOTED = re.compile(r"'([^']*)'")
_ENTRY = re.compile(r"([a-z_][a-z0-9_]*(?:\.[a-z0-9_-]+)*)(?:: | (?=\()| needs )")
#: Stand-ins for entries that are missing, so that the rest can be checked; then a text, then a number.
_STAND_INS: Mapping[str, object] = {
    "kafka": {"bootstrap": "127.0.0.1:1"},
    "bootstrap": "127.0.0.1:1",
    "routes": [{"name": "rows"}],
}


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """``problems``: all mistakes, those of stream files included; ``warnings``: what is no mistake in the document, but
    stops it on this machine. ``streams``: the stream files that were read."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    streams: tuple[Path, ...] = ()


def check_document(service: ServiceDefinition[Any], file: Path) -> CheckedDocument:
    """Check a settings document and the stream files that it names. ``ConfigError`` if the file cannot be read."""
    opened = _open(file)
    if isinstance(opened, Problem):
        return CheckedDocument((opened,))
    check = _Check(service, opened)
    check.find()
    return CheckedDocument(tuple(sorted(dict.fromkeys(check.problems))), tuple(check.warnings), tuple(check.streams))


@dataclass(frozen=True)
class _Opened:
    """A YAML file: its value as a service reads it, and the places of its entries."""

    file: Path
    value: dict[str, Any]
    places: YamlDocument
    repeated: Sequence[tuple[PathKey, SourceLocation]]

    def problem(self, path: PathKey, message: str, place: SourceLocation | None = None, detail: str = "") -> Problem:
        """Return a problem of an entry."""
        path = self._named_item(path, message)
        known = self.places.known_prefix(path)
        is_scalar = not isinstance(_value_at(self.value, known), dict | list)
        is_value = is_scalar and known == path and not message.startswith("unknown entry")
        found = place or (self.places.place(path) if is_value else self.places.name_place(path))
        return Problem(str(self.file), found, dotted_path(path), message, None, detail)

    def _named_item(self, path: PathKey, message: str) -> PathKey:
        """Return the path of the item of a list that a problem is about: the path or the message names it."""
        known = self.places.known_prefix(path)
        value, quoted = _value_at(self.value, known), _QUOTED.match(message)
        name = path[-1] if len(path) == len(known) + 1 else quoted[1] if quoted is not None and path == known else None
        return (*known, value.index(name)) if isinstance(value, list) and name in value else path


def _open(file: Path) -> _Opened | Problem:
    try:
        text = read_text(file, _LIMITS)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    repeated: list[tuple[PathKey, SourceLocation]] = []
    documents, problems = read_yaml(text, str(file), _LIMITS, repeated)
    try:
        value = yaml.load(text, Loader=SAFE_LOADER)  # noqa: S506 - a safe one; the service reads the file so, too
    except yaml.YAMLError as error:
        return problems[0] if problems else Problem(str(file), _START, "", f"not YAML: {one_line(error)}")
    if not isinstance(value, dict):
        return Problem(str(file), _START, "", "must be a mapping of names to values")
    if problems or not documents:  # anchors and tags: a service reads them, and has no places for them
        return _Opened(file, value, YamlDocument(str(file), None, {(): _START}), repeated)
    return _Opened(file, value, documents[0], repeated)


@dataclass
class _Check:
    service: ServiceDefinition[Any]
    opened: _Opened
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    streams: list[Path] = field(default_factory=list)

    def find(self) -> None:
        """Find everything."""
        opened = self.opened
        for path, place in opened.repeated:
            self.problems.append(opened.problem(path, "is written twice; the first one is ignored", place))
        repaired = RepairedDocument({**self.service.defaults, **opened.value})
        model = self.service.form or self.service.settings
        settings = repaired.repair(model, self._add_form)
        if settings is None:
            return
        sources, unclear = self._inputs(settings, repaired)
        if self.service.find_faults is not None:
            ordered = [source for _, source in sources]
            for fault in self.service.find_faults(settings, ordered, unclear | repaired.names()):
                path = tuple(int(part) if part.isdigit() else part for part in fault.path.split("."))
                if path[-1:] == ("schema_file",) or repaired.explains(path):  # the file itself was checked
                    continue
                self._add_fault(repaired.original(path), fault.message, fault.hint, (fault.line, fault.column))
        elif all(source is not None for _, source in sources) and not unclear:
            self._build(repaired)
        self._check_machine(settings)
        if not self.problems:  # no document is called sound that the service would reject
            self._load()

    def _add_form(self, path: PathKey, message: str, hint: str) -> None:
        self.problems.append(self.opened.problem(path, f"{message}; {hint}" if hint else message))

    def _add_fault(self, path: PathKey, message: str, hint: str, at: tuple[int, int]) -> None:
        line, column = at
        shown = f"{message}; {hint}" if hint else message
        place = self.opened.places.expression_place(path, line, column) if line else None
        self.problems.append(self.opened.problem(path, shown, place))

    def _inputs(
        self, settings: BaseModel, repaired: RepairedDocument
    ) -> tuple[list[tuple[PathKey, Source | None]], set[str]]:
        """Return the source of each input, by path, and the fields whose declarations are wrong."""
        sources: list[tuple[PathKey, Source | None]] = []
        unclear: set[str] = set()
        for path, document in _stream_documents(settings, ()):
            found = repaired.original(path)
            if not _TOPIC.match(document.topic) and (*found, "topic") not in repaired.changed:
                message = "a topic's name has letters, digits, '.', '_' and '-'; patterns are not read"
                self.problems.append(self.opened.problem((*found, "topic"), message))
            schema = None if (*found, "schema_file") in repaired.changed else self._stream(found, document, unclear)
            source = None
            if schema is not None:
                try:
                    source = Source(schema, document.topic, format=document.input_format())
                except ConfigError as error:
                    self.problems.append(self.opened.problem((*found, "format"), str(error)))
                    source = Source(schema, document.topic)
            sources.append((found, source))
        return sources, unclear

    def _stream(self, path: PathKey, document: StreamDocument, unclear: set[str]) -> Any:
        named = with_files_of(self.opened.file.parent, {"schema_file": str(document.schema_file)})
        assert isinstance(named, dict), "a mapping stays one"
        file = Path(named["schema_file"])
        try:
            opened = _open(file)
        except ConfigError as error:
            message = f"{error}; the path is relative to this document"
            self.problems.append(self.opened.problem((*path, "schema_file"), message))
            return None
        if isinstance(opened, Problem):
            self.problems.append(opened)
            return None
        self.streams.append(file)
        for entry, place in opened.repeated:
            self.problems.append(opened.problem(entry, "is written twice; the first one is ignored", place))
        found = find_stream_faults(opened.value)
        self.problems += [opened.problem(entry, message) for entry, message in found.faults]
        unclear |= found.unusable
        return found.schema

    def _build(self, repaired: RepairedDocument) -> None:
        """Build the app, and leave out what it names as wrong, until it can be built."""
        for _ in range(_ROUNDS):
            document = with_files_of(self.opened.file.parent, repaired.build())
            assert isinstance(document, dict), "a mapping stays one"
            try:
                self.service.build_app(self.service.check_settings(document, ""))
            except StreamError as error:
                path, message = _name_entry(str(error), repaired.value)
                if path not in repaired.changed and (path or not self.problems):
                    self._add_form(path, message, "")
                if not path or not repaired.cut(path):
                    return
            else:
                return

    def _check_machine(self, settings: Any) -> None:
        """Warn of what is missing on this machine, and check the name of the app, which is that of its topics."""
        try:
            check_app_name(settings.app)
        except ConfigError as error:
            self.problems.append(self.opened.problem(("app",), str(error)))
        jars = getattr(settings, "jars", None)
        if jars is not None and not any(Path(jars).glob("*.jar")):
            self.warnings.append(self.opened.problem(("jars",), missing_jars(jars)))

    def _load(self) -> None:
        try:
            self.service.load_settings(self.opened.file)
        except StreamError as error:
            self.problems.append(self.opened.problem((), one_line(error)))


def missing_jars(folder: Path) -> str:
    """Return the message for a folder of the entry ``jars`` that has none."""
    return f"{folder} has no jars on this machine; leave the entry out to run here, or name what headgate jars prints"


def _stream_documents(value: object, path: PathKey) -> Iterator[tuple[PathKey, StreamDocument]]:
    """Yield the inputs in settings, with their paths, in order."""
    if isinstance(value, StreamDocument):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _stream_documents(getattr(value, name), (*path, name))
    elif isinstance(value, tuple | list):
        for number, each in enumerate(value):
            yield from _stream_documents(each, (*path, number))


@dataclass
class RepairedDocument:
    """A document without its wrong entries, and with stand-ins for those that it must have.

    ``changed``: the paths of these entries, in the document as it was written.
    """

    value: dict[str, Any]
    left_out: set[PathKey] = field(default_factory=set)
    stand_ins: dict[PathKey, list[object]] = field(default_factory=dict)

    @property
    def changed(self) -> set[PathKey]:
        """The paths of entries that are not as they were written."""
        return self.left_out | {*self.stand_ins}

    def names(self) -> set[str]:
        """Return the names of fields and lists whose entries are changed: what is said of them is a consequence."""
        return {str(path[-1]) for path in self.changed if len(path) > 1 and path[-2] in _DECLARING}

    def explains(self, path: PathKey) -> bool:
        """Whether a fault there is a consequence of a changed entry: in a stand-in, around it; of a test, a route's
        name.
        """
        if path in self.stand_ins:
            return True
        if path[:1] == ("tests",) and any(p[0] == "routes" and p[-1] == "name" for p in self.changed):
            return True
        return any(len(path) < len(changed) and changed[: len(path)] == path for changed in self.changed)

    def build(self) -> dict[str, Any]:
        """Return the repaired document."""
        built = self._build(self.value, ())
        assert isinstance(built, dict), "the whole document is never left out"
        return built

    def _build(self, value: object, path: PathKey) -> object:
        if isinstance(value, dict):
            kept = {
                name: self._build(each, (*path, str(name)))
                for name, each in value.items()
                if (*path, str(name)) not in self.left_out
            }
            extra = {p[-1]: these[0] for p, these in self.stand_ins.items() if p[:-1] == path and these}
            return {**kept, **extra}
        if isinstance(value, list):
            numbered = [(*path, n) for n in range(len(value))]
            return [self._build(value[n], at) for n, at in enumerate(numbered) if at not in self.left_out]
        return value

    def original(self, path: PathKey) -> PathKey:
        """Return the path in the document as it was written, without the names that pydantic adds."""
        found: PathKey = ()
        value: object = self.value
        for part in path:
            if isinstance(value, list) and isinstance(part, int):
                kept = [n for n in range(len(value)) if (*found, n) not in self.left_out]
                if part >= len(kept):
                    break
                found, value = (*found, kept[part]), value[kept[part]]
            elif isinstance(value, dict) and (part in value or str(part) in map(str, value)):
                value = next(each for name, each in value.items() if str(name) == str(part))
                found = (*found, str(part))
            elif (*found, str(part)) in self.stand_ins:
                return (*found, str(part))
            elif part == path[-1]:
                found = (*found, part)
        return found

    def cut(self, path: PathKey) -> bool:
        """Leave out an entry; return whether it was there."""
        if path in self.left_out or _value_at(self.value, path) is _ABSENT:
            return False
        self.left_out.add(path)
        return True

    def repair(self, model: type[BaseModel], report: Callable[[PathKey, str, str], None]) -> Any:
        """Return the settings of the document, after what ``report`` gets is left out; None if too little remains."""
        for _ in range(_ROUNDS):
            try:
                return model.model_validate(self.build())
            except ValidationError as error:
                if not self._take_errors(error, model, report):
                    return None
            except ConfigError as error:
                path, message = _name_entry(str(error), self.value)
                report(path, message, "")
                if not path or not self.cut(path):
                    return None
        return None

    def _take_errors(
        self, error: ValidationError, model: type[BaseModel], report: Callable[[PathKey, str, str], None]
    ) -> bool:
        """Leave out what is wrong; return whether anything has changed."""
        changed = False
        found = error.errors(include_url=False, include_input=False)
        for details in found:
            loc = tuple(part for part in details["loc"] if part != "[key]")  # the name of an entry is wrong
            # pydantic leaves out the items that are at fault, and then reports that there are too few.
            if details["type"] == "too_short" and any(d is not details and d["loc"][: len(loc)] == loc for d in found):
                continue
            path = self.original(loc)
            stand_in = next((p for p in self.stand_ins if path[: len(p)] == p), None)
            if stand_in is not None:
                changed |= self._next_stand_in(stand_in)
            elif details["type"] == "missing":
                if path not in self.left_out:
                    report(path, "is missing", _description(model, details["loc"]))
                here = _STAND_INS.get(str(path[-1]))
                self.stand_ins[path] = [*([] if here is None else [here]), "unknown", 1, ["unknown"]]
                changed = True
            else:
                is_unknown = details["type"] == "extra_forbidden"
                message = simplify_message(details["type"], details["msg"])
                message = unknown_entry(model, details["loc"]) if is_unknown else message
                if not path:
                    path, message = _name_entry(message, self.value)
                if path not in self.left_out:
                    report(path, message, "")
                changed |= bool(path) and self.cut(path)
        return changed

    def _next_stand_in(self, path: PathKey) -> bool:
        """Try another value for a missing entry; without any, leave out what needs it."""
        if self.stand_ins[path]:
            self.stand_ins[path].pop(0)
            if self.stand_ins[path]:
                return True
        return len(path) > 1 and self.cut(path[:-1])


_ABSENT = object()


def _value_at(value: object, path: PathKey) -> object:
    for part in path:
        if isinstance(value, dict):
            value = next((each for name, each in value.items() if str(name) == str(part)), _ABSENT)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return _ABSENT
    return value


def _name_entry(text: str, document: Mapping[str, Any]) -> tuple[PathKey, str]:
    """Return the entry that a message names before its colon, and the rest; the whole document without one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[-1] if len(lines) > 1 and lines[0].endswith("settings that cannot be used") else one_line_of(lines)
    line = line.removeprefix("document: ").removeprefix("Value error, ")
    if match := _ENTRY.match(line):
        path: PathKey = tuple(int(part) if part.isdigit() else part for part in match[1].split("."))
        while path and _value_at(document, path) is _ABSENT:
            path = path[:-1]
        if path:
            return path, line.removeprefix(f"{match[1]}: ")
    return (), line


def one_line_of(lines: Sequence[str]) -> str:
    """Return lines as one."""
    return " ".join(lines)


def _description(model: Any, path: Sequence[int | str]) -> str:
    """Return what a missing entry is for, as its model describes it."""
    from streamcore.settings import find_fields

    fields = find_fields(model, path)
    text = next((found.description for found in fields if found.description), "")
    first = text[:1] if text[1:2].isupper() else text[:1].lower()  # an abbreviation stays one
    return first + text[1:].rstrip(".").replace("\n", " ")
