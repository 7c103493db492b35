"""Patterns of ``like``, and the check of regular expressions (``regexp_like``, ``regexp_extract``).

Regular expressions are those of Rust's ``regex`` crate (through Polars): matching is linear in the text, and there
are no back-references and no look-around. The crate limits a compiled pattern to 10 MiB; counted repetition is
limited here as well, because the time per character grows with the compiled size.
"""

from __future__ import annotations

import re

from rulecore.errors import ExpressionTypeError

ANY_TEXT = object()
ANY_CHARACTER = object()
LikeToken = str | object

MAX_REPETITION = 1_000  # the product of all upper bounds of {n,m} in one pattern
_COUNTED = re.compile(r"\{\s*(\d{1,9})\s*(?:,\s*(\d{0,9})\s*)?\}")


def like_tokens(pattern: str, escape: str) -> list[LikeToken]:
    """Return the characters of a ``like`` pattern, with ``ANY_TEXT`` for ``%`` and ``ANY_CHARACTER`` for ``_``.

    Raises ``ExpressionTypeError`` if ``escape`` stands before any other character.
    """
    tokens: list[LikeToken] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if not following or following not in f"%_{escape}":
                raise ExpressionTypeError(
                    f"like: {escape!r} is the escape character, and {following or 'nothing'!r} follows it",
                    f"only %, _ and {escape} can be escaped; double it to mean itself",
                )
            tokens.append(following)
        elif character == "%":
            tokens.append(ANY_TEXT)
        else:
            tokens.append(ANY_CHARACTER if character == "_" else character)
    return tokens


def check_regex(pattern: str) -> None:
    """Raise ``ExpressionTypeError`` unless Polars accepts the pattern and its counted repetition is small."""
    product = 1
    for low, high in _COUNTED.findall(pattern):
        product *= max(1, int(high or low))
        if product > MAX_REPETITION:
            raise ExpressionTypeError(
                f"counted repetition multiplies to more than {MAX_REPETITION}",
                "fewer or smaller {n,m}, or * and +",
            )
    import polars as pl  # the regex engine checks the pattern; imported here, since most rules have none

    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ExpressionTypeError(_reason(str(error)), _REGEX_HINT) from None


def count_capture_groups(pattern: str) -> int:
    """Return the number of capture groups in a pattern that ``check_regex`` accepted."""
    import polars as pl

    groups = pl.Series([""]).str.extract_groups(pattern)
    return len(groups.struct.fields) if groups.dtype == pl.Struct else 0


def matches_nothing(pattern: str) -> bool:
    """Return whether a pattern that ``check_regex`` accepted matches the empty text."""
    import polars as pl

    return bool(pl.Series([""]).str.contains(pattern)[0])


def _reason(message: str) -> str:
    """Return the last line of the engine's message that starts with ``error:``, else the first line."""
    lines = [line.strip().removeprefix("regex error: ") for line in message.splitlines() if line.strip()]
    marked = [line.removeprefix("error: ") for line in lines if line.startswith("error:")]
    return (marked or lines or ["not a regular expression"])[-1 if marked else 0][:200]


_REGEX_HINT = "accepted here: a Rust regular expression; no look-around, no back-references"
