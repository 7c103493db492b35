"""What fits where a person types in the text of a rule: entries, values, fields, functions, lists, streams.

The text need not be readable: the place follows from the indentation of the lines above. The entries are those of the
JSON Schema of a rule; fields are those of the streams that the text names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headgate.web.state.app_reader import Snapshot
from headgate.web.state.values import CompletionsValue, CompletionValue
from rulecore.documents.json_schema import rule_json_schema
from rulecore.errors import RuleSetError
from rulecore.language.functions import AGGREGATES, FEATURE_AGGREGATES, FUNCTIONS
from rulecore.streams import find_stream
from rulecore.testing.rule_tests import ALERT_FIELDS
from streamcore.schema import UNION, StreamSchema

MAX_OPTIONS: Final = 40
MAX_CHARACTERS: Final = 200_000
_LINE_CHARACTERS: Final = 2_000  # of a line before the cursor; nothing fits a longer one
_WORD_CHARACTERS: Final = 200
_ITEM: Final = "[]"
_EXPRESSIONS: Final = frozenset({"where", "having", "without"})
_COLUMNS: Final = frozenset({"group_by", "by"})
_KEYWORDS: Final = ("and", "or", "not", "in", "like", "between", "is null", "is not null", "true", "false")
_LINE: Final = re.compile(r"(?P<lead>\s*(?:-\s+)*)(?P<rest>.*)")
_NAME: Final = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)\s*:(?:\s+|$)(?P<value>.*)")
_WORD: Final = re.compile(r"[A-Za-z_][\w.]*$")
_FEATURES: Final = re.compile(r"^features:(?P<features>.*\n(?:(?:[ \t#-].*)?\n)*)", re.MULTILINE)
_FEATURE: Final = re.compile(r"\bname:\s*(?P<name>[a-z][a-z0-9_]*)")
_ON: Final = re.compile(r"^on:[ \t]*(?P<names>.*)$", re.MULTILINE)
_SCALAR_ITEMS: Final = re.compile(r"^\s+-\s*(?P<name>[\w-]+)\s*$")

_Schema = Mapping[str, Any]
_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cursor is. ``path``: names of the entries around it, with ``[]`` for an item of a list; ``value``: the
    text of the entry before the cursor, None where a name is typed; ``taken``: the names beside it."""

    path: _Path
    value: str | None
    taken: frozenset[str] = frozenset()


def complete(snapshot: Snapshot, text: str, line: int, column: int) -> CompletionsValue:
    """Return the completions before a column of a line, both from 1; nothing outside of the text or in a comment."""
    lines = text[:MAX_CHARACTERS].split("\n")
    if not 0 < line <= len(lines):
        return CompletionsValue(start=1, options=())
    before = lines[line - 1][: max(0, column - 1)]
    if len(before) > _LINE_CHARACTERS or re.search(r"(^|\s)#", before):
        return CompletionsValue(start=column, options=())
    word = _WORD.search(before[-_WORD_CHARACTERS:])
    typed = "" if word is None else word.group()
    start = len(before) - len(typed) + 1
    place = _find_place(lines, line - 1, before)
    options = [*_Vocabulary.of(snapshot, text).options(place, typed)]
    return CompletionsValue(start=start, options=tuple(_rank(options, typed)[:MAX_OPTIONS]))


def _rank(options: Iterable[CompletionValue], typed: str) -> list[CompletionValue]:
    """Return the options that have a part that begins with what was typed, or contain it if it is long; those that
    begin with it first; each text once."""
    small = typed.lower()
    fits = {
        one.text: one
        for one in options
        if (name := one.label.lower()).startswith(small) or f"_{small}" in name or (len(small) > 2 and small in name)
    }
    whole = [one for one in fits.values() if one.text.rstrip(": ") != typed]
    return sorted(whole, key=lambda one: not one.label.lower().startswith(small))


# --- the place ----------------------------------------------------------------------------------------------------


def _find_place(lines: list[str], index: int, before: str) -> _Place:
    lead, rest = _split(before)
    above, taken = _climb(lines, index, before)
    named = _NAME.fullmatch(rest)
    if above and above[-1] in _EXPRESSIONS:  # a condition over several lines
        return _Place(above, rest)
    if named is None:
        if rest[:1] in "{[" and rest:
            return _flow(above, rest)
        below = _taken_below(lines, index, len(lead))
        return _Place(above, rest if above and above[-1] == _ITEM and ":" in rest else None, taken | below)
    return _flow((*above, named["name"]), named["value"])


def _split(line: str) -> tuple[str, str]:
    found = _LINE.match(line)
    assert found is not None, "it matches every line"
    return found["lead"], found["rest"]


def _climb(lines: list[str], index: int, before: str) -> tuple[_Path, frozenset[str]]:
    """Return the names of the entries around a line, and those of the entries above it in the same mapping."""
    lead, _ = _split(before)
    found, taken, limit = list[str](), set[str](), len(lead)
    own, item = limit, "-" in lead  # the indent of the names beside the line; whether a list's item begins here
    if item:
        found.append(_ITEM)
        limit = lead.index("-") + 1
    for line in reversed(lines[:index]):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        lead, rest = _split(line)
        named, dash = _NAME.fullmatch(rest), lead.find("-")
        indent = len(lead)
        if not item and indent == own and not found and named is not None:
            taken.add(named["name"])
        if dash < 0 and indent < limit and named is not None:
            found.append(named["name"])
            limit = indent
            own = -1
        elif 0 <= dash < limit:
            if indent < limit and named is not None:  # an entry of an item that holds what is below
                found.append(named["name"])
            if indent <= limit or named is not None:
                found.append(_ITEM)
                limit, own = dash + 1, -1
        if limit <= 0 and own < 0:
            break
    return tuple(reversed(found)), frozenset(taken)


def _taken_below(lines: list[str], index: int, indent: int) -> frozenset[str]:
    found = set[str]()
    for line in lines[index + 1 :]:
        lead, rest = _split(line)
        if rest and (len(lead) < indent or ("-" in lead and lead.index("-") < indent)):
            break
        if len(lead) == indent and (named := _NAME.fullmatch(rest)) is not None:
            found.add(named["name"])
    return frozenset(found)


def _flow(path: _Path, text: str) -> _Place:
    """Return the place within a value such as ``{severity: high, mes``; quotes hide brackets."""
    stack, quote, start, taken = list[tuple[str, int]](), "", 0, set[str]()
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and not text[start:at].strip().rpartition(":")[2].strip():
            quote = sign
        elif sign in "{[":
            name = _NAME.match(text[start:].lstrip())
            path = (*path, *((name["name"],) if name is not None else ()), *((_ITEM,) if sign == "[" else ()))
            stack.append((sign, len(path)))
            start, taken = at + 1, set()
        elif sign in "}]" and stack:
            stack.pop()
            path = path[: stack[-1][1]] if stack else path[:1]
        elif sign == "," and stack:
            if (name := _NAME.match(text[start:at].lstrip())) is not None:
                taken.add(name["name"])
            start = at + 1
    if not stack:
        return _Place(path, text)
    part = text[start:].lstrip()
    named = _NAME.fullmatch(part)
    if named is not None:
        return _Place((*path, named["name"]), named["value"])
    return _Place(path, part if stack[-1][0] == "[" else None, frozenset(taken))


# --- the words ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The words of an app for one text. ``schema``: of the stream that the text names; None without one.
    ``features``: the names of those that the text declares."""

    streams: Mapping[str, StreamSchema]
    schema: StreamSchema | None
    lists: Mapping[str, str]
    rules: tuple[str, ...]
    features: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, text: str) -> _Vocabulary:
        """Return the words of a snapshot for the streams that a text names."""
        rules, lists = snapshot.history.rules, snapshot.history.lists.types()
        types = {name: f"of {one.of}" + (f", to {one.value}" if one.value else "") for name, one in lists.items()}
        ids = tuple(sorted({place.rule for place in rules.rules}))
        return cls(rules.streams, _find_schema(rules.streams, text), types, ids, _find_features(text))

    def options(self, place: _Place, typed: str) -> Iterator[CompletionValue]:
        """Yield the completions at a place. ``typed``: the word before the cursor."""
        path, value = place.path, place.value
        name = next((part for part in reversed(path) if part != _ITEM), "")
        if value is None:
            yield from self._names(place)
        elif path[:1] == ("features",) and name == "of":
            yield from self._expression(value[: len(value) - len(typed)], (*AGGREGATES, *FEATURE_AGGREGATES))
        elif name in _EXPRESSIONS:
            if path == ("where",):
                yield from (_option(one, "feature") for one in self.features)
            yield from self._expression(value[: len(value) - len(typed)], AGGREGATES if name == "having" else ())
        elif name in _COLUMNS:
            yield from self._fields()
        elif name == "on" and len(path) <= 2:
            yield from (_option(one, "stream", about=f"{len(self.streams[one].fields)} fields") for one in self.streams)
        elif name == "message":
            if value.rfind("{") > value.rfind("}"):
                yield from (_option(one, "feature") for one in self.features)
                yield from self._fields()
        elif name == "list":
            yield from (_option(one, "list", kind) for one, kind in self.lists.items())
        elif path[:2] == ("score", "of"):
            yield from (_option(one, "rule") for one in self.rules)
        else:
            yield from _values(_resolve(path))

    def _names(self, place: _Place) -> Iterator[CompletionValue]:
        """Yield the entries of a mapping that are not there yet."""
        path = tuple(part for part in place.path if part != _ITEM)
        if path[:1] == ("tests",) and path[-1] in ("events", "expect"):
            columns = [one for one in self._fields() if one.label not in place.taken]
            yield from (one.model_copy(update={"text": f"{one.text}: "}) for one in columns)
            if path[-1] == "expect":
                yield from (_option(one, "entry", text=f"{one}: ") for one in sorted(ALERT_FIELDS - place.taken))
            return
        if path[-1:] == ("of",) and "score" in path:
            yield from (_option(one, "rule", text=f"{one}: ") for one in self.rules if one not in place.taken)
            return
        if path[-1:] in (("group_by",), ("by",)):
            yield from self._fields()
            return
        if path == ("on",):
            yield from (_option(one, "stream") for one in self.streams)
            return
        for schema in _resolve(place.path):
            for name, entry in schema.get("properties", {}).items():
                if name not in place.taken:
                    yield _option(name, "entry", _kind(entry), _first_line(entry), text=f"{name}: ")

    def _fields(self) -> Iterator[CompletionValue]:
        for one in self.schema.fields if self.schema is not None else ():
            yield _option(one.name, "field", str(one.type), "" if one.nullable else "never NULL")

    def _expression(self, before: str, aggregates: Collection[str]) -> Iterator[CompletionValue]:
        """Yield the completions in an expression after the text ``before``. ``aggregates``: those that it may have."""
        if before.count("'") % 2:  # within a text: only names of lists are known
            if re.search(r"(list|lookup)\(\s*'$", before):
                yield from (_option(one, "list", kind) for one, kind in self.lists.items())
            return
        yield from _functions(aggregates)
        yield from self._fields()
        yield from (_option(one, "list", kind, text=f"list('{one}')") for one, kind in self.lists.items())
        yield from _functions([name for name in FUNCTIONS if name not in aggregates])
        yield from (_option(one, "keyword") for one in _KEYWORDS)


def _functions(names: Iterable[str]) -> Iterator[CompletionValue]:
    from rulecore.language.function_reference import FEATURE_AGGREGATE_REFERENCE, FUNCTION_REFERENCE

    for name in names:
        known, signature = FUNCTION_REFERENCE.get(name, FEATURE_AGGREGATE_REFERENCE.get(name)), FUNCTIONS.get(name)
        usage = f"{name}(column)" if signature is None else signature.usage
        about = "" if known is None else f"{known.summary.replace('``', '')} {known.result}"
        yield _option(name, "function", usage, about, text=f"{name}(")


def _option(label: str, kind: str, detail: str = "", about: str = "", text: str | None = None) -> CompletionValue:
    return CompletionValue(text=label if text is None else text, label=label, kind=kind, detail=detail, about=about)


def _find_schema(streams: Mapping[str, StreamSchema], text: str) -> StreamSchema | None:
    """Return the schema of the stream, or of the union, that a text names after ``on``."""
    found = _ON.search(text)
    if found is None:
        return None
    names = re.findall(r"[\w-]+", found["names"].partition("#")[0])
    if not names:
        for line in text[found.end() :].lstrip("\n").split("\n"):
            item = _SCALAR_ITEMS.match(line) or re.match(r"-\s*(?P<name>[\w-]+)\s*$", line)
            if item is None:
                break
            names.append(item["name"])
    with suppress(RuleSetError):
        return find_stream(streams, UNION.join(names))
    return None


def _find_features(text: str) -> tuple[str, ...]:
    """Return the names of the features that a text declares."""
    found = _FEATURES.search(text + "\n")
    return () if found is None else tuple(dict.fromkeys(_FEATURE.findall(found["features"])))


# --- the schema of a rule -----------------------------------------------------------------------------------------


@functools.cache
def _root() -> _Schema:
    return rule_json_schema()


def _resolve(path: _Path) -> list[_Schema]:
    """Return the schemas that a value at a path may have."""
    found = [*_alternatives(_root())]
    for part in path:
        below = list[_Schema]()
        for schema in found:
            if part == _ITEM:
                below += _alternatives(schema["items"]) if "items" in schema else ()
            elif part in schema.get("properties", {}):
                below += _alternatives(schema["properties"][part])
        found = below
    return found


def _alternatives(schema: _Schema) -> Iterator[_Schema]:
    """Yield a schema, or the ones of which it is a choice."""
    if "$ref" in schema:
        yield from _alternatives(_root()["$defs"][schema["$ref"].rpartition("/")[2]])
        return
    choices = [one for one in schema.get("anyOf", schema.get("oneOf", ())) if "not" not in one]
    if "properties" in schema or not choices:
        yield schema
    for one in choices:
        if {"$ref", "type", "const", "enum", "properties", "items", "anyOf", "oneOf"} & one.keys():
            yield from _alternatives(one)


def _values(schemas: Iterable[_Schema]) -> Iterator[CompletionValue]:
    for schema in schemas:
        for value in schema.get("enum", [schema["const"]] if "const" in schema else ()):
            yield _option(str(value), "value", about=_first_line(schema))
        if schema.get("type") == "boolean":
            yield from (_option(one, "value") for one in ("true", "false"))
        yield from (_option(str(one), "value", "example") for one in schema.get("examples", ()))


def _kind(entry: _Schema) -> str:
    kinds = [str(one.get("type", "value")) for one in _alternatives(entry) if one.get("type") != "null"]
    names = {"object": "entries", "array": "list", "string": "text", "integer": "number", "boolean": "true or false"}
    return " or ".join(dict.fromkeys(names.get(one, one) for one in kinds))


def _first_line(entry: _Schema) -> str:
    text = str(entry.get("description") or next((one.get("description", "") for one in _alternatives(entry)), ""))
    return text.partition("\n")[0].replace("``", "")
