"""Reads JSON numbers as whole numbers, decimals and doubles, exactly."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcore.decode.walk.compiler import inlined
from streamcore.decode.walk.doubles import nearest_double
from streamcore.decode.walk.grammar import INVALID, MINUS, PLUS, POINT, is_digit
from streamcore.decode.walk.words import Bytes, byte, shift_left

#: The largest number that a digit can be added to, whatever the digit.
_MAX_EXTENDED: Final = (2**63 - 1) // 10 - 1
#: A larger exponent is cut off: it is beyond every type.
_MAX_EXPONENT: Final = 99_999
_MAX_DIGITS: Final = 18
_POWERS_OF_TEN = np.array([10**n for n in range(_MAX_DIGITS + 1)], np.int64)


@inlined
def read_digits(data: Bytes, at: int, digits: int, exact: bool) -> tuple[int, int, bool]:
    """Return the position behind the digits at ``at``, ``digits`` with these, and whether it has all of them."""
    digit = byte(data, at) - 48
    while 0 <= digit <= 9:
        if digits <= _MAX_EXTENDED:
            digits = digits * 10 + digit
        else:
            exact = False
        at += 1
        digit = byte(data, at) - 48
    return at, digits, exact


@inlined
def read_number(data: Bytes, at: int) -> tuple[int, int, int, bool, bool, bool]:
    """Return the position behind a number, and its parts.

    The parts: its digits as a number, the power of ten that these are times, whether it has a minus, whether it is
    written without fraction and exponent, and whether the digits are all of them.
    """
    minus = byte(data, at) == MINUS
    if minus:
        at += 1
    digits, power, exact = 0, 0, True
    digit = byte(data, at) - 48
    if digit < 0 or digit > 9:
        return INVALID, 0, 0, minus, False, False
    if digit == 0:
        at += 1
    else:
        at, digits, exact = read_digits(data, at, digits, exact)
    whole = True
    if byte(data, at) == POINT:
        whole = False
        at += 1
        first = at
        at, digits, exact = read_digits(data, at, digits, exact)
        if at == first:
            return INVALID, 0, 0, minus, False, False
        power = first - at
    if byte(data, at) | 32 == 101:  # e or E
        whole = False
        at += 1
        negative = byte(data, at) == MINUS
        if negative or byte(data, at) == PLUS:
            at += 1
        first = at
        exponent = 0
        while is_digit(byte(data, at)):
            if exponent <= _MAX_EXPONENT:
                exponent = exponent * 10 + byte(data, at) - 48
            at += 1
        if at == first:
            return INVALID, 0, 0, minus, False, False
        power += -exponent if negative else exponent
    return at, digits, power, minus, whole, exact


@inlined
def read_whole(data: Bytes, at: int) -> tuple[int, int]:
    """Return the position behind a whole number, and the number. ``INVALID`` near the limits of an int64, too."""
    behind, digits, _, minus, whole, exact = read_number(data, at)
    if not whole or not exact:
        return INVALID, 0
    return behind, -digits if minus else digits


@inlined
def read_double(data: Bytes, at: int) -> tuple[int, int]:
    """Return the position behind a number, and the bits of the nearest double."""
    behind, digits, power, minus, _, exact = read_number(data, at)
    if behind < 0 or not exact:
        return INVALID, 0
    bits = nearest_double(digits, power)
    if bits < 0:
        return INVALID, 0
    return behind, bits | shift_left(1, 63) if minus else bits


@inlined
def read_decimal(data: Bytes, at: int, precision: int, scale: int) -> tuple[int, int]:
    """Return the position behind a number, and the number times 10**scale. ``INVALID`` if it does not fit."""
    behind, digits, power, minus, _, exact = read_number(data, at)
    if behind < 0 or not exact or power > _MAX_EXPONENT or power < -_MAX_EXPONENT:
        return INVALID, 0
    if digits == 0:
        return behind, 0
    power += scale
    while power < 0 and digits % 10 == 0:
        digits //= 10
        power += 1
    if power < 0 or power > precision or digits >= _POWERS_OF_TEN[precision - power]:
        return INVALID, 0
    digits *= _POWERS_OF_TEN[power]
    return behind, -digits if minus else digits
