"""Reads lists from files: a YAML document for each list, with its entries in it or in a CSV file.

::

    list: limits
    version: 3
    owner: payments-risk
    of: long
    value: decimal(12,2)
    entries: [[17850, "2500.00"], [12583, "100.00", "2027-01-01T00:00:00Z"]]     # or
    file: limits.csv            # value,lookup,expires; or one column, value. The first line names the columns.

Promises: a document becomes either a list or a ``Problem`` with file and line; a CSV file is read only if it is in or
below the folder of the document; no content of a file makes ``load_lists`` raise.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from rulecore.documents.status import StatusKind
from rulecore.documents.yaml_files import read_file, yaml_files
from rulecore.documents.yaml_reader import (
    Json,
    LoadLimits,
    Problem,
    SourceLocation,
    YamlDocument,
    one_line,
    read_yaml,
)
from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.lists.entries import read_entries
from rulecore.lists.networks import NetworkIndex
from rulecore.lists.records import ListHead, decode_head, list_records
from rulecore.settings import ListLimits
from streamcore.schema import Kind

if TYPE_CHECKING:
    from rulecore.lists.store import ListStore

_COLUMNS: Final = ("value", "lookup", "expires")
_FILE_BYTES: Final = 64 << 20
_WHOLE = re.compile(r"-?[0-9]{1,19}\Z")
_ENTRY = re.compile(r"(?:part [0-9a-f]+: )?entry (\d+): ")


@dataclass(frozen=True, slots=True)
class ListFile:
    """A list as its author wrote it. ``entries``: those of the document or of its CSV file."""

    document: YamlDocument
    head: ListHead
    entries: list[Json]

    def records(self) -> list[tuple[str, bytes]]:
        """Return the keys and values of the control records that publish it: the parts first."""
        return list_records(self.head, self.entries)

    def text(self) -> bytes:
        """Return the document with all entries in it, in JSON, which is YAML too."""
        head = self.head.model_dump(mode="json", exclude={"parts", "entries"}, exclude_defaults=True)
        return orjson.dumps({**head, "entries": self.entries})


def load_lists(path: Path, limits: ListLimits | None = None) -> tuple[list[ListFile], list[Problem]]:
    """Load the lists of a file, or of all ``*.yaml`` and ``*.yml`` files below a directory in path order."""
    limits = limits or ListLimits()
    loaded: list[ListFile] = []
    problems: list[Problem] = []
    for file in yaml_files(path):
        documents, faults = read_file(file, LoadLimits())
        problems += faults
        for document in documents:
            found = _load(document, limits)
            if isinstance(found, ListFile):
                problems += _check_repeated(found, loaded)
                loaded.append(found)
            else:
                problems.append(found)
    if len(loaded) > limits.lists:
        problems.append(Problem(str(path), SourceLocation(1, 1), "", f"{len(loaded)} lists, at most {limits.lists}"))
    return loaded, problems


def load_list_text(
    text: str, file: str = "<text>", limits: ListLimits | None = None
) -> tuple[ListFile | None, list[Problem]]:
    """Return the list of a text that holds its entries itself, or None and the problems. ``file``: its name there."""
    documents, problems = read_yaml(text, file, LoadLimits())
    found = [one for one in documents if one.value is not None]
    if problems:
        return None, problems
    if len(found) != 1:
        place = found[1].place(()) if found else SourceLocation(1, 1)
        return None, [Problem(file, place, "", f"one list is needed; there are {len(found)}")]
    if isinstance(found[0].value, dict) and "file" in found[0].value:
        message = "the entries of this list must be in its text, as `entries`"
        return None, [Problem(file, found[0].place(("file",)), "file", message)]
    loaded = _load(found[0], limits or ListLimits())
    return (loaded, []) if isinstance(loaded, ListFile) else (None, [loaded])


def list_types(lists: Sequence[ListFile]) -> Mapping[str, ListType]:
    """Return the types of the lists by name."""
    return {one.head.list: one.head.type for one in lists}


def build_store(lists: Sequence[ListFile]) -> ListStore:
    """Return a store of these lists; raise ``ListError`` if it rejects one, as it would reject its publication."""
    from rulecore.lists.store import ListStore  # imports Polars, which reading files does not need

    store = ListStore.empty()
    for key, value in (record for one in lists for record in one.records()):
        store, answer = store.apply(key, value)
        if answer.status is not StatusKind.ACCEPTED:
            raise ListError(f"{key}: {answer.reason}")
    return store


def _check_repeated(found: ListFile, before: Sequence[ListFile]) -> list[Problem]:
    first = next((one for one in before if one.head.list == found.head.list), None)
    if first is None:
        return []
    message = f"the name {found.head.list!r} is taken by {first.document.file}"
    return [Problem(found.document.file, found.document.place(("list",)), "list", message)]


def _load(document: YamlDocument, limits: ListLimits) -> ListFile | Problem:
    if not isinstance(document.value, dict):
        return Problem(document.file, document.place(()), "", "a list is a mapping")
    fields = dict(document.value)
    entries, file = fields.pop("entries", None), fields.pop("file", None)
    if "parts" in fields or (entries is None) == (file is None):
        return Problem(document.file, document.place(()), "", "a list has either `entries` or a `file` with them")
    try:
        head = decode_head(orjson.dumps(fields), limits.record_bytes)
    except (ListError, TypeError) as error:
        field, _, message = str(error).partition(": ")
        return Problem(document.file, document.place((field,)), field, message or field)
    read = _read_csv(document, head, file, limits) if file is not None else _take_entries(document, entries)
    if isinstance(read, Problem):
        return read
    where, items, lines = read
    return _check_entries(ListFile(document, head, items), where, lines, limits)


@dataclass(frozen=True, slots=True)
class _EntryLocations:
    """The locations of entries: in ``document``, or on ``lines`` of a CSV file."""

    document: YamlDocument | None
    lines: Sequence[int] = ()

    def place(self, number: int) -> SourceLocation:
        if self.document is not None:
            return self.document.place(("entries", number - 1))
        return SourceLocation(self.lines[number - 1], 1)


def _check_entries(found: ListFile, where: str, lines: _EntryLocations, limits: ListLimits) -> ListFile | Problem:
    if len(found.entries) > limits.entries:
        message = f"{len(found.entries)} entries, at most {limits.entries}"
        return Problem(where, SourceLocation(1, 1), "entries", message)
    try:
        keys = read_entries(found.entries, found.head.type).keys
        if found.head.networks:
            NetworkIndex.of(keys)
    except ListError as error:
        message = str(error)
        match = _ENTRY.match(message)
        number = int(match[1]) if match else 1
        return Problem(where, lines.place(number), "entries", message[match.end() :] if match else message)
    if len(set(keys)) != len(keys):
        first: dict[str | int, int] = {}
        number = next(n for n, key in enumerate(keys, 1) if first.setdefault(key, n) != n)
        return Problem(where, lines.place(number), "entries", "the value occurs earlier in the list")
    return found


def _take_entries(document: YamlDocument, entries: Json) -> tuple[str, list[Json], _EntryLocations] | Problem:
    if not isinstance(entries, list):
        return Problem(document.file, document.place(("entries",)), "entries", "entries are a sequence")
    return document.file, entries, _EntryLocations(document)


def _read_csv(
    document: YamlDocument, head: ListHead, file: Json, limits: ListLimits
) -> tuple[str, list[Json], _EntryLocations] | Problem:
    place = document.place(("file",))
    folder = Path(document.file).parent.resolve()
    path = (folder / file).resolve() if isinstance(file, str) and "\0" not in file else folder
    if not path.is_relative_to(folder) or path == folder:
        return Problem(document.file, place, "file", "must name a file in the folder of this document, or below it")
    try:
        with path.open("rb") as stream:
            text = stream.read(_FILE_BYTES + 1)
        if len(text) > _FILE_BYTES:
            return Problem(str(path), SourceLocation(1, 1), "", f"more than {_FILE_BYTES} bytes")
        decoded = text.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return Problem(document.file, place, "file", f"cannot be read: {one_line(error)}")
    return _read_rows(str(path), decoded, head.type, limits)


def _read_rows(
    file: str, text: str, kind: ListType, limits: ListLimits
) -> tuple[str, list[Json], _EntryLocations] | Problem:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    entries: list[Json] = []
    lines: list[int] = []
    try:
        header = next(reader, [])
        if not header or tuple(header) != _COLUMNS[: len(header)]:
            return Problem(
                file,
                SourceLocation(1, 1),
                "",
                f"the first line names the columns: {','.join(_COLUMNS)}, or value alone",
            )
        for row in reader:
            if not row:
                continue  # an empty line
            if len(row) > len(header) or len(entries) > limits.entries:
                message = f"{len(row)} columns, the first line names {len(header)}"
                too_many = len(entries) > limits.entries
                return Problem(
                    file, SourceLocation(reader.line_num, 1), "", "too many entries" if too_many else message
                )
            entries.append(_to_entry(row, kind))
            lines.append(reader.line_num)
    except csv.Error as error:
        return Problem(file, SourceLocation(max(1, reader.line_num), 1), "", f"not CSV: {one_line(error)}")
    return file, entries, _EntryLocations(None, lines)


def _to_entry(row: Sequence[str], kind: ListType) -> Json:
    """Convert a row to an entry. An empty cell after the first is null, and nulls at the end are left out."""
    key = _to_value(row[0], kind.of.kind)
    rest: list[Json] = [None if text == "" else text for text in row[1:]]
    if rest and isinstance(rest[0], str) and kind.value is not None:
        rest[0] = _to_value(rest[0], kind.value.kind)
    while rest and rest[-1] is None:
        rest.pop()
    return [key, *rest] if rest else key


def _to_value(text: str, kind: Kind) -> Json:
    """Convert a cell to a long, boolean or double of that kind. Other text stays, and ``read_entries`` checks it."""
    if kind is Kind.LONG and _WHOLE.match(text):
        return int(text)
    if kind is Kind.BOOLEAN and text in ("true", "false"):
        return text == "true"
    if kind is Kind.DOUBLE:
        try:
            return float(text)
        except ValueError:
            return text
    return text
