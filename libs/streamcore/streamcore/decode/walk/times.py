"""Reads timestamps as text (``streamcore.timestamps`` says which)."""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.compiler import compiled, inlined
from streamcore.decode.walk.grammar import COLON, MINUS, PLUS, POINT, is_digit
from streamcore.decode.walk.words import Bytes, byte

NO_TIME, UTC_TIME, LOCAL_TIME = 0, 1, 2
_NO_DIGITS: Final = -1000
_SHORTEST: Final = len("2026-01-31T12:00")
_T, _SPACE, _Z = ord("T"), ord(" "), ord("Z")


@inlined
def two_digits(data: Bytes, at: int) -> int:
    """Return the value of two digits, or a number so negative that the sum with others is, too."""
    tens, ones = byte(data, at) - 48, byte(data, at + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else _NO_DIGITS


@inlined
def month_days(year: int, month: int) -> int:
    """Return the number of days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@inlined
def epoch_days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms")."""
    if month <= 2:
        year, month = year - 1, month + 12
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


@compiled
def read_time(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the milliseconds since 1970 of a text, and what it is: no time, one in UTC, or a local one.

    The byte at ``end`` is no digit.
    """
    if end - at < _SHORTEST:
        return 0, NO_TIME
    year = two_digits(data, at) * 100 + two_digits(data, at + 2)
    month, day = two_digits(data, at + 5), two_digits(data, at + 8)
    hour, minute, second = two_digits(data, at + 11), two_digits(data, at + 14), 0
    separator = byte(data, at + 10)
    if (
        byte(data, at + 4) != MINUS
        or byte(data, at + 7) != MINUS
        or (separator != _T and separator != _SPACE)
        or byte(data, at + 13) != COLON
    ):
        return 0, NO_TIME
    at += _SHORTEST
    millis = 0
    if byte(data, at) == COLON:
        second = two_digits(data, at + 1)
        at += 3
        if second >= 0 and byte(data, at) == POINT:
            at += 1
            first = at
            while is_digit(byte(data, at)):
                if at - first < 3:
                    millis = millis * 10 + byte(data, at) - 48
                at += 1
            count = at - first
            if count == 0 or count > 9:
                return 0, NO_TIME
            while count < 3:
                millis *= 10
                count += 1
    if year < 1 or month < 1 or month > 12 or day < 1 or day > month_days(year, month):
        return 0, NO_TIME
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, NO_TIME
    local = (epoch_days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000 + millis
    if at == end:
        return local, LOCAL_TIME
    sign = byte(data, at)
    if sign == _Z:
        return local, UTC_TIME if at + 1 == end else NO_TIME
    if sign != PLUS and sign != MINUS:
        return 0, NO_TIME
    hours, minutes = two_digits(data, at + 1), 0
    at += 3
    if hours >= 0 and at != end:
        if byte(data, at) == COLON:
            at += 1
        minutes = two_digits(data, at)
        at += 2
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59 or at != end:
        return 0, NO_TIME
    ahead = (hours * 60 + minutes) * 60_000
    return local - ahead if sign == PLUS else local + ahead, UTC_TIME
