"""Labels of windows and durations."""

from __future__ import annotations

import pytest

from streamcore.topology.labels import describe_windows, format_duration
from streamcore.windowing import (
    Assigner,
    CalendarDay,
    CountSliding,
    CountTumbling,
    GlobalWindow,
    Session,
    Sliding,
    Tumbling,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (5_400_000, "90 min"),
        (3_600_000, "1 h"),
        (-5_000, "-5 s"),
        (172_800_000, "2 d"),
        (1_001, "1001 ms"),
    ],
)
def test_a_duration_is_formatted_in_the_largest_unit_without_a_remainder(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("assigner", "text"),
    [
        (Tumbling(3_600_000, 60_000), "tumbling 1 h, offset 1 min"),
        (Sliding(3_600_000, 900_000), "sliding 1 h every 15 min"),
        (Session(1_800_000, "gap"), "session, gap 30 min or column gap"),
        (CalendarDay("Europe/Paris"), "day in Europe/Paris"),
        (CountTumbling(10), "every 10 elements"),
        (CountSliding(10, 2), "10 elements, every 2"),
        (GlobalWindow(), "global"),
    ],
)
def test_every_assigner_has_a_label(assigner: Assigner, text: str) -> None:
    assert describe_windows(assigner) == text
