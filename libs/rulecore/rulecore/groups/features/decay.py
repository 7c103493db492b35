"""Time decay: an event counts half with every half-life that it lies back.

A pane stores the sum of its events' values as of the beginning of the pane: each value times two to the power of the
half-lives from there to its event. To move a sum to another time is one multiplication (Cormode, Shkapenyuk,
Srivastava, Xu: "Forward decay", 2009), so a pane is written once for each event and never again. The powers are
computed from additions and multiplications alone, which are the same on every processor.

A pane also has the latest time of its events. A sum is read as of the latest event that it has, if that is later than
the event at which it is read: so none counts more than once, whatever the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial, log
from typing import Final

import numpy as np
import numpy.typing as npt

from rulecore.groups.features.arrivals import Ints

Doubles = npt.NDArray[np.float64]

#: Farther than any sum is moved; two to this power has room for large sums below the largest double.
_MOST: Final = 900.0
#: In half-lives; with those of one pane, of which there are at most 500, less than ``_MOST``.
_FARTHEST_BACK: Final = 390.0
#: Of the Taylor series of 2^x; on [-0.5, 0.5] what is left out is below the last bit.
_COEFFICIENTS: Final = tuple(log(2.0) ** n / factorial(n) for n in range(17))


@dataclass(frozen=True, slots=True)
class TimeDecay:
    """The decay of a feature in panes of ``pane_ms``."""

    half_life_ms: int
    pane_ms: int

    def within_pane(self, times: Ints) -> Doubles:
        """Return the factors that move values from these times back to the beginning of their panes: 1 and more."""
        return powers_of_two(times % self.pane_ms / self.half_life_ms)

    def from_pane(self, times: Ints, latest: Ints) -> Doubles:
        """Return the factors that move sums from the beginning of the panes of these times to the times, or to
        ``latest``, those of the latest events in the sums, where they are later."""
        begin = times - times % self.pane_ms
        return powers_of_two((begin - np.maximum(times, latest)) / self.half_life_ms)

    def between(self, panes: Ints, to: Ints) -> Doubles:
        """Return the factors that move sums from the beginnings of ``panes`` to those of the panes ``to``.

        That of a pane so much later that its sum could exceed the largest double is 0.
        """
        half_lives = (panes - to) * self.pane_ms / self.half_life_ms
        return np.where(half_lives > _FARTHEST_BACK, 0.0, powers_of_two(half_lives))


def powers_of_two(exponents: Doubles) -> Doubles:
    """Return two to the power of each exponent, which counts as -900 below that and as 900 above."""
    exponents = np.clip(exponents, -_MOST, _MOST)
    whole = np.rint(exponents)
    fraction = exponents - whole
    power = np.full(len(exponents), _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        power = power * fraction + coefficient
    powers: Doubles = np.ldexp(power, whole.astype(np.int64))
    return powers
