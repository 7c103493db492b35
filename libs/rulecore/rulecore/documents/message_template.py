"""The template of an alert's message: text with placeholders ``{name}``.

A template is parsed once, when the rule is checked, and an unknown name is an error then. Formatting only joins texts:
Python's attribute access, indexes, nesting and all format specifications but ``:.2f`` and the like are not accepted, so
a message cannot reach anything but the values of its names. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rulecore.errors import ExpressionError

MAX_VALUE_CHARACTERS = 200
_FIELD = "then.message"
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
#: What rounds a number to so many places, behind its name.
_PLACES = re.compile(r":\.([0-9])f\Z")


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """A parsed template. ``parts`` alternate: text, name, text, name, ..., text. ``places``: for each name, the number
    of decimal places to which its number is rounded, None for all."""

    parts: tuple[str, ...]
    places: tuple[int | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the placeholders in order, with repetitions."""
        return self.parts[1::2]

    def format(self, value_of: Callable[[str], Any]) -> str:
        """Return the text, each name replaced by its value (see ``format_value``)."""
        return "".join(
            format_value(value_of(part), self.places[i // 2]) if i % 2 else part for i, part in enumerate(self.parts)
        )


def format_value(value: Any, places: int | None = None) -> str:
    """Return a logical value as text: NULL as ``null``, decimals with all digits, arrays as JSON, long text cut.

    ``places``: of a number, the decimal places to which it is rounded, half to even.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if places is not None:
        return shorten(format(Decimal(value) if isinstance(value, int) else value, f".{places}f"))
    if isinstance(value, list | dict):
        return shorten(json.dumps(value, default=format_value, ensure_ascii=False))
    return shorten(format(value, "f") if isinstance(value, Decimal) else str(value))


def shorten(text: str) -> str:
    """Return a text of at most ``MAX_VALUE_CHARACTERS``."""
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


def find_placeholders(text: str) -> tuple[str, ...]:
    """Return the names of the placeholders in order, with repetitions, whether they are known or not."""
    return tuple(_PLACES.sub("", match[1]) for match in _TOKEN.finditer(text) if match[1] is not None)


def parse_template(
    text: str, known: Collection[str], more: str = "", numbers: Collection[str] | None = None
) -> MessageTemplate:
    """Parse a template. Raise ``ExpressionError`` (field ``then.message``) for a single brace or an unknown name, and
    for places of what is no number.

    ``more``: what else is known, for the error. ``numbers``: the names of numbers; None for all that are known.
    """
    parts, places = [""], list[int | None]()
    end = 0
    for match in _TOKEN.finditer(text):
        parts[-1] += text[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            parts[-1] += match[0][0]
        elif match[1] is None:
            hint = "write {{ or }} for a brace itself"
            raise ExpressionError(f"a stray {match[0]}", field=_FIELD, text=text, start=match.start(), hint=hint)
        else:
            name, found = _PLACES.sub("", match[1]), _PLACES.search(match[1])
            parts += [_check_known(name, text, match.start(), known, more), ""]
            places.append(None if found is None else int(found[1]))
            if found is not None and numbers is not None and name not in numbers:
                message, length = f"{{{match[1]}}}: {name} is no number", len(match[0])
                hint = f"write {{{name}}}"
                raise ExpressionError(message, field=_FIELD, text=text, start=match.start(), length=length, hint=hint)
    parts[-1] += text[end:]
    return MessageTemplate(tuple(parts), tuple(places))


def _check_known(name: str, text: str, start: int, known: Collection[str], more: str) -> str:
    if name in known:
        return name
    hint = f"known here: {', '.join('{' + n + '}' for n in sorted(known))}{more}"
    raise ExpressionError(
        f"unknown name {{{name}}}", field=_FIELD, text=text, start=start, length=len(name) + 2, hint=hint
    )
