"""CSV: one record of RFC 4180 a message, with any delimiter of one character.

A cell is in double quotes or has none; a quote inside quotes is written twice; inside quotes a cell may hold delimiters
and line ends. A cell without any character is null, and so is one that is, without quotes, a word of ``null_values``;
``""`` is the empty text. White space is part of a cell. The number of cells is that of the columns, exactly.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError, show
from streamcore.decode.text.line_decoder import SplitLines

_EMPTY, _NEWLINE = pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())
_SHOWN_COLUMNS = 12


@dataclass(frozen=True)
class CsvLines:
    """``columns``: a field of the stream for each cell, or None for a cell that is not read."""

    columns: tuple[str | None, ...]
    delimiter: str
    null_values: frozenset[str]

    @property
    def record_name(self) -> str:
        """The name of a record in messages."""
        return "one line of CSV"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        cells = self._cells(line)
        if len(cells) != len(self.columns):
            names = [name or "-" for name in self.columns]
            shown = ", ".join([*names[:_SHOWN_COLUMNS], *(["..."] if len(names) > _SHOWN_COLUMNS else [])])
            raise RecordError(
                RejectCode.WRONG_COLUMNS, f"the record has {len(cells)} columns; {len(names)} are needed ({shown})"
            )
        return {name: cell for name, cell in zip(self.columns, cells, strict=True) if name is not None}

    def _cells(self, line: str) -> list[str | None]:
        if line.startswith("\ufeff"):
            raise _refuse("the record begins with a byte order mark; accepted is UTF-8 without one")
        if (place := line.find("\x00")) >= 0:
            raise _refuse(f"not CSV: a NUL character at {place}")
        cells: list[str | None] = []
        place = 0
        while True:
            found = self._cell.match(line, place)
            if found is None:
                raise _refuse(f"not CSV: {_describe_error(line, place)}")
            quoted, bare = found.groups()
            is_null = not bare or bare in self.null_values
            cells.append(quoted.replace('""', '"') if quoted is not None else None if is_null else bare)
            if found.end() == len(line):
                return cells
            place = found.end() + 1

    @cached_property
    def _cell(self) -> re.Pattern[str]:
        """Return the pattern of a cell with the delimiter or the end after it."""
        mark = re.escape(self.delimiter)
        return re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"\r\n{mark}]*+))(?={mark}|\Z)')

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``. Vouched for are lines without line ends, NUL and quotes inside of quotes."""
        vouched = lines.str.contains(self._pattern).fill_null(value=False)
        if self._quoted_null:
            vouched &= ~lines.str.contains(self._quoted_null).fill_null(value=False)
        rows = vouched.arg_true().to_numpy().astype("int64")
        text = lines if vouched.all() else lines.filter(vouched)
        if not len(rows):
            return SplitLines(rows, {})
        table = self._read(text)
        cells = {name: table.to_series(place) for place, name in enumerate(self.columns) if name is not None}
        return SplitLines(rows, {name: self._replace_nulls(cell) for name, cell in cells.items()})

    def _read(self, text: pl.Series) -> pl.DataFrame:
        joined = pc.binary_join_element_wise(text.to_arrow(compat_level=pl.CompatLevel.oldest()), _EMPTY, _NEWLINE)
        names = [str(place) for place in range(len(self.columns))]
        wanted = [place for place, name in enumerate(self.columns) if name is not None]
        table = pl.read_csv(
            io.BytesIO(joined.buffers()[2]),
            has_header=False,
            separator=self.delimiter,
            schema=dict.fromkeys(names, pl.String),
        )
        if table.height != len(text):
            raise pl.exceptions.ComputeError(f"{len(text)} records were read as {table.height} lines of {len(wanted)}")
        return table

    def _replace_nulls(self, cell: pl.Series) -> pl.Series:
        return cell.set(cell.is_in(list(self.null_values)), None) if self.null_values else cell

    @cached_property
    def _pattern(self) -> str:
        mark = f"\\x{ord(self.delimiter):02x}"
        bare, quoted = rf'[^"\r\n\x00{mark}]', r'"[^"\r\n\x00]*"'
        if len(self.columns) == 1:  # an empty line is no line to the parser
            return rf"\A(?:[^\x{{feff}}\"\r\n\x00{mark}]{bare}*|{quoted})\z"
        first, other = rf"(?:(?:[^\x{{feff}}\"\r\n\x00{mark}]{bare}*)?|{quoted})", rf"(?:{bare}*|{quoted})"
        return rf"\A{first}(?:{mark}{other}){{{len(self.columns) - 1}}}\z"

    @cached_property
    def _quoted_null(self) -> str:
        words = "|".join(re.escape(word) for word in sorted(self.null_values))
        return f'"(?:{words})"' if words else ""


def _refuse(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_CSV, reason)


def _describe_error(line: str, place: int) -> str:
    if line[place : place + 1] != '"':
        return f"a quote or a line end inside a cell without quotes, in {show(line[place : place + 40])} at {place}"
    return f"the quotes that open at {place} do not end where a cell ends"
