"""Lines of syslog, of RFC 3164 and RFC 5424; each line says of which.

::

    <34>Oct 11 22:14:15 web1 sshd[411]: Failed password                                  RFC 3164
    <34>1 2026-10-11T22:14:15.003Z web1 sshd 411 ID47 [id@32473 user="bob"] Failed ...   RFC 5424

``priority`` is split into ``facility`` and ``severity``. The time of RFC 3164 has no year: its field has the pattern
``MMM d HH:mm:ss``, and the year is that of the record's timestamp. A dash of RFC 5424 is null.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError, show
from streamcore.decode.text.line_decoder import SplitLines

COLUMNS = (
    "priority", "facility", "severity", "version", "time", "host", "app", "pid", "message_id", "structured_data",
    "message",
)  # fmt: skip
_PRIORITY = r"<(?P<priority>[0-9]|[1-9][0-9]|1[0-8][0-9]|19[01])>"
_WORD = r"[^\x00-\x20\x7f]"
_ELEMENT = r'\[[^ \]="\x00-\x1f]+(?: [^ \]="\x00-\x1f]+="(?:[^"\\\]]|\\.)*")*\]'
_NEW = (
    rf"\A{_PRIORITY}(?P<version>[1-9][0-9]?) (?P<time>{_WORD}+) (?P<host>{_WORD}+) (?P<app>{_WORD}+) (?P<pid>{_WORD}+)"
    rf" (?P<message_id>{_WORD}+) (?P<structured_data>-|(?:{_ELEMENT})+)(?: (?s:\x{{feff}}?(?P<message>.*)))?\z"
)
_OLD = (
    rf"\A{_PRIORITY}(?P<time>[A-Z][a-z]{{2}} [ 0-9][0-9] [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}) (?P<host>{_WORD}+)"
    rf" (?s:(?:(?P<app>[^\x00-\x20\x7f\[\]:]+)(?:\[(?P<pid>[^\]\x00-\x1f]*)\])?: ?)?(?P<message>.*))\z"
)
_STEPS = (
    (rf"\A{_PRIORITY}", "a priority <0> to <191>"),
    (rf"\A{_PRIORITY}[1-9][0-9]? ", "the version 1 and a space"),
    (rf"\A{_PRIORITY}[1-9][0-9]? {_WORD}+ ", "a time and a space"),
    (rf"\A{_PRIORITY}[1-9][0-9]?(?: {_WORD}+){{2}} ", "a host and a space"),
    (rf"\A{_PRIORITY}[1-9][0-9]?(?: {_WORD}+){{3}} ", "an app and a space"),
    (rf"\A{_PRIORITY}[1-9][0-9]?(?: {_WORD}+){{4}} ", "a process and a space"),
    (rf"\A{_PRIORITY}[1-9][0-9]?(?: {_WORD}+){{5}} ", "a message id and a space"),
    (r"\z.", 'structured data: - or [id name="value"]'),
)


@dataclass(frozen=True)
class SyslogLines:
    """Splits lines of syslog. ``fields``: the column of each field."""

    fields: Mapping[str, str]
    record_name: str = "one line of syslog (RFC 3164 or RFC 5424)"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        column = pl.Series([line])
        split = self.split_lines(column)
        if not len(split.matched):
            raise RecordError(RejectCode.NOT_A_LOG_LINE, _describe_break(line))
        return {name: cells[0] for name, cells in split.cells.items()}

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``."""
        new, old = (lines.str.contains(pattern).fill_null(value=False) for pattern in (_NEW, _OLD))
        rows = (new | old).arg_true().to_numpy().astype("int64")
        matched = lines.filter(new | old)
        is_new = new.filter(new | old)
        of_new, of_old = (matched.str.extract_groups(pattern).struct.unnest() for pattern in (_NEW, _OLD))
        cells = {name: _column(column, of_new, of_old, is_new) for name, column in self.fields.items()}
        return SplitLines(rows, cells)


def _column(name: str, new: pl.DataFrame, old: pl.DataFrame, is_new: pl.Series) -> pl.Series:
    if name in ("facility", "severity"):
        priority = _column("priority", new, old, is_new).cast(pl.Int64)
        return (priority // 8 if name == "facility" else priority % 8).cast(pl.String)
    first = new[name]
    if name not in ("priority", "message"):
        first = first.set(first == "-", None)
    return first.zip_with(is_new, old[name]) if name in old.columns else first.zip_with(is_new, _nulls(len(first)))


def _nulls(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def _describe_break(line: str) -> str:
    """Return where a line leaves the layout; a line that has no version is compared with RFC 3164."""
    found = [_end(line, pattern) for pattern, _ in _STEPS]
    if found[0] is not None and found[1] is None:
        wanted = "a time such as Oct 11 22:14:15 and a host, or the version 1"
        return f"at character {found[0]} {show(line[found[0] :][:40])} is not {wanted}"
    at = next(number for number, end in enumerate(found) if end is None)
    end = found[at - 1] or 0 if at else 0
    return f"at character {end} {show(line[end : end + 40])} is not {_STEPS[at][1]}"


@functools.cache
def _grouped(pattern: str) -> str:
    return rf"\A({pattern[2:].replace('(?P<priority>', '(?:')})" if pattern.startswith(r"\A") else f"({pattern})"


def _end(line: str, pattern: str) -> int | None:
    found: Any = pl.Series([line]).str.extract(_grouped(pattern), 1)[0]
    return None if found is None else len(found)


__all__ = ["COLUMNS", "SyslogLines"]
