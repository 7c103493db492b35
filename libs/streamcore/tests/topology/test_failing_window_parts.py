"""An assigner, a trigger or an evictor of the user sees the columns; if it fails, only its element or pane is lost."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest

from streamcore.aggregates import Count, Sum
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation, SimulationResult, simulate
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Assigner, Evictor, Session, Trigger, Tumbling
from streamcore.windowing.model import Element, Window
from streamcore.windowing.triggers import Earliest, TriggerContext, TriggerState

SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "n": "long not null"},
    }
)
KEYED = source(SCHEMA, bounded_out_of_orderness("20ms")).key_by("user")
#: What a poisoned key has in ``n``.
POISON = 1_000


@dataclass(frozen=True)
class BySize(Assigner):
    """Windows of the length ``n``."""

    returned: Any = None

    def windows(self, element: Element) -> tuple[Window, ...]:
        n = element.value["n"]
        assert isinstance(n, int)
        if n >= POISON:
            if self.returned is not None:
                return self.returned  # type: ignore[no-any-return]
            raise ValueError("poison")
        start_ms = element.event_ms // n * n
        return (Window(start_ms, start_ms + n),)


@dataclass(frozen=True)
class AtEach(Trigger):
    """Fires at the end, and fails in one of its methods for a window with poison."""

    fails: str = ""
    returned: Any = None

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.AT_END

    @property
    def earliest_finish(self) -> Earliest:
        return Earliest.NEVER

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        is_poison = element.value["n"] == POISON
        if is_poison and self.fails == "observe":
            if self.returned is not None:
                return self.returned  # type: ignore[no-any-return]
            raise ValueError("poison")
        return replace(state, flag=state.flag or is_poison, count=state.count + 1)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        self._check("ready", state)
        return context.past_end

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        self._check("fire", state)
        return replace(state, count=0)

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        for state in states:
            self._check("merge", state)
        return TriggerState(flag=any(state.flag for state in states), count=sum(state.count for state in states))

    def _check(self, method: str, state: TriggerState) -> None:
        if state.flag and self.fails == method:
            raise ValueError("poison")


@dataclass(frozen=True)
class KeepSmall(Evictor):
    """Keeps what is below the poison, and fails where there is poison."""

    fails: bool = True
    returned: Any = None

    def keep(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        if self.fails and any(element.value["n"] == POISON for element in elements):
            if self.returned is not None:
                return self.returned  # type: ignore[no-any-return]
            raise ValueError("poison")
        return tuple(elements)


def rows(*events: tuple[int, str, int]) -> pl.DataFrame:
    frame = pl.DataFrame([*events], schema={"ts": pl.Int64, "user": pl.String, "n": pl.Int64}, orient="row")
    return frame.with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def program(part: Assigner | Trigger | Evictor, assigner: Assigner | None = None) -> Topology:
    windows = KEYED.window(part if isinstance(part, Assigner) else assigner or Tumbling("10ms"))
    if isinstance(part, Trigger):
        windows = windows.trigger(part)
    if isinstance(part, Evictor):
        windows = windows.evict(part)
    return Topology("t", windows.aggregate(count=Count(), sum=Sum("n")).sink("out"))


def letters(result: SimulationResult) -> list[tuple[str, str, dict[str, Any]]]:
    """Return code, reason and value of each dead letter, in an order that does not depend on shards."""
    headers = [{name: value.decode() for name, value in record.headers} for record in result.dead]
    values = [json.loads(record.value or b"") for record in result.dead]
    return sorted(((h["reason_code"], h["reason"], v) for h, v in zip(headers, values, strict=True)), key=str)


def panes(result: SimulationResult, *, without: str = "") -> list[tuple[object, ...]]:
    return sorted(result["out"].filter(pl.col("user") != without).rows(), key=str)


PARTS = [
    (BySize(), None, "failed"),
    (AtEach("observe"), None, "failed"),
    (AtEach("observe"), Session("5ms"), "failed"),
    (AtEach("merge"), Session("5ms"), "failed"),
    (AtEach("ready"), None, "failed_pane"),
    (AtEach("fire"), None, "failed_pane"),
    (AtEach("fire"), Session("5ms"), "failed_pane"),
    (KeepSmall(), None, "failed_pane"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "assigner", "code"), PARTS, ids=str)
def test_a_failing_key_does_not_change_the_output_of_other_keys(
    part: Assigner | Trigger | Evictor, assigner: Assigner | None, code: str
) -> None:
    chance = random.Random(3)
    events = rows(*((at + chance.randrange(20), chance.choice("abc"), chance.randint(3, 9)) for at in range(60)))
    poisoned = events.with_columns(
        n=pl.when(pl.col("user") == "b", pl.int_range(pl.len()) % 2 == 0).then(POISON).otherwise("n")
    )
    topology = program(part, assigner)
    healthy = simulate(topology, {"a": events})
    assert not healthy.dead
    for cut_rows, shards in ((3, 3), (25, 2)):
        harmed = simulate(topology, {"a": poisoned}, cut_rows=cut_rows, shards=shards)
        assert panes(harmed, without="b") == panes(healthy, without="b")
        assert {(found, value["user"]) for found, _, value in letters(harmed)} == {(code, "b")}
        assert "poison" in letters(harmed)[0][1]


def test_an_element_on_which_the_assigner_or_the_trigger_fails_is_in_no_window() -> None:
    for part, call in ((BySize(), "BySize.windows"), (AtEach("observe"), "AtEach.observe")):
        result = simulate(program(part), {"a": rows((1, "x", 5), (2, "x", POISON), (3, "x", 5))})
        assert result["out"].select("count", "sum").rows() == [(2, 10)]
        ((code, reason, value),) = letters(result)
        assert (code, value["n"]) == ("failed", POISON)
        assert reason == f"window-1: {call}: ValueError: poison"


def test_a_window_whose_only_element_failed_emits_nothing() -> None:
    result = simulate(program(AtEach("observe")), {"a": rows((1, "x", POISON))})
    assert not result["out"].height
    assert len(result.dead) == 1


def test_a_window_whose_trigger_fails_ends_and_a_later_element_opens_it_again() -> None:
    simulation = Simulation(program(AtEach("ready")))
    first = simulation.cut({"a": rows((1, "x", POISON))})
    again = Simulation(program(AtEach("ready")), blobs=simulation.blobs)
    again.cut({"a": rows((2, "x", 5))})
    assert [code for code, _, _ in letters(first)] == ["failed_pane"]
    assert again.end()["out"].select("count", "sum").rows() == [(1, 5)]


def test_a_pane_whose_evictor_fails_is_a_dead_letter_with_its_elements() -> None:
    result = simulate(program(KeepSmall()), {"a": rows((1, "x", POISON), (2, "x", 5), (3, "y", 5))})
    ((code, reason, value),) = letters(result)
    assert (code, reason) == ("failed_pane", "window-1: KeepSmall.keep: ValueError: poison")
    assert [element["n"] for element in value["elements"]] == [POISON, 5]
    assert result["out"]["user"].to_list() == ["y"]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (BySize(returned=()), "returns no tuple of Window"),
        (BySize(returned=("a",)), "returns no tuple of Window"),
        (BySize(returned=5), "TypeError"),
        (AtEach("observe", returned=5), "returns no TriggerState"),
        (AtEach("observe", returned=TriggerState(count="many")), "returns no TriggerState"),  # type: ignore[arg-type]
        (KeepSmall(returned=5), "TypeError"),
        (KeepSmall(returned=("a",)), "returns no tuple of elements"),
    ],
    ids=str,
)
@pytest.mark.quick_cases(2)
def test_results_of_window_parts_are_checked(part: Assigner | Trigger | Evictor, reason: str) -> None:
    result = simulate(program(part), {"a": rows((1, "x", POISON), (3, "y", 5))})
    ((_, found, _),) = letters(result)
    assert reason in found
    assert result["out"]["user"].to_list() == ["y"]
