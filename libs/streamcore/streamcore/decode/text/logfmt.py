"""Lines of ``key=value`` (logfmt): ``level=info msg="user \\"bob\\" in" took=0.5 cached``.

Pairs are separated by spaces. A value without quotes has no space and no quote; one in quotes has the escapes
``\\"``, ``\\\\``, ``\\n``, ``\\t`` and ``\\r``. A key without ``=`` is ``true``; ``key=`` is null, and ``key=""`` the
empty text. A key that a field is from occurs once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError, show, show_name
from streamcore.decode.text.line_decoder import SplitLines

_VALUE = r'"((?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+)"|([^\s"\x00-\x1f]*)'
_PAIR = re.compile(rf'([^\s="\x00-\x1f]+)(?:(=)(?:{_VALUE}))?(?= |\Z)')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
_KEY = r'[^\s="\x00-\x1f]+'
#: A line whose quoted values have no escape and nothing that looks like a pair.
_PLAIN = rf'\A *(?:{_KEY}(?:=(?:"[^"\\=\x00-\x1f]*"|[^\s"\x00-\x1f]*))? *(?: |\z) *)+\z'


@dataclass(frozen=True)
class LogfmtLines:
    """Splits lines of pairs. ``fields``: the key of each field."""

    fields: Mapping[str, str]
    record_name: str = "one line of key=value"

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line, by field; raise ``RecordError``."""
        found: dict[str, str | None] = {}
        wanted, at = {*self.fields.values()}, 0
        while at < len(line):
            if line[at] == " ":
                at += 1
                continue
            match = _PAIR.match(line, at)
            if match is None:
                raise RecordError(
                    RejectCode.NOT_A_LOG_LINE,
                    f"at character {at} {show(line[at : at + 40])} is not a pair: accepted is key=value or "
                    'key="value", with spaces between',
                )
            key, equals, quoted, bare = match.groups()
            if key in found and key in wanted:
                raise RecordError(
                    RejectCode.DUPLICATE_FIELD, f"the key {show_name(key)} occurs more than once; accepted is once"
                )
            text = "true" if equals is None else bare or None if quoted is None else _unescape(quoted)
            found[key] = text
            at = match.end()
        if not found:
            raise RecordError(RejectCode.NOT_A_LOG_LINE, f"found {show(line)}; accepted is {self.record_name}")
        return {name: found.get(key) for name, key in self.fields.items()}

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """See ``LineFormat``."""
        matched = lines.str.contains(_PLAIN).fill_null(value=False)
        apart = lines.str.replace_all(" ", "  ", literal=True)  # a match takes the space behind a key
        for key in self._patterns:
            matched &= apart.str.count_matches(rf"(?:\A| ){re.escape(key)}(?:=| |\z)").fill_null(0) <= 1
        rows = matched.arg_true().to_numpy().astype("int64")
        text = lines if matched.all() else lines.filter(matched)
        by_key = {key: self._values(text, key) for key in self._patterns}
        return SplitLines(rows, {name: by_key[key] for name, key in self.fields.items()})

    @cached_property
    def _patterns(self) -> dict[str, str]:
        return {
            key: rf'(?:\A| ){re.escape(key)}(?:(=)(?:"([^"]*)"|([^\s"]*)))?(?: |\z)' for key in self.fields.values()
        }

    def _values(self, text: pl.Series, key: str) -> pl.Series:
        groups = text.str.extract_groups(self._patterns[key]).struct.unnest()
        present = text.str.contains(self._patterns[key])
        equals, quoted, bare = (groups.to_series(number) for number in range(3))
        values = bare.set((bare == "").fill_null(value=False), None)
        values = quoted.zip_with(quoted.is_not_null(), values)
        alone = present & equals.is_null()
        return values.set(alone, "true") if alone.any() else values


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _LETTERS.get(match[1], match[1]), text)
