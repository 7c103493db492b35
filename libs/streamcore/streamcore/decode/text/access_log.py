"""Access logs of Apache and nginx, in the layouts ``common`` and ``combined``, with or without a request time.

::

    remote_host ident user [time] "request" status bytes                      common
    remote_host ident user [time] "request" status bytes "referer" "agent"    combined

With a request time, it is the last column. ``-`` is null in every column. The column ``request`` has the whole request.
A request ``METHOD TARGET`` or ``METHOD TARGET PROTOCOL`` is also split into method, path, query (the part after the
first ``?``) and protocol; these four are null for any other request. Escapes (``_ESCAPE``; nginx writes only ``\\xhh``)
are replaced by their characters. Text whose bytes are then not UTF-8 keeps its escapes. Nothing may follow the last
column.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from streamcore.decode.literal_patterns import TimeText
from streamcore.decode.physical_columns import parse_times
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError, show
from streamcore.decode.text.line_decoder import SplitLines
from streamcore.timestamps import from_iso, load_zone


class LogLayout(enum.StrEnum):
    """The layout of a line, as Apache and nginx name it."""

    COMMON = "common"
    COMBINED = "combined"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_WORD = r"[^ \x00-\x1f]+"
_QUOTED = r'"((?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+)"'
_TIME_CELL = r"\[([^\]\x00-\x1f]*)\]"
_COMMON = (f"({_WORD})", f" ({_WORD})", f" ({_WORD})", f" {_TIME_CELL}", f" {_QUOTED}", " ([0-9]{3}|-)", " ([0-9]+|-)")
_COMBINED = (*_COMMON, f" {_QUOTED}", f" {_QUOTED}")
_REQUEST_TIME = r" ([0-9]+(?:\.[0-9]+)?|-)"
_TIME = re.compile(
    rf"([0-9]{{2}})/({_MONTH})/([0-9]{{4}}):([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}) ([+-][0-9]{{2}})([0-9]{{2}})"
)
_REQUEST = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^ ?]+)(?:\?([^ ]*))?(?: (HTTP/[0-9](?:\.[0-9])?))?")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}
_UTC = load_zone("UTC")
_IN_REQUEST = ("method", "path", "query", "protocol")


def log_columns(layout: LogLayout, *, request_time: bool) -> tuple[str, ...]:
    """Return the columns of a line in order. The parts of the request follow ``request``."""
    names: tuple[str, ...] = ("remote_host", "ident", "user", "time", "request", *_IN_REQUEST, "status", "bytes")
    names += ("referer", "agent") if layout is LogLayout.COMBINED else ()
    return (*names, "request_time") if request_time else names


@dataclass(frozen=True)
class LogLines:
    """Splits log lines. ``fields``: the log's column of each field of the stream. ``times``: the timestamp fields."""

    layout: LogLayout
    request_time: bool
    fields: Mapping[str, str]
    times: frozenset[str]

    @property
    def record_name(self) -> str:
        """The name of a record in messages."""
        return f"one line of an access log ({self.layout.value}{' with a request time' if self.request_time else ''})"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        match = self._reference_pattern.fullmatch(line)
        if match is None:
            reason = f"found {show(line)}; accepted is {self.record_name}; {self._describe_break(line)}"
            raise RecordError(RejectCode.NOT_A_LOG_LINE, reason)
        columns = {name: _unescape(text) for name, text in zip(self._cells, match.groups(), strict=True)}
        columns |= _split_request(columns["request"])
        return {f: _read_time(f, columns[c]) if f in self.times else columns[c] for f, c in self.fields.items()}

    def _describe_break(self, line: str) -> str:
        """Say at which character a line that does not match breaks, and what is needed there."""
        read = 0
        for name, pattern in zip(self._cells, itertools.accumulate(self._cell_patterns), strict=True):
            match = re.match(pattern, line)
            if match is None:
                return f"from character {read} on it has no {name}"
            read = match.end()
        return f"at character {read}, after {self._cells[-1]}, it does not end"

    @cached_property
    def _cells(self) -> Sequence[str]:
        """The columns that a line has cells of, in order."""
        return [n for n in log_columns(self.layout, request_time=self.request_time) if n not in _IN_REQUEST]

    @cached_property
    def _cell_patterns(self) -> Sequence[str]:
        body = _COMBINED if self.layout is LogLayout.COMBINED else _COMMON
        return (*body, _REQUEST_TIME) if self.request_time else body

    @cached_property
    def _reference_pattern(self) -> re.Pattern[str]:
        return re.compile("".join(self._cell_patterns))

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``. Lines without a backslash match if their request is ``METHOD TARGET PROTOCOL``."""
        groups = lines.str.extract_groups(self._pattern).struct.unnest()
        matched = groups.to_series(0).is_not_null()
        rows = matched.arg_true().to_numpy().astype("int64")
        if not matched.all():
            groups = groups.filter(matched)
        cells = {f: groups[c] if c in _IN_REQUEST else _replace_dashes(groups[c]) for f, c in self.fields.items()}
        for field in self.times:
            cells[field] = _to_epoch_ms(cells[field])
        return SplitLines(rows, cells)

    @cached_property
    def _pattern(self) -> str:
        """Return the pattern of a line, with a group for each column that is read, by its name."""
        wanted = {*self.fields.values(), "remote_host"}

        def group(name: str, pattern: str) -> str:
            return f"(?P<{name}>{pattern})" if name in wanted else f"(?:{pattern})"

        word, text = r"[^ \\\x00-\x1f]+", r'[^"\\\x00-\x1f]*'
        clock, zone = "[0-9]{2}:[0-5][0-9]:[0-5][0-9]", "[+-](?:[01][0-9]|2[0-3])[0-5][0-9]"
        day = rf"[0-9]{{2}}/(?:{_MONTH})/[0-9]{{4}}:{clock} {zone}"
        path, query = group("path", r'[^ ?"\\\x00-\x1f]+'), group("query", r'[^ "\\\x00-\x1f]*')
        request = rf"{group('method', '[A-Z]+')} {path}(?:[?]{query})? {group('protocol', 'HTTP/[0-9](?:[.][0-9])?')}"
        parts = [
            *(group(name, word) for name in ("remote_host", "ident", "user")),
            rf"\[{group('time', day)}\]",
            f'"{group("request", request)}"',
            group("status", "[0-9]{3}"),
            group("bytes", "[0-9]+|-"),
        ]
        if self.layout is LogLayout.COMBINED:
            parts += [f'"{group("referer", text)}"', f'"{group("agent", text)}"']
        if self.request_time:
            parts.append(group("request_time", r"[0-9]+(?:[.][0-9]+)?|-"))
        return rf"\A{' '.join(parts)}\z"


def _unescape(text: str) -> str | None:
    """Return a column with its escapes replaced; None for a dash."""
    if text == "-":
        return None
    if "\\" not in text:
        return text
    try:
        return _ESCAPE.sub(_unescape_character, text).encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        return text


def _unescape_character(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return _LETTERS.get(escape[2], escape[2])
    byte = int(escape[1], 16)
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


def _split_request(request: str | None) -> dict[str, str | None]:
    """Return the method, path, query and protocol of a request; all are None if it is not one of HTTP."""
    match = None if request is None else _REQUEST.fullmatch(request)
    return dict.fromkeys(_IN_REQUEST) if match is None else dict(zip(_IN_REQUEST, match.groups(), strict=True))


def _to_iso(time: str | None) -> str | None:
    """Return a log's time as ISO 8601; any other text unchanged, so that it is rejected as a timestamp."""
    match = None if time is None else _TIME.fullmatch(time)
    if match is None:
        return time
    day, month, year, clock, hours, minutes = match.groups()
    return f"{year}-{_MONTHS.index(month) + 1:02d}-{day}T{clock}{hours}:{minutes}"


def _read_time(field: str, time: str | None) -> str | None:
    """Return a log's time as ISO 8601; raise ``RecordError``, with the text of the record, if it is none."""
    iso = _to_iso(time)
    if iso is None or from_iso(iso, _UTC) is not None:
        return iso
    raise RecordError(
        RejectCode.BAD_TIMESTAMP,
        f"field {field}: found {show(time)}; accepted is a time such as 10/Oct/2026:13:55:36 -0700",
    )


def _to_epoch_ms(time: pl.Series) -> pl.Series:
    """Return epoch milliseconds; null for an invalid time. Equal times of many lines are parsed once."""
    distinct = time.unique().drop_nulls()
    iso = pl.Series([_to_iso(text) for text in distinct.to_list()], dtype=pl.String)
    epoch_ms = parse_times(iso, TimeText("T", 6), "UTC")
    return time.replace_strict(distinct, epoch_ms, default=None, return_dtype=pl.Int64)


def _replace_dashes(cell: pl.Series) -> pl.Series:
    dash = cell == "-"
    return cell.set(dash, None) if dash.any() else cell
