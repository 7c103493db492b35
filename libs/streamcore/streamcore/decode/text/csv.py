"""CSV: each record is one record of RFC 4180, with any delimiter of one character.

A cell is in double quotes or has none. Inside quotes, a cell may have delimiters and line ends, and a quote is written
twice. A cell without characters is null, and so is a cell without quotes that is one of ``null_values``; ``""`` is the
empty text. White space is part of a cell. A record has exactly one cell for each column.
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
    """Splits lines of CSV into cells. ``columns``: the field of each cell, or None for a cell that is not read."""

    columns: tuple[str | None, ...]
    delimiter: str
    null_values: frozenset[str]

    @property
    def record_name(self) -> str:
        """The name of a record in messages."""
        return "one line of CSV"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        cells = self._split(line)
        if len(cells) != len(self.columns):
            names = [name or "-" for name in self.columns]
            shown = ", ".join([*names[:_SHOWN_COLUMNS], *(["..."] if len(names) > _SHOWN_COLUMNS else [])])
            raise RecordError(
                RejectCode.WRONG_COLUMNS, f"the record has {len(cells)} columns; {len(names)} are needed ({shown})"
            )
        return {name: cell for name, cell in zip(self.columns, cells, strict=True) if name is not None}

    def _split(self, line: str) -> list[str | None]:
        if line.startswith("\ufeff"):
            raise _not_csv("the record begins with a byte order mark; accepted is UTF-8 without one")
        if (position := line.find("\x00")) >= 0:
            raise _not_csv(f"not CSV: a NUL character at {position}")
        cells: list[str | None] = []
        position = 0
        while True:
            match = self._cell_pattern.match(line, position)
            if match is None:
                raise _not_csv(f"not CSV: {_describe_error(line, position)}")
            quoted, bare = match.groups()
            is_null = not bare or bare in self.null_values
            cells.append(quoted.replace('""', '"') if quoted is not None else None if is_null else bare)
            if match.end() == len(line):
                return cells
            position = match.end() + 1

    @cached_property
    def _cell_pattern(self) -> re.Pattern[str]:
        """Return the pattern of a cell before a delimiter or the end. Groups: text in quotes, text without quotes."""
        delimiter = re.escape(self.delimiter)
        return re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"\r\n{delimiter}]*+))(?={delimiter}|\Z)')

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``. Lines with a line end, NUL, quote inside quotes or null value in quotes do not match."""
        matched = lines.str.contains(self._line_pattern).fill_null(value=False)
        if self._quoted_null_pattern:
            matched &= ~lines.str.contains(self._quoted_null_pattern).fill_null(value=False)
        rows = matched.arg_true().to_numpy().astype("int64")
        text = lines if matched.all() else lines.filter(matched)
        if not len(rows):
            return SplitLines(rows, {})
        table = self._read(text)
        cells = {name: table.to_series(position) for position, name in enumerate(self.columns) if name is not None}
        return SplitLines(rows, {name: self._replace_nulls(cell) for name, cell in cells.items()})

    def _read(self, text: pl.Series) -> pl.DataFrame:
        joined = pc.binary_join_element_wise(text.to_arrow(compat_level=pl.CompatLevel.oldest()), _EMPTY, _NEWLINE)
        names = [str(position) for position in range(len(self.columns))]
        table = pl.read_csv(
            io.BytesIO(joined.buffers()[2]),
            has_header=False,
            separator=self.delimiter,
            schema=dict.fromkeys(names, pl.String),
        )
        if table.height != len(text):
            raise pl.exceptions.ComputeError(f"{len(text)} records were read as {table.height} lines")
        return table

    def _replace_nulls(self, cell: pl.Series) -> pl.Series:
        return cell.set(cell.is_in(list(self.null_values)), None) if self.null_values else cell

    @cached_property
    def _line_pattern(self) -> str:
        delimiter = f"\\x{ord(self.delimiter):02x}"
        bare, quoted = rf'[^"\r\n\x00{delimiter}]', r'"[^"\r\n\x00]*"'
        if len(self.columns) == 1:  # the parser skips an empty line
            return rf"\A(?:[^\x{{feff}}\"\r\n\x00{delimiter}]{bare}*|{quoted})\z"
        first, other = rf"(?:(?:[^\x{{feff}}\"\r\n\x00{delimiter}]{bare}*)?|{quoted})", rf"(?:{bare}*|{quoted})"
        return rf"\A{first}(?:{delimiter}{other}){{{len(self.columns) - 1}}}\z"

    @cached_property
    def _quoted_null_pattern(self) -> str:
        words = "|".join(re.escape(word) for word in sorted(self.null_values))
        return f'"(?:{words})"' if words else ""


def _not_csv(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_CSV, reason)


def _describe_error(line: str, position: int) -> str:
    if line[position : position + 1] != '"':
        shown = show(line[position : position + 40])
        return f"a quote or a line end inside a cell without quotes, in {shown} at {position}"
    return f"the quotes that open at {position} do not end where a cell ends"
