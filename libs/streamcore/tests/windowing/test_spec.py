"""Invalid specs are rejected when they are created, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from streamcore.errors import ConfigError
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Assigner,
    CalendarDay,
    CountSliding,
    CountTumbling,
    GlobalWindow,
    InSequence,
    KeepCount,
    KeepNear,
    KeepRecent,
    Never,
    OrFinally,
    Purging,
    Repeatedly,
    Session,
    Sliding,
    Trigger,
    Tumbling,
    WindowSpec,
)

TEN = Tumbling("10ms")
ACCUMULATING, DISCARDING, RETRACTING = Accumulation.ACCUMULATING, Accumulation.DISCARDING, Accumulation.RETRACTING
REJECTED: list[tuple[Callable[[], object], str]] = [
    (lambda: Tumbling(0), "size_ms must be positive"),
    (lambda: Tumbling("10ms", "10ms"), "offset_ms must be within one size_ms"),
    (lambda: Sliding("10ms", 0), "slide_ms must be positive"),
    (lambda: Sliding("10ms", "5ms", "-5ms"), "offset_ms must be within one slide_ms"),
    (lambda: Session(0), "gap_ms must be positive"),
    (lambda: CalendarDay("Europe/Atlantis"), "not a zone of the IANA database"),
    (lambda: CalendarDay("../etc/passwd"), "not a zone of the IANA database"),
    (lambda: CountTumbling(0), "count must be positive"),
    (lambda: CountSliding(2, 0), "every must be positive"),
    (lambda: CountSliding(2, 3), "leaves elements without a window"),
    (lambda: AfterCount(0), "positive count"),
    (lambda: AfterProcessingTime("-1ms"), "must not be negative"),
    (lambda: AfterWatermark(early=AfterWatermark()), "early must not contain AfterWatermark"),
    (lambda: AfterWatermark(late=Repeatedly(AfterWatermark())), "late must not contain AfterWatermark"),
    (lambda: AllOf(AfterCount(1)), "AllOf needs at least two"),
    (AnyOf, "AnyOf needs at least two"),
    (lambda: InSequence(Repeatedly(AfterCount(1)), AfterCount(1)), "never finishes"),
    (lambda: KeepCount(0), "positive count"),
    (lambda: KeepRecent(0), "must be positive"),
    (lambda: KeepNear("v", Decimal(0)), "must be positive"),
    (lambda: WindowSpec(TEN, AfterWatermark(), DISCARDING, "-1ms"), "must not be negative"),
    (lambda: WindowSpec(TEN, AfterWatermark(), DISCARDING, "5ms"), r"late=AfterCount\(1\)"),
    (lambda: WindowSpec(TEN, Purging(AfterWatermark()), ACCUMULATING, "5ms"), "no effect"),
    (lambda: WindowSpec(GlobalWindow(), Never(), DISCARDING, "5ms"), "leave out allowed_lateness_ms"),
    (lambda: WindowSpec(CountTumbling(2), Never(), DISCARDING, "5ms"), "leave out allowed_lateness_ms"),
    (lambda: WindowSpec(TEN, Purging(AfterWatermark()), DISCARDING), "leave out Purging"),
    (lambda: WindowSpec(TEN, AfterWatermark(early=Purging(AfterCount(1))), RETRACTING), "use Accumulation.ACCUM"),
    (lambda: WindowSpec(TEN, AfterWatermark(), DISCARDING, evictor=KeepCount(1)), "use ACCUMULATING or RETRACTING"),
    (lambda: WindowSpec(Session("5ms"), AfterCount(2), DISCARDING), "wrap the trigger in Repeatedly"),
    (lambda: WindowSpec(Session("5ms"), AnyOf(AfterWatermark(), AfterCount(2)), DISCARDING), "in Repeatedly"),
    (lambda: WindowSpec(Session("5ms"), AllOf(AfterWatermark(), AfterCount(2)), DISCARDING, "5ms"), "in Repeatedly"),
]


@pytest.mark.parametrize(("make", "message"), REJECTED, ids=[message for _, message in REJECTED])
def test_an_invalid_spec_is_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [
        (Session("5ms"), AfterWatermark()),
        (Session("5ms"), AllOf(AfterWatermark(), AfterCount(2))),
        (Session("5ms"), InSequence(AfterCount(1), AfterWatermark())),
        (Session("5ms"), Never()),
        (TEN, OrFinally(AfterWatermark(), AfterCount(2))),
        (GlobalWindow(), Purging(Repeatedly(AfterCount(2)))),
    ],
)
def test_a_valid_spec_is_accepted(assigner: Assigner, trigger: Trigger) -> None:
    spec = WindowSpec(assigner, trigger, ACCUMULATING)
    assert spec == WindowSpec(assigner, trigger, ACCUMULATING)
    assert hash(spec) == hash(WindowSpec(assigner, trigger, ACCUMULATING))


def test_the_text_of_a_trigger_shows_its_parts() -> None:
    assert str(AllOf(AfterCount(2), Never())) == "AllOf(triggers=(AfterCount(count=2), Never()))"
    assert AllOf(AfterCount(2), Never()) != AllOf(AfterCount(3), Never())
