"""Splits text into tokens as Spark SQL does: words, numbers, strings, quoted names and symbols.

The text between two tokens is white space or a comment. Text that is not of the language becomes tokens too, so that
the lexer can report its position.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class TokenKind(enum.Enum):
    """The kind of a token. ``RAW``: ``r'...'``. ``QUOTED``: a name in backquotes. ``OTHER``: words and symbols."""

    STRING = "string"
    RAW = "raw"
    NUMBER = "number"
    QUOTED = "quoted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Token:
    """A token at the characters from ``start`` to ``end``, exclusive. ``text``: without the quotes of a quoted name."""

    kind: TokenKind
    text: str
    start: int
    end: int


#: A character of a word: all but white space and the punctuation of ASCII; ``_`` is one.
_WORD = r"[^\s!-/:-@\[-\^`{-~]"
#: The alternatives are tried in order: of two that begin with the same character, the more specific comes first.
_TOKEN = re.compile(
    rf"""
      (?P<gap> \s+ | --[^\r\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> [rR](?:'[^']*'|"[^"]*") )
    | (?P<string> '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<number> [0-9]+(?:\.[0-9]*)?(?:[eE](?:[+-](?=[0-9]))?[0-9]*)?(?:[LSYDFlsydf]|[bB][dD])?(?!{_WORD}) )
    | (?P<other> (?i:partition|group|order)\s+(?i:by)(?!{_WORD}) | (?:[0-9]+\.)?{_WORD}+
               | <=> | <> | <= | >= | == | != | \|\| | :: | -> | => | [^'"`] )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """Return the tokens in order. Raise ``ValueError`` for a quote that is not closed."""
    found, at = list[Token](), 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at]} at {at} is never closed")
        if match.lastgroup != "gap":
            found.append(_token(match))
        at = match.end()
    return found


def _token(match: re.Match[str]) -> Token:
    kind, text = TokenKind(match.lastgroup), match.group()
    if kind is TokenKind.QUOTED:
        text = text[1:-1].replace("``", "`")
    return Token(kind, text, match.start(), match.end())
