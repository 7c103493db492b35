"""Searches a pattern in the texts of a few candidates, by RE2: linear in the text, and compiled once.

Polars compiles a pattern at every call, which costs more than a few searches. RE2 and Rust's ``regex``, which Polars
has, agree on the syntax that ``regex_literals`` reads and on texts of ASCII characters, but for the vertical tab, which
is a space to one of them. Of other patterns and texts, Polars decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.patterns import ANY_TEXT, like_tokens
from rulecore.matching.index import Ints
from rulecore.matching.regex_literals import required_texts

if TYPE_CHECKING:
    import re2

_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")
#: Bytes that RE2 may use for one pattern; beyond, it searches more slowly.
_MEMORY: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class PatternSearch:
    """A pattern, and the term in whose text it is searched."""

    _compiled: re2._Regexp[bytes]
    _term: Expr
    _columns: tuple[str, ...]

    def texts(self, events: pl.DataFrame, rows: Ints) -> list[str | None]:
        """Return the texts of some rows of a frame; raise what Polars raises."""
        some = events.select(self._columns)[rows]
        if isinstance(self._term, lang.ColumnRef):
            return some[self._term.name].to_list()
        return some.select(to_polars(self._term).alias("text"))["text"].to_list()

    def search(self, text: str | None) -> int:
        """Return 1 if the pattern is in the text, 0 if not, -1 if RE2 may see that otherwise than Polars."""
        if text is None:
            return 0
        if not text.isascii() or "\v" in text:
            return -1
        return 0 if self._compiled.search(text.encode()) is None else 1


def compile_pattern(condition: Expr) -> PatternSearch | None:
    """Return the search of ``regexp_like`` or ``like`` with a constant pattern; None for other conditions."""
    match condition:
        case lang.Call(function="regexp_like", arguments=(operand, lang.Literal(value=str(pattern)))):
            if required_texts(pattern) is None:
                return None
        case lang.Like(operand=operand):
            pattern = _from_like(condition)
        case _:
            return None
    columns = tuple(sorted(lang.columns(operand)))
    if not columns or not pattern.isascii():
        return None
    import re2  # only for rules with patterns

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MEMORY
    try:
        return PatternSearch(re2.compile(pattern.encode(), options), operand, columns)
    except re2.error:  # such as more repetitions than it takes
        return None


def _from_like(condition: lang.Like) -> str:
    signs = (
        (f"\\{token}" if token in _SPECIAL else token) if isinstance(token, str) else ".*" if token is ANY_TEXT else "."
        for token in like_tokens(condition.pattern, condition.escape)
    )
    return rf"(?s)\A{''.join(signs)}\z"
