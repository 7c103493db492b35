"""Running totals are those of a loop over the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rulecore.groups.windows.running as module
from rulecore.groups.windows.aggregation import Combine, Partial
from rulecore.groups.windows.running import running

NUMBERS = {
    True: st.integers(-9, 9),
    False: st.sampled_from([0.1, 0.2, 0.7, -1e16, 1e16, 1.0, math.inf, -math.inf, math.nan]),
}
#: Of each segment its number, which is an index of the bases, and how many rows it has.
SEGMENTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=6, unique_by=lambda one: one[0])


def combine(how: Combine, left: float, right: float) -> float:
    if how is Combine.SUM:
        return left + right
    if math.isnan(left) or math.isnan(right):
        return math.nan
    return min(left, right) if how is Combine.MIN else max(left, right)


def expected(
    how: Combine, values: Sequence[float], segment: Sequence[int], base: Sequence[float], before: bool
) -> list[float]:
    found: list[float] = []
    total = math.nan
    for row, value in enumerate(values):
        is_first = row == 0 or segment[row - 1] != segment[row]
        start = base[segment[row]] if is_first else total
        total = combine(how, start, value)
        found.append(start if before else total)
    return found


@pytest.mark.parametrize("how", Combine)
@pytest.mark.parametrize("whole", [True, False])
@given(data=st.data(), segments=SEGMENTS.map(sorted), before=st.booleans())
def test_each_row_has_the_total_of_its_segment(
    how: Combine, whole: bool, data: st.DataObject, segments: list[tuple[int, int]], before: bool
) -> None:
    partial = Partial("x", how, whole)
    segment = [number for number, rows in segments for _ in range(rows)]
    values = data.draw(st.lists(NUMBERS[whole], min_size=len(segment), max_size=len(segment)))
    base = data.draw(st.lists(NUMBERS[whole], min_size=21, max_size=21))
    columns = (np.array(values, partial.dtype), np.array(segment, np.int64), np.array(base, partial.dtype))
    for few in (0, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_FEW_ROWS", few)
            found = running(partial, *columns, before=before)
        assert found.dtype == partial.dtype
        np.testing.assert_array_equal(found, np.array(expected(how, values, segment, base, before), partial.dtype))


@pytest.mark.parametrize("few", [0, 64])
def test_a_sum_of_whole_numbers_wraps_around_as_in_numpy(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW_ROWS", few)
    most = np.iinfo(np.int64).max
    found = running(Partial("n", Combine.SUM, whole=True), np.array([1]), np.array([0]), np.array([most]))
    assert found.tolist() == [np.iinfo(np.int64).min]
