"""Durations: text such as ``10m``, ``timedelta`` and milliseconds, and the fields of a program that take all three.

Settings, rules and resources take text, and use ``parse_duration_ms``. A program may also write a ``timedelta`` or a
whole number of milliseconds; ``duration_ms`` rejects numbers that look like seconds. Inside of the engine a duration is
a whole number of milliseconds, in a name that ends in ``_ms``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from streamcore.errors import ConfigError

#: What a program may write for a duration. A number is in milliseconds.
Duration = int | str | timedelta

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_TEXT = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)\Z")
_MS = timedelta(milliseconds=1)
_SECOND_MS = 1_000


class Milliseconds(int):
    """A duration that is in milliseconds for certain, such as one of a settings document: it may be below a second."""

    __slots__ = ()


def parse_duration_ms(text: str) -> int:
    """Convert ``500ms``, ``30s``, ``5m``, ``1h``, ``7d`` to milliseconds; raise ``ValueError`` for anything else."""
    if match := _TEXT.match(text):
        return int(match[1]) * _UNITS_MS[match[2]]
    raise ValueError(f"{text!r} is no duration; write a whole number and a unit: 500ms, 30s, 5m, 1h, 7d")


def render_duration(duration_ms: int) -> str:
    """Return the text in the largest exact unit, which ``parse_duration_ms`` reads back: 21600000 gives ``6h``."""
    if not duration_ms:
        return "0s"
    unit = next(unit for unit, size_ms in _UNITS_MS.items() if duration_ms % size_ms == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


def duration_ms(name: str, value: object) -> int:
    """Return the milliseconds of a duration that a program has written. ``name``: of the argument.

    ``ConfigError`` for floats and other types, for text that is no duration, for a ``timedelta`` of parts of
    milliseconds, and for whole numbers between 0 and 1,000, which are probably meant as seconds or minutes.
    """
    match value:
        case Milliseconds():
            return value
        case timedelta():
            whole, rest = divmod(value, _MS)
            if rest:
                raise ConfigError(f"{name}: {value} is no whole number of milliseconds")
            return Milliseconds(whole)
        case str():
            try:
                return Milliseconds(_signed_ms(value))
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
    if isinstance(value, bool | float) or not hasattr(value, "__index__"):
        raise ConfigError(f'{name}: takes text such as "10m", a timedelta or whole milliseconds, not {value!r}')
    number: int = value.__index__()
    if 0 < abs(number) < _SECOND_MS:
        raise ConfigError(
            f'{name}: {number} would be {number} milliseconds; write "{number}ms" if you mean that, or "{number}s", '
            f'"{number}m"'
        )
    return number


def _signed_ms(text: str) -> int:
    return -parse_duration_ms(text[1:]) if text.startswith("-") else parse_duration_ms(text)


class DurationField:
    """A field of a dataclass: it takes a ``Duration`` (see ``duration_ms``), and its value is in milliseconds.

    The dataclass has no slots. ``default``: None if the field must be given.
    """

    def __init__(self, default: int | None = None) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> int:
        if instance is not None:
            value: int = instance.__dict__[self._name]
            return value
        if self._default is None:  # so that ``dataclass`` sees a field without a default
            raise AttributeError(self._name)
        return self._default

    def __set__(self, instance: object, value: Duration) -> None:
        instance.__dict__[self._name] = duration_ms(self._name, value)
