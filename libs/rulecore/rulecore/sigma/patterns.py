"""Sigma's text values: wildcards with escapes, and the modifiers that make other values of a value.

A pattern is a tuple of characters and wildcards. Encodings make bytes of a text, which only Base64 turns back into one.
"""

from __future__ import annotations

import base64
import enum
from typing import Final

from rulecore.sigma.problems import CannotImport


class Wild(enum.Enum):
    """``ANY``: ``*``. ``ONE``: ``?``. ``DASH``: one of the characters that begin an option of a command."""

    ANY = "*"
    ONE = "?"
    DASH = "-"


Pattern = tuple[str | Wild, ...]
DASHES: Final = "-/\u2013\u2014\u2015"
_ENCODINGS: Final = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be", "utf16": "utf-16-le"}
TEXT_MODIFIERS: Final = frozenset(
    {"contains", "startswith", "endswith", "windash", "base64", "base64offset", *_ENCODINGS}
)


def read_pattern(text: str) -> Pattern:
    r"""``\`` escapes ``*``, ``?`` and itself; before anything else it is a plain character."""
    tokens: list[str | Wild] = []
    characters = iter(range(len(text)))
    for index in characters:
        character = text[index]
        if character == "\\" and text[index + 1 : index + 2] in ("\\", "*", "?"):
            tokens.append(text[next(characters)])
        elif character in "*?":
            tokens.append(Wild(character))
        else:
            tokens.append(character)
    return tuple(tokens)


def plain(pattern: Pattern) -> str | None:
    """The text of a pattern without wildcards, else None."""
    texts = [token for token in pattern if isinstance(token, str)]
    return "".join(texts) if len(texts) == len(pattern) else None


def modified(patterns: list[Pattern], modifiers: tuple[str, ...]) -> list[Pattern]:
    """The patterns after ``TEXT_MODIFIERS``, applied in their order."""
    values: list[Pattern | bytes] = [*patterns]
    for name in modifiers:
        if name in _ENCODINGS:
            values = [_encoded(value, name) for value in values]
        elif name == "base64":
            values = [tuple(base64.b64encode(_bytes(value, name)).decode()) for value in values]
        elif name == "base64offset":
            values = [tuple(_base64_at(_bytes(value, name), shift)) for value in values for shift in range(3)]
        else:
            values = [_surrounded(_text(value), name) for value in values]
    return [_text(value) for value in values]


def _surrounded(pattern: Pattern, name: str) -> Pattern:
    if name == "windash":
        return tuple(Wild.DASH if _is_option(pattern, i) else token for i, token in enumerate(pattern))
    before: Pattern = (Wild.ANY,) if name in ("contains", "endswith") and pattern[:1] != (Wild.ANY,) else ()
    after: Pattern = (Wild.ANY,) if name in ("contains", "startswith") and pattern[-1:] != (Wild.ANY,) else ()
    return before + pattern + after if pattern else (Wild.ANY,)


def _is_option(pattern: Pattern, index: int) -> bool:
    """A dash or slash that begins a word."""
    token = pattern[index]
    if not isinstance(token, str) or token not in DASHES:
        return False
    before = pattern[index - 1] if index else " "
    after = pattern[index + 1] if index + 1 < len(pattern) else " "
    return not _in_word(before) and _in_word(after)


def _in_word(part: str | Wild) -> bool:
    return isinstance(part, str) and (part.isalnum() or part == "_")


def _encoded(value: Pattern | bytes, name: str) -> bytes:
    mark = b"\xff\xfe" if name == "utf16" else b""
    return mark + _letters(value, name).encode(_ENCODINGS[name], "surrogatepass")


def _bytes(value: Pattern | bytes, name: str) -> bytes:
    return value if isinstance(value, bytes) else _letters(value, name).encode("utf-8", "surrogatepass")


def _letters(value: Pattern | bytes, name: str) -> str:
    if isinstance(value, bytes):
        raise CannotImport(f"{name} of a value that is encoded already")
    text = plain(value)
    if text is None:
        raise CannotImport(f"{name} of a value with wildcards has no meaning; escape them, or put contains behind it")
    return text


def _text(value: Pattern | bytes) -> Pattern:
    if isinstance(value, bytes):
        raise CannotImport("an encoding makes bytes, which no text column holds; follow it with base64 or base64offset")
    return value


def _base64_at(value: bytes, shift: int) -> str:
    """The characters that follow from ``value`` alone when ``shift`` bytes (modulo 3) stand before it.

    A character holds 6 bits. The first that has no bit of what comes before is at ``ceil(8 * shift / 6)``, and
    ``8 * (shift + length) // 6`` are complete.
    """
    first, last = -(-8 * shift // 6), 8 * (shift + len(value)) // 6
    encoded = base64.b64encode(b"\0" * shift + value).decode()[first:last]
    if not encoded:
        raise CannotImport("base64offset of a value so short that nothing of it is certain")
    return encoded
