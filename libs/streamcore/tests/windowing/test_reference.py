"""Edge cases of the reference: misuse, values of its functions, and its lane of dropped elements."""

from __future__ import annotations

from decimal import Decimal

import pytest

from streamcore.aggregates import Count
from streamcore.windowing import (
    Accumulation,
    AfterWatermark,
    DroppedElement,
    DropReason,
    Element,
    KeepNear,
    ReferenceWindows,
    Tumbling,
    Window,
    WindowSpec,
)
from streamcore.windowing.model import Scalar

SPEC = WindowSpec(Tumbling("10ms"), AfterWatermark(), Accumulation.DISCARDING)


def elements(*values: Scalar) -> list[Element]:
    return [Element("a", {"v": value}, 100 - number, number) for number, value in enumerate(values)]


def test_no_input_is_accepted_after_the_end_of_the_stream() -> None:
    windows = ReferenceWindows(SPEC, Count())
    windows.end_of_stream()
    for late in (
        windows.end_of_stream,
        lambda: windows.watermark(5),
        lambda: windows.clock(5),
        lambda: windows.element("a", {}, 5),
    ):
        with pytest.raises(ValueError, match="stream has ended"):
            late()


def test_the_lane_of_dropped_elements_has_reason_and_lateness() -> None:
    windows = ReferenceWindows(SPEC, Count())
    windows.watermark(25)
    (dropped,) = windows.element("a", {"v": 7}, 8).dropped
    assert dropped == DroppedElement(Element("a", {"v": 7}, 8, 0), Window(0, 10), DropReason.EXPIRED, 17)


def test_an_evictor_by_distance_keeps_elements_without_a_number() -> None:
    kept = KeepNear("v", Decimal(3)).keep(elements(1, None, 9, 7, None))
    assert [element.value["v"] for element in kept] == [None, 9, 7, None]
    assert len(KeepNear("v", Decimal(3)).keep(elements(None, "x"))) == 2
