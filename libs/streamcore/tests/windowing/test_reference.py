"""The reference's edges: misuse, values of its functions, and its lane of the dropped."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.windowing import (
    Accumulation,
    AfterWatermark,
    Aggregate,
    Aggregation,
    Dropped,
    DropReason,
    Element,
    KeepNear,
    ReferenceWindows,
    Tumbling,
    Window,
    WindowSpec,
)
from streamcore.windowing.values import Result, Scalar

SPEC = WindowSpec(Tumbling(10), AfterWatermark(), Accumulation.DISCARDING)


def elements(*values: Scalar) -> list[Element]:
    return [Element("a", {"v": value}, 100 - number, number) for number, value in enumerate(values)]


def test_nothing_comes_after_the_end_of_the_stream() -> None:
    windows = ReferenceWindows(SPEC, Aggregate(Aggregation.COUNT))
    windows.end_of_stream()
    for late in (
        windows.end_of_stream,
        lambda: windows.watermark(5),
        lambda: windows.clock(5),
        lambda: windows.element("a", {}, 5),
    ):
        with pytest.raises(ValueError, match="stream has ended"):
            late()


def test_the_lane_of_the_dropped_holds_the_element_with_the_reason_and_the_lateness() -> None:
    windows = ReferenceWindows(SPEC, Aggregate(Aggregation.COUNT))
    windows.watermark(25)
    (dropped,) = windows.element("a", {"v": 7}, 8).dropped
    assert dropped == Dropped(Element("a", {"v": 7}, 8, 0), Window(0, 10), DropReason.EXPIRED, 17)


@pytest.mark.parametrize(
    ("aggregation", "of_some", "of_none"),
    [
        (Aggregation.COUNT, 3, 0),
        (Aggregation.SUM, Decimal("9.5"), Decimal(0)),
        (Aggregation.MIN, Decimal("0.5"), None),
        (Aggregation.MAX, Decimal(5), None),
        (Aggregation.MEAN, Decimal("3.166666666666666666666666667"), None),
        (Aggregation.COLLECT, (4, 5, 0.5), ()),
        (Aggregation.FIRST, 0.5, None),
        (Aggregation.LAST, 4, None),
    ],
)
def test_a_function_leaves_out_missing_values(aggregation: Aggregation, of_some: Result, of_none: Result) -> None:
    compute = Aggregate(aggregation, "v")
    assert compute(elements(4, None, 5, 0.5)) == of_some
    assert compute(elements(None)) == of_none
    assert compute([]) == of_none


def test_a_count_without_a_field_counts_elements() -> None:
    assert Aggregate(Aggregation.COUNT)(elements(4, None)) == 2


@given(st.lists(st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)))
def test_sums_do_not_depend_on_the_order_of_their_terms(values: list[int | float]) -> None:
    total = Aggregate(Aggregation.SUM, "v")
    assert total(elements(*values)) == total(elements(*reversed(values)))
    assert total(elements(*values, *(-value for value in values))) == 0


@pytest.mark.parametrize("value", ["7", True, float("nan"), float("inf")])
def test_only_finite_numbers_are_summed(value: Scalar) -> None:
    with pytest.raises(ConfigError, match="needs finite numbers"):
        Aggregate(Aggregation.SUM, "v")(elements(1, value))


def test_an_element_without_a_number_has_no_distance_and_stays() -> None:
    kept = KeepNear("v", Decimal(3)).keep(elements(1, None, 9, 7, None))
    assert [element.value["v"] for element in kept] == [None, 9, 7, None]
    assert len(KeepNear("v", Decimal(3)).keep(elements(None, "x"))) == 2
