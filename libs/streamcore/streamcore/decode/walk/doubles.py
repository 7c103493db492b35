"""The double nearest to a decimal number, by integer arithmetic: the algorithm of Eisel and Lemire.

D. Lemire, "Number Parsing at a Gigabyte per Second", Software: Practice and Experience 51 (8), 2021,
https://arxiv.org/abs/2101.11408. The number is multiplied by the 128 upper bits of a power of five. The few products
from which the rounding cannot be told are refused. N. Mushtak and D. Lemire prove that they are rarer than the paper
knew ("Fast Number Parsing Without Fallback", 2023); the check here is the older one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcore.decode.walk.compiler import compiled
from streamcore.decode.walk.grammar import INVALID
from streamcore.decode.walk.words import (
    leading_zeros,
    product_high,
    product_low,
    shift_left,
    shift_right,
    unsigned_less,
    wrapped_sum,
)

#: With less than 64 bits before it, a number times a smaller power of ten is zero, and times a larger one infinite.
_SMALLEST_POWER: Final = -342
_LARGEST_POWER: Final = 308
#: Between these powers of five a product that is exactly in the middle of two doubles is possible.
_MIN_TIE_POWER, _MAX_TIE_POWER = -4, 23
#: Between these powers of five the table is exact, or as good as exact.
_MIN_SAFE_POWER, _MAX_SAFE_POWER = -27, 55
_FRACTION_BITS: Final = 52
#: Bits below those that decide the rounding of the upper half of a product.
_UNUSED_BITS: Final = 64 - _FRACTION_BITS - 3
_MIN_EXPONENT: Final = -1023
_INFINITE_EXPONENT: Final = 0x7FF


def _powers_of_five() -> list[int]:
    """Return the 128 upper bits of each power, in halves; those of negative powers are rounded up."""
    halves: list[int] = []
    for power in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        five = 5 ** abs(power)
        bits = five.bit_length()
        if power >= 0:
            upper = five << 128 >> bits
        else:
            # 1/five, times the power of two that gives it more than 128 bits, and then the upper ones.
            inverse = (1 << (bits + 127 if power >= _MIN_SAFE_POWER else 2 * bits + 128)) // five + 1
            upper = inverse >> max(0, inverse.bit_length() - 128)
        halves += [upper >> 64, upper & (2**64 - 1)]
    return halves


_POWERS = np.array(_powers_of_five(), np.uint64).view(np.int64)


@compiled
def nearest_double(number: int, power: int) -> int:
    """Return the bits of the double nearest to ``number`` * 10**``power``, ties to even.

    ``number``: at least 0. ``INVALID`` if the double is infinite, or the algorithm is not sure.
    """
    if number == 0 or power < _SMALLEST_POWER:
        return 0
    if power > _LARGEST_POWER:
        return INVALID
    zeros = leading_zeros(number)
    word = shift_left(number, zeros)
    place = 2 * (power - _SMALLEST_POWER)
    high, low = product_high(word, _POWERS[place]), product_low(word, _POWERS[place])
    if high & 0x1FF == 0x1FF:  # the lower half of the power may carry into the bits that are used
        carry = product_high(word, _POWERS[place + 1])
        low = wrapped_sum(low, carry)
        if unsigned_less(low, carry):
            high = wrapped_sum(high, 1)
    if low == -1 and (power < _MIN_SAFE_POWER or power > _MAX_SAFE_POWER):
        return INVALID
    upper = shift_right(high, 63)
    fraction = shift_right(high, upper + _UNUSED_BITS)
    exponent = (217706 * power >> 16) + 63 + upper - zeros - _MIN_EXPONENT
    if exponent <= 0:
        if exponent <= -63:
            return 0
        fraction = shift_right(fraction, 1 - exponent)
        fraction = (fraction + (fraction & 1)) >> 1
        # A subnormal that is rounded up to the smallest normal double has its bits, too.
        return fraction
    if (
        (low == 0 or low == 1)
        and _MIN_TIE_POWER <= power <= _MAX_TIE_POWER
        and fraction & 3 == 1
        and shift_left(fraction, upper + _UNUSED_BITS) == high
    ):
        fraction -= 1  # exactly in the middle: down to the even one
    fraction = (fraction + (fraction & 1)) >> 1
    if fraction >= 1 << (_FRACTION_BITS + 1):
        fraction = 1 << _FRACTION_BITS
        exponent += 1
    if exponent >= _INFINITE_EXPONENT:
        return INVALID
    return (exponent << _FRACTION_BITS) | (fraction & ((1 << _FRACTION_BITS) - 1))
