"""New versions of a keyed function over the state of older ones, while the log holds rows of several versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.keyed import ListState, MapState, ProcessContext, ProcessFunction, Row, TimeDomain, Ttl, ValueState
from streamcore.operators.base import MAIN
from streamcore.operators.process import ProcessOperator
from tests.harness.apps.keyed_operator import EVENTS, Runner, runner


class One(ProcessFunction):
    """Cents as whole numbers."""

    outputs = {MAIN: {"text": pl.String}}
    cents = ValueState(int, default=0)
    recent = ListState(int, most=3)
    seen = MapState(int, int, most=3)
    old = ValueState(str)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.cents += event.n
        self.recent.append(event.n)
        self.seen[event.n] = self.seen.get(event.n, 0) + 1
        self.old = "x"
        context.timers.set(1_000)
        yield {"text": ""}


def to_two(row: Row) -> Row:
    recent, seen = row.get("recent", []), row.get("seen", {})
    assert isinstance(recent, list)
    assert isinstance(seen, dict)
    return {
        "euros": Decimal(str(row.get("cents", 0))) / 100,
        "recent": [str(n) for n in recent],
        "counts": {str(n): count for n, count in seen.items()},
    }


class Two(ProcessFunction):
    """Euros; what was a number is text; a state was dropped and one renamed."""

    outputs = {MAIN: {"text": pl.String}}
    version = 2
    migrations = {1: to_two}
    euros = ValueState(pl.Decimal(18, 2), default=Decimal(0))
    recent = ListState(str, most=3)
    counts = MapState(str, int, most=3)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n != 2:  # so that some cuts change the value only, and others the list and map only
            self.euros += Decimal(event.n) / 100
        if event.n != 1:
            self.recent.append(str(event.n))
            self.counts[str(event.n)] = self.counts.get(str(event.n), 0) + 1
        yield {"text": self.text()}

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        yield {"text": self.text()}

    def text(self) -> str:
        return f"{self.euros} {list(self.recent)} {dict(self.counts)}"


def to_three(row: Row) -> Row:
    return {**row, "note": f"had {row.get('euros')}"}


class Three(Two):
    version = 3
    migrations = {1: to_two, 2: to_three}
    note = ValueState(str)

    def text(self) -> str:
        return f"{super().text()} {self.note}"


def upgrade(run: Runner, function: ProcessFunction) -> Runner:
    """The same state under another function."""
    return Runner(
        lambda: ProcessOperator(function, key=["key"], events=EVENTS),
        run.buckets,
        run.blobs,
        watermark_ms=run.watermark_ms,
    )


def test_a_key_is_migrated_with_all_its_states_and_keeps_its_timers() -> None:
    run = runner(One())
    run.cut([("a", 150, 0), ("a", 7, 0), ("b", 1, 0)])
    run = upgrade(run, Two())
    assert run.cut(watermark_ms=1_000)[MAIN] == [
        ("1.57 ['150', '7'] {'150': 1, '7': 1}", 1_000),
        ("0.01 ['1'] {'1': 1}", 1_000),
    ]
    assert run.cut([("a", 7, 0)])[MAIN][0][0] == "1.64 ['150', '7', '7'] {'150': 1, '7': 2}"


events = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4), st.just(0)), max_size=4)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(events, max_size=6), st.lists(events, max_size=6), st.lists(events, max_size=6))
def test_rows_of_several_versions_in_one_state_log_read_as_rows_of_the_last_version(
    one: list[Any], two: list[Any], three: list[Any]
) -> None:
    """Compare a run that restarts after every cut with one that never restarts, over two upgrades."""

    def run(restart: bool) -> object:
        here = runner(One())
        for function, cuts in ((One(), one), (Two(), two), (Three(), three)):
            here = upgrade(here, function)
            for cut in cuts:
                here.cut(cut)
                if restart:
                    here.restart()
        here.restart()
        return here.cut([(key, 1, 0) for key in "abcd"], watermark_ms=2_000)

    assert run(restart=True) == run(restart=False)


class Kept(ProcessFunction):
    outputs = {MAIN: {"text": pl.String}}
    total = ValueState(int, ttl=Ttl("10ms", TimeDomain.CLOCK))
    items = MapState(int, int, ttl=Ttl("10ms", TimeDomain.CLOCK))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n:
            self.total = event.n
            self.items[event.n] = 1
        yield {"text": f"{self.total} {list(self.items)}"}


class KeptTwo(Kept):
    version = 2
    migrations = {1: lambda row: row | {"fresh": 1}}
    fresh = ValueState(int, ttl=Ttl("5ms", TimeDomain.CLOCK))

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        yield {"text": f"{self.total} {list(self.items)} {self.fresh}"}


def test_a_migration_keeps_the_time_to_live_and_a_new_one_starts_with_the_first_cut() -> None:
    run = runner(Kept())
    run.cut([("a", 1, 0)], clock_ms=0)
    run.cut([("a", 2, 0)], clock_ms=6)
    run = upgrade(run, KeptTwo())
    assert run.cut([("a", 0, 0)], clock_ms=8)[MAIN][0][0] == "2 [1, 2] 1"
    run.restart()
    assert run.cut([("a", 0, 0)], clock_ms=12)[MAIN][0][0] == "2 [2] 1"
    run.restart()
    assert run.cut([("a", 0, 0)], clock_ms=13)[MAIN][0][0] == "2 [2] None"
    assert run.cut([("a", 0, 0)], clock_ms=16)[MAIN][0][0] == "None [] None"


class Added(One):
    """An added state needs no new version: it starts empty."""

    more = ValueState(int, default=3)

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        self.cents += event.n
        yield {"text": f"{self.cents} {self.more}"}


def test_an_added_state_starts_empty_without_a_new_version() -> None:
    run = runner(One())
    run.cut([("a", 150, 0)])
    assert upgrade(run, Added()).cut([("a", 1, 0)])[MAIN][0][0] == "151 3"


class Removed(ProcessFunction):
    outputs = One.outputs
    cents = One.cents
    process = Two.process


class Retyped(One):
    cents = ValueState(str)  # type: ignore[assignment]


class ListNow(One):
    seen = ListState(int)  # type: ignore[assignment]


class ElementsRetyped(One):
    recent = ListState(str)  # type: ignore[assignment]


class NoWay(Two):
    migrations = {}


def function_with_migration(answer: Callable[[Row], Any]) -> type[ProcessFunction]:
    class Failing(Two):
        migrations = {1: answer}

    return Failing


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Removed, "there is stored state for 'recent', .* declare it, or raise the version"),
        (Retyped, "state cents is stored as Int64 and declared as String; raise"),
        (ListNow, "state seen was a list and is a map, or the other way round"),
        (ElementsRetyped, "stored state recent does not fit its declaration: 150 .int. is not text"),
        (NoWay, "give a migration from version 1"),
        (
            function_with_migration(lambda row: row["nothing"]),
            "the migration from version 1 failed: KeyError: 'nothing'",
        ),
        (function_with_migration(lambda row: 5), "a migration returned int; return a dictionary"),
        (
            function_with_migration(lambda row: {"euros": 1.5}),
            "stored state euros does not fit its declaration: 1.5 .float.",
        ),
        (function_with_migration(lambda row: {"euro": 1}), "there is stored state for 'euro'"),
        (function_with_migration(lambda row: {"euros": [1]}), "there is stored state for 'euros', a list"),
    ],
)
def test_unreadable_state_is_rejected_before_anything_runs(function: type[ProcessFunction], message: str) -> None:
    run = runner(One())
    run.cut([("a", 150, 0)])
    with pytest.raises(ConfigError, match=message):
        upgrade(run, function())


def test_state_of_a_newer_version_and_of_another_key_is_rejected() -> None:
    run = runner(Two())
    run.cut([("a", 150, 0)])
    with pytest.raises(ConfigError, match="state is of version 2 and this program of version 1"):
        upgrade(run, One())
    with pytest.raises(ConfigError, match="a key cannot change"):
        Runner(lambda: ProcessOperator(Two(), key=["n"], events=EVENTS), run.buckets, run.blobs)
    with pytest.raises(ConfigError, match="key column key was stored as String"):
        Runner(lambda: ProcessOperator(Two(), key=["key"], events={**EVENTS, "key": pl.Int64}), run.buckets, run.blobs)
