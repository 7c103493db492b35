"""Lines in a pattern of named parts: ``%{IPORHOST:client} %{WORD:method} took %{NUMBER:seconds}s``.

A pattern is a regular expression of Rust's ``regex``, so that the time of a line is linear in its length, in which
``%{NAME}`` stands for a known expression and ``%{NAME:column}`` also makes its text a column; ``(?P<column>...)`` does
so too. The names are those of Grok; the type of a column is that of the field. The whole line must match.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError, show
from streamcore.decode.text.line_decoder import SplitLines
from streamcore.errors import ConfigError

MAX_PATTERN_BYTES = 4_096
_MAX_EXPANDED = 64 * 1024
_MAX_DEPTH = 10
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}"

#: The expressions that a pattern may name.
NAMED: Mapping[str, str] = {
    "WORD": r"[0-9A-Za-z_]+",
    "NOTSPACE": r"[^ \t]+",
    "SPACE": r"[ \t]*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "INT": r"[+-]?[0-9]+",
    "POSINT": r"[1-9][0-9]*",
    "NONNEGINT": r"[0-9]+",
    "NUMBER": r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)",
    "BASE16NUM": r"(?:0[xX])?[0-9A-Fa-f]+",
    "IPV4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "IPV6": r"[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?",
    "IP": "(?:%{IPV4}|%{IPV6})",
    "HOSTNAME": r"[0-9A-Za-z_](?:[0-9A-Za-z_.-]*[0-9A-Za-z_])?\.?",
    "IPORHOST": "(?:%{IPV4}|%{IPV6}|%{HOSTNAME})",
    "HOSTPORT": "%{IPORHOST}:[0-9]+",
    "USERNAME": r"[0-9A-Za-z._-]+",
    "USER": "%{USERNAME}",
    "EMAILADDRESS": r"[0-9A-Za-z.!#$&'*+/=?^_`{|}~-]+@%{HOSTNAME}",
    "UUID": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "MAC": "(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}",
    "PATH": r"/[^\s]*",
    "URIPATH": r"/[^\s?#]*",
    "URIPARAM": r"\?[^\s#]*",
    "URIPATHPARAM": "%{URIPATH}(?:%{URIPARAM})?",
    "URI": r"[A-Za-z][0-9A-Za-z+.-]*://[^\s]+",
    "QUOTEDSTRING": r'"(?:[^"\\]|\\.)*"',
    "QS": "%{QUOTEDSTRING}",
    "LOGLEVEL": "(?i:trace|debug|info|information|notice|warn|warning|error|err|crit|critical|fatal|severe|alert"
    "|emerg|emergency|panic)",
    "MONTH": _MONTH,
    "MONTHDAY": "[ 0-3]?[0-9]",
    "YEAR": "[0-9]{4}",
    "TIME": rf"{_CLOCK}(?:[.,][0-9]+)?",
    "HTTPDATE": rf"[0-9]{{2}}/{_MONTH}/[0-9]{{4}}:{_CLOCK} [+-][0-9]{{4}}",
    "SYSLOGTIMESTAMP": rf"{_MONTH} [ 0-3]?[0-9] {_CLOCK}",
    "TIMESTAMP_ISO8601": rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(?:[.,][0-9]+)?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?",
    "PROG": r"[^ \t\[\]:]+",
    "SYSLOGPROG": r"%{PROG}(?:\[[0-9]+\])?",
}
_PART = re.compile(r"%\{([A-Z][A-Z0-9_]*)(?::([^}:]+))?(?::(?:int|float|long|double|string))?\}")
_GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED_GROUP = re.compile(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>")


@dataclass(frozen=True)
class LinePattern:
    """A pattern in which every ``%{...}`` is replaced.

    ``pieces``: the expressions between and in its parts, in order, each with the text that it was written as.
    """

    pieces: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, own: Mapping[str, str]) -> LinePattern:
        """Parse a pattern; raise ``ConfigError``. ``own``: expressions by name, beside the known ones."""
        if len(text.encode()) > MAX_PATTERN_BYTES:
            raise ConfigError(f"pattern: more than {MAX_PATTERN_BYTES} bytes")
        if wrong := [name for name in own if not re.fullmatch("[A-Z][A-Z0-9_]*", name)]:
            raise ConfigError(f"patterns: {wrong[0]!r}: a name has A-Z, 0-9 and _")
        known, columns = {**NAMED, **own}, list[str]()
        pieces = [*cls._pieces(text, known, columns)]
        regex = "".join(piece for piece, _ in pieces)
        columns += _NAMED_GROUP.findall("".join(piece for piece, written in pieces if not written.startswith("%{")))
        if len(regex) > _MAX_EXPANDED:
            raise ConfigError(f"pattern: with its parts replaced it has more than {_MAX_EXPANDED} characters")
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise ConfigError(f"pattern: two parts are named {twice[0]!r}")
        if not columns:
            raise ConfigError("pattern: no part is named; write %{WORD:method}, or (?P<method>...)")
        _check(regex, text)
        return cls(tuple(pieces), tuple(columns))

    @staticmethod
    def _pieces(text: str, known: Mapping[str, str], columns: list[str]) -> Iterator[tuple[str, str]]:
        at = 0
        for match in _PART.finditer(text):
            name, column = match[1], match[2]
            if at < match.start():
                yield text[at : match.start()], text[at : match.start()]
            inner = _expand(name, known, 0)
            if column is not None:
                if not _GROUP_NAME.fullmatch(column):
                    raise ConfigError(f"pattern: {match[0]}: a column's name has letters, digits and _")
                columns.append(column)
            yield f"(?P<{column}>{inner})" if column is not None else f"(?:{inner})", match[0]
            at = match.end()
        if at < len(text):
            yield text[at:], text[at:]
        if "%{" in _PART.sub("", text):
            raise ConfigError("pattern: a part has the form %{NAME} or %{NAME:column}")

    @functools.cached_property
    def regex(self) -> str:
        """The regular expression of a whole line."""
        return rf"\A(?:{''.join(piece for piece, _ in self.pieces)})\z"

    def describe_break(self, line: str) -> str:
        """Return where a line that does not match leaves the pattern."""
        low, high = 0, len(self.pieces)  # the first ``low`` pieces match a beginning of the line, ``high`` do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._end(line, middle) is None:
                high = middle
            else:
                low = middle
        whole = self._end(line, len(self.pieces))
        if whole is not None:
            return f"the pattern ends at character {whole}, and {show(line[whole:])} follows"
        end = self._end(line, low) or 0
        return f"at character {end} {show(line[end : end + 40])} does not match {self.pieces[low][1]}"

    def _end(self, line: str, count: int) -> int | None:
        """Return where the match of the first pieces ends; None if a line does not begin with them."""
        expression = "".join(piece for piece, _ in self.pieces[:count])
        try:
            found = pl.Series([line]).str.extract(rf"\A((?:{expression}))", 1)[0]
        except pl.exceptions.PolarsError:  # a group goes over several parts
            return None
        return None if found is None else len(found)


def _expand(name: str, known: Mapping[str, str], depth: int) -> str:
    if name not in known:
        raise ConfigError(f"pattern: there is no %{{{name}}}; there are {', '.join(sorted(known))}")
    if depth > _MAX_DEPTH:
        raise ConfigError(f"patterns: {name} names itself, or is nested more than {_MAX_DEPTH} deep")
    return _PART.sub(lambda match: f"(?:{_expand(match[1], known, depth + 1)})", known[name])


def _check(regex: str, text: str) -> None:
    try:
        pl.Series([""]).str.contains(rf"\A(?:{regex})\z", strict=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        marked = [line.strip() for line in str(error).splitlines() if line.strip().startswith("error:")]
        reason = marked[-1].removeprefix("error: ") if marked else "not a regular expression"
        raise ConfigError(
            f"pattern {text[:80]!r}: {reason[:200]}; accepted is a Rust regular expression with %{{NAME:column}}"
        ) from None


@dataclass(frozen=True)
class PatternLines:
    """Splits lines by a pattern. ``fields``: the column of each field. ``null_values``: texts that are null."""

    pattern: LinePattern
    fields: Mapping[str, str]
    null_values: frozenset[str]
    record_name: str = "one line in the pattern of the format"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        groups: dict[str, Any] | None = pl.Series([line]).str.extract_groups(self.pattern.regex)[0]
        if groups is None or not _matches(line, self.pattern.regex):
            raise RecordError(RejectCode.NOT_A_LOG_LINE, self.pattern.describe_break(line))
        return {name: self._cell(groups[column]) for name, column in self.fields.items()}

    def _cell(self, text: str | None) -> str | None:
        return None if text is None or text in self.null_values else text

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``."""
        matched = lines.str.contains(self.pattern.regex).fill_null(value=False)
        rows = matched.arg_true().to_numpy().astype("int64")
        groups = (lines if matched.all() else lines.filter(matched)).str.extract_groups(self.pattern.regex)
        columns = groups.struct.unnest()
        return SplitLines(rows, {name: self._cells(columns[column]) for name, column in self.fields.items()})

    def _cells(self, cells: pl.Series) -> pl.Series:
        if not self.null_values:
            return cells
        return cells.set(cells.is_in(list(self.null_values)).fill_null(value=False), None)


def _matches(line: str, regex: str) -> bool:
    return bool(pl.Series([line]).str.contains(regex)[0])
