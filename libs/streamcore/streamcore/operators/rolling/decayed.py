"""Totals in which a row counts the less the older it is: half after each half-life.

The total of a key at time t is the sum of ``value * 2 ** ((event time - t) / half-life)``. It changes with every
millisecond, so the operator emits its logarithm without t: ``log2(sum of value * 2 ** (event time / half-life))``, in
half-lives since 1970 (forward decay; Cormode et al., Forward Decay: A Practical Time Decay Model for Streaming Systems,
2009). It orders keys as the totals of any one moment do, and changes only with the rows of the key. The total at time t
is ``2 ** (score - t / half-life)``.

Rows are added up in steps of an eighth of a half-life, whose age is that of the step's beginning, and forgotten after
16 half-lives, when they count a 65,000th. The sum is computed from the steps in their order, so it does not depend on
the division of the input into cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.errors import ConfigError
from streamcore.operators.rolling.totals import RollingSpan, RollingTotals
from streamcore.operators.windows.aggregate_set import Columns, take_rows
from streamcore.watermark import END_OF_TIME_MS

_STEPS = 8
_HALF_LIVES = 16
#: What a row counts beside one at the beginning of its half-life, by step.
_WEIGHTS = 2.0 ** (np.arange(_STEPS) / _STEPS)


@dataclass(frozen=True)
class DecayedSpan(RollingSpan):
    """A span in which rows decay; made by ``half_life``."""


def half_life(name: str, half_life_ms: int) -> DecayedSpan:
    """Return the span of totals with this half-life in milliseconds. ``name`` ends the names of its columns."""
    if half_life_ms < _STEPS:
        raise ConfigError(f"half-life {name}: {half_life_ms} ms; at least {_STEPS}")
    step_ms = half_life_ms // _STEPS
    return DecayedSpan(name, _HALF_LIVES * _STEPS * step_ms, step_ms)


class DecayedTotals(RollingTotals):
    """The steps of a decayed span. A result is the score, minus infinity without rows or with a total up to 0."""

    def results_for(self, key_slots: Ints) -> Columns:
        """Return the score of each aggregate, of shape (key_slots,)."""
        numbers = self.slices.before(END_OF_TIME_MS)
        newest = numbers[-1] // _STEPS if numbers else 0
        names = [*self.aggregate_set.aggregates]
        sums = {name: np.zeros(len(key_slots)) for name in names}
        for number in numbers:
            entries = self.slices.find(number, key_slots)
            known = np.flatnonzero(entries >= 0)
            if not known.size:
                continue
            values = self.aggregate_set.values(take_rows(self.slices[number].partials, entries[known]))
            weight = np.ldexp(_WEIGHTS[number % _STEPS], number // _STEPS - newest)  # an exact power of two
            for name, series in zip(names, values, strict=False):
                sums[name][known] += series.cast(pl.Float64).fill_null(0.0).to_numpy() * weight
        return {name: _score(total, newest) for name, total in sums.items()}

    def series(self, results: Columns) -> list[pl.Series]:
        """Return the results as columns, null without rows."""
        return [
            pl.Series(name, values, nan_to_null=False).set(pl.Series(np.isneginf(values)), None)
            for name, values in results.items()
        ]


def _score(total: np.typing.NDArray[np.float64], newest: int) -> np.typing.NDArray[np.float64]:
    """Return log2 of the totals, which are in units of 2 ** ``newest``. The same bits come out for any unit."""
    mantissa, exponent = np.frexp(total)
    score = np.full(len(total), -np.inf)
    positive = total > 0
    score[positive] = np.log2(mantissa[positive]) + (exponent[positive] + newest)
    return score
