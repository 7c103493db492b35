"""Sigma's text values: wildcards with escapes, and the modifiers that change a value.

A pattern is a tuple of characters and wildcards. A modifier of an encoding makes bytes of it, and only a Base64
modifier makes a pattern of these again.
"""

from __future__ import annotations

import base64
import enum
from typing import Final

from rulecore.sigma.errors import SigmaImportError


class Wildcard(enum.Enum):
    """``ANY``: any text. ``ONE``: any character. ``DASH``: one of ``DASHES``, which begin an option of a command."""

    ANY = "*"
    ONE = "?"
    DASH = "-"


Pattern = tuple[str | Wildcard, ...]
DASHES: Final = "-/\u2013\u2014\u2015"
_ENCODINGS: Final = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be", "utf16": "utf-16-le"}
TEXT_MODIFIERS: Final = frozenset(
    {"contains", "startswith", "endswith", "windash", "base64", "base64offset", *_ENCODINGS}
)


def read_pattern(text: str) -> Pattern:
    r"""Read a pattern: ``\`` escapes ``*``, ``?`` and itself; before anything else it is a plain character."""
    tokens: list[str | Wildcard] = []
    characters = iter(range(len(text)))
    for index in characters:
        character = text[index]
        if character == "\\" and text[index + 1 : index + 2] in ("\\", "*", "?"):
            tokens.append(text[next(characters)])
        elif character in "*?":
            tokens.append(Wildcard(character))
        else:
            tokens.append(character)
    return tuple(tokens)


def literal_text(pattern: Pattern) -> str | None:
    """Return the text of a pattern without wildcards, else None."""
    texts = [token for token in pattern if isinstance(token, str)]
    return "".join(texts) if len(texts) == len(pattern) else None


def apply_modifiers(patterns: list[Pattern], modifiers: tuple[str, ...]) -> list[Pattern]:
    """Return the patterns after ``TEXT_MODIFIERS``, applied in their order."""
    values: list[Pattern | bytes] = [*patterns]
    for name in modifiers:
        if name in _ENCODINGS:
            values = [_encode(value, name) for value in values]
        elif name == "base64":
            values = [tuple(base64.b64encode(_as_bytes(value, name)).decode()) for value in values]
        elif name == "base64offset":
            values = [tuple(_base64_at(_as_bytes(value, name), shift)) for value in values for shift in range(3)]
        else:
            values = [_modify(_as_pattern(value), name) for value in values]
    return [_as_pattern(value) for value in values]


def _modify(pattern: Pattern, name: str) -> Pattern:
    if name == "windash":
        return tuple(Wildcard.DASH if _is_option(pattern, i) else token for i, token in enumerate(pattern))
    before: Pattern = (Wildcard.ANY,) if name in ("contains", "endswith") and pattern[:1] != (Wildcard.ANY,) else ()
    after: Pattern = (Wildcard.ANY,) if name in ("contains", "startswith") and pattern[-1:] != (Wildcard.ANY,) else ()
    return before + pattern + after if pattern else (Wildcard.ANY,)


def _is_option(pattern: Pattern, index: int) -> bool:
    """Return whether the token is a dash or slash that begins a word."""
    token = pattern[index]
    if not isinstance(token, str) or token not in DASHES:
        return False
    before = pattern[index - 1] if index else " "
    after = pattern[index + 1] if index + 1 < len(pattern) else " "
    return not _in_word(before) and _in_word(after)


def _in_word(part: str | Wildcard) -> bool:
    return isinstance(part, str) and (part.isalnum() or part == "_")


def _encode(value: Pattern | bytes, name: str) -> bytes:
    mark = b"\xff\xfe" if name == "utf16" else b""
    return mark + _as_text(value, name).encode(_ENCODINGS[name], "surrogatepass")


def _as_bytes(value: Pattern | bytes, name: str) -> bytes:
    return value if isinstance(value, bytes) else _as_text(value, name).encode("utf-8", "surrogatepass")


def _as_text(value: Pattern | bytes, name: str) -> str:
    if isinstance(value, bytes):
        raise SigmaImportError(f"{name} of a value that is encoded already")
    text = literal_text(value)
    if text is None:
        raise SigmaImportError(
            f"{name} of a value with wildcards has no meaning; escape them, or put contains after it"
        )
    return text


def _as_pattern(value: Pattern | bytes) -> Pattern:
    if isinstance(value, bytes):
        raise SigmaImportError(
            "an encoding makes bytes, which no text column holds; follow it with base64 or base64offset"
        )
    return value


def _base64_at(value: bytes, shift: int) -> str:
    """Return the Base64 characters that depend on ``value`` alone when ``shift`` bytes (modulo 3) precede it.

    A character holds 6 bits. The first that has no bit of the preceding text is at ``ceil(8 * shift / 6)``, and
    ``8 * (shift + length) // 6`` are complete.
    """
    first, last = -(-8 * shift // 6), 8 * (shift + len(value)) // 6
    encoded = base64.b64encode(b"\0" * shift + value).decode()[first:last]
    if not encoded:
        raise SigmaImportError("base64offset of a value that is too short")
    return encoded
