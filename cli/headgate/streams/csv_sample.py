"""Reads a sample from files of CSV, whose first line has the names of the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import orjson

from headgate.errors import InputError
from headgate.streams.sample import SampleRecord, read_files
from streamcore.decode.scalar import StreamRecord

_SUFFIXES: Final = (".csv", ".tsv")
_DELIMITERS: Final = ",;\t|"
#: What the decoder of CSV reads as a number. A text such as 007 is none: its zeros would be lost.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?\Z")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvSample:
    """``records``: the lines behind the first one of each file. ``columns``: the names in it."""

    columns: tuple[str, ...]
    delimiter: str
    records: tuple[SampleRecord, ...]

    @property
    def settings(self) -> str:
        """The entry ``format`` of an app's settings that reads such lines, as YAML in one line."""
        columns = ", ".join(orjson.dumps(name).decode() for name in self.columns)
        delimiter = "" if self.delimiter == "," else f", delimiter: {orjson.dumps(self.delimiter).decode()}"
        return f"{{kind: csv, columns: [{columns}]{delimiter}}}"

    def as_json(self) -> list[SampleRecord]:
        """Return the records as objects of JSON: an empty cell is null, a number a number if all of its column are. A
        line with another number of cells stays a text."""
        rows = [_cells(record.value, self.delimiter) for record in self.records]
        whole = [cells for cells in rows if len(cells) == len(self.columns)]
        are_texts = [any(map(_is_text, column)) for column in zip(*whole, strict=True)]
        return [
            self._as_object(record, cells, are_texts) if len(cells) == len(self.columns) else record
            for record, cells in zip(self.records, rows, strict=True)
        ]

    def _as_object(self, record: SampleRecord, cells: Sequence[str], are_texts: Sequence[bool]) -> SampleRecord:
        values = [(cell or None) if is_text else _value(cell) for cell, is_text in zip(cells, are_texts, strict=True)]
        return replace(record, record=StreamRecord(orjson.dumps(dict(zip(self.columns, values, strict=True)))))


def is_csv(paths: Sequence[Path]) -> bool:
    """Return whether the sample is of CSV, by the names of its files; ``InputError`` if some of them are and others are
    not."""
    found = {path.name.removesuffix(".gz").endswith(_SUFFIXES) for path in paths}
    if len(found) > 1:
        raise InputError("a sample has files of CSV or others, not both")
    return found == {True}


def read_csv(paths: Sequence[Path], limit: int) -> CsvSample:
    """Return the first ``limit`` lines of files of CSV. ``InputError`` for what cannot be read, and if the first lines
    differ."""
    head: bytes | None = None
    records: list[SampleRecord] = []
    for path in paths:
        lines = read_files([path], limit + 1 - len(records))
        first = lines[0].value.removeprefix(_BOM) if lines else b""
        if head is not None and first != head:
            raise InputError(f"{path}: its first line has other columns than that of {paths[0]}")
        head = first
        records += lines[1:]
    delimiter = max(_DELIMITERS, key=(head or b"").decode("utf-8", "replace").count)
    columns = _cells(head or b"", delimiter)
    if len(set(columns)) < len(columns) or not all(name.strip() for name in columns):
        raise InputError(f"{paths[0]}: the first line must name each column, each name once; it has {columns}")
    return CsvSample(tuple(columns), delimiter, tuple(records))


def _cells(line: bytes, delimiter: str) -> list[str]:
    rows: Iterator[list[str]] = csv.reader([line.decode("utf-8", "replace")], delimiter=delimiter)
    return next(rows, [])


def _is_text(cell: str) -> bool:
    return bool(cell) and cell not in ("true", "false") and not _NUMBER.match(cell)


def _value(cell: str) -> object:
    if not cell:
        return None
    if cell in ("true", "false"):
        return cell == "true"
    return orjson.Fragment(cell) if _NUMBER.match(cell) else cell
