"""Cuts text into tokens as Spark SQL does: words, numbers, strings, quoted names and symbols.

Promises the place of each token; the text between two is white space, or a comment. Refuses to know which tokens are
of the language: text that can be none is a token nevertheless, so that the lexer can point at it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class TokenKind(enum.Enum):
    """The visible kind of a token. ``OTHER``: words and symbols."""

    STRING = "string"
    RAW = "raw"
    NUMBER = "number"
    QUOTED = "quoted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Token:
    """``start`` and ``end`` count characters, ``end`` excluded. ``text``: of a quoted name, the name."""

    kind: TokenKind
    text: str
    start: int
    end: int


#: Of what a word is made: all but white space and the signs of ASCII.
_WORD = r"[^\s!-/:-@\[-\^`{-~]"
#: Each begins with other characters than the others, or comes before those that begin with the same.
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
