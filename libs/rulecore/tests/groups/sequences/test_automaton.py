"""The automaton of one sequence and key finds the matches of the oracle, whenever its state is stored and loaded."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.sequence_program import SequenceProgram, build_program
from rulecore.documents.rule_kinds import SequenceStep, Skip, Without
from rulecore.groups.sequences.automaton import MatchSet
from streamcore.durations import render_duration
from tests.harness.oracles.sequences import Event, Row, Wanted, find

Items = list[tuple[int, int | None]]  # (times, within), times 0 for a ``without``
Moments = list[tuple[int, int]]  # (time, roles)


@st.composite
def items_and_span(draw: st.DrawFn) -> tuple[Items, int]:
    span = draw(st.integers(1, 15))
    within = st.none() | st.integers(1, span)
    times = st.sampled_from([1, 1, 2, 3])
    items: Items = []
    for number in range(draw(st.integers(1, 3))):
        if number and draw(st.integers(0, 2)) == 0:
            items.append((0, None))
        items.append((draw(times), draw(within)))
    if draw(st.integers(0, 2)) == 0 or (len(items) == 1 and items[0][0] == 1):
        items.append((0, draw(st.integers(1, span))))
    return items, span


def compile_sequence(items: Items, span: int, skip: Skip) -> SequenceProgram:
    entries: list[SequenceStep | Without] = []
    for n, (times, within) in enumerate(items):
        longest = None if within is None else render_duration(within)
        if times:
            entries.append(
                SequenceStep.model_validate({"step": f"s{n}", "where": "true", "times": times, "within": longest})
            )
        else:
            entries.append(Without.model_validate({"without": "true", "within": longest}))
    return build_program(entries, span, skip)


def has_role(number: int, row: Row) -> bool:
    roles = row["roles"]
    assert isinstance(roles, int)
    return bool(roles >> number & 1)


def oracle_items(items: Items) -> list[Wanted]:
    return [Wanted(functools.partial(has_role, n), times, within) for n, (times, within) in enumerate(items)]


def find_matches(
    which: SequenceProgram, moments: Sequence[tuple[int, int]], stored_at: frozenset[int], limit: int = 10_000
) -> list[tuple[list[int], int]]:
    """Return the numbers of the events of each match, and its end; in some places the state is stored and loaded."""
    partials = MatchSet(which, limit)
    matches = []
    for number, (ms, roles) in enumerate(moments):
        if number in stored_at:
            matches += partials.advance_to(ms)
            stored = partials.to_bytes()
            assert (stored is None) == (not partials.partials)
            partials = MatchSet(which, limit, stored)
        matches += partials.take((ms, 0, number, roles, {}))
    matches += partials.advance_to(1_000)
    assert partials.to_bytes() is None
    return [([e[2] for e in m.events], m.end_ms) for m in matches]


some_moments = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 127)), min_size=12, max_size=40).map(
    lambda moments: sorted(moments, key=lambda m: m[0])
)


@settings(max_examples=settings().max_examples * 5)
@given(items_and_span(), st.sampled_from(list(Skip)), some_moments, st.frozensets(st.integers(0, 30)))
def test_the_automaton_finds_what_the_oracle_finds(
    structure: tuple[Items, int], skip: Skip, moments: Moments, stored_at: frozenset[int]
) -> None:
    items, span = structure
    events = [Event(ms, 0, number, {"roles": roles}) for number, (ms, roles) in enumerate(moments)]
    by_oracle = find(oracle_items(items), span, events, past_last=skip is Skip.PAST_LAST)
    expected = [([e.offset for e in match.events], match.end_ms) for match in by_oracle]
    assert find_matches(compile_sequence(items, span, skip), moments, stored_at) == expected


@settings(max_examples=settings().max_examples * 2)
@given(items_and_span(), st.sampled_from(list(Skip)), some_moments, st.frozensets(st.integers(0, 30)))
def test_a_limit_on_partials_does_not_depend_on_when_the_state_is_stored(
    structure: tuple[Items, int], skip: Skip, moments: Moments, stored_at: frozenset[int]
) -> None:
    which = compile_sequence(*structure, skip)
    assert find_matches(which, moments, stored_at, limit=2) == find_matches(which, moments, frozenset(), limit=2)


@pytest.mark.parametrize("times", [10, 100])
def test_state_grows_with_the_events_and_not_with_events_times_partials(times: int) -> None:
    which = compile_sequence([(times, None), (1, None)], 10_000, Skip.PAST_LAST)
    partials = MatchSet(which, 1_000)
    for ms in range(times):
        partials.take((ms, 0, ms, 1, {}))
    stored = partials.to_bytes()
    assert stored is not None
    assert len(partials.partials) == times
    assert len(stored) < 40 * times


def test_events_that_only_ended_partials_held_are_dropped() -> None:
    which = compile_sequence([(1, None), (0, None), (1, None), (5, None)], 10_000, Skip.NONE)
    partials = MatchSet(which, 1_000)
    partials.take((0, 0, 0, 0b0001, {}))
    partials.take((0, 0, 1, 0b0100, {}))  # the first partial is past the `without` and lives long
    for ms in range(1, 500, 2):
        partials.take((ms, 0, ms, 0b0001, {}))
        partials.take((ms + 1, 0, ms + 1, 0b0010, {}))
    stored = partials.to_bytes()
    assert stored is not None
    assert len(stored) < 100
