"""Feature rules, compared with plain Python that looks at all earlier events for each event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.engine.in_process import InProcessApp
from streamcore.wire.lanes import ALERTS
from tests.harness.apps.feature_app import draw_pays, draw_specs, feature_app, lane, run_feature_app
from tests.harness.oracles.features import (
    AGGREGATES,
    CLOCK,
    KEYS,
    WHERES,
    WINDOWS,
    Pay,
    Spec,
    expected,
    expected_in_order,
    rule,
    split_into_cuts,
)


def run(
    specs: Sequence[Spec],
    cuts: Sequence[Sequence[Pay]],
    disorder: int,
    how: str = "one",
    shards: int = 1,
    order: str = "on_arrival",
) -> dict[int, Mapping[str, object]]:
    """Return the values of the features by the offset of their event. ``how``: as of ``run_feature_app``."""
    found = run_feature_app(feature_app(disorder, shards), rule(specs, order=order), cuts, how)
    return {alert["source"]["offset"]: alert["values"] for alert in found}


pays = draw_pays(least=1, most=40, minutes=45, cards=["x", "y", "z", None])
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)
specs = draw_specs(least=1, most=6)


@given(specs, pays, sizes, st.sampled_from([0, 3, 15, 100]), st.sampled_from(["one", "new", "turns"]))
@settings(max_examples=200)
def test_features_are_what_plain_python_finds(
    specs: list[Spec], events: list[Pay], sizes: list[int], disorder: int, how: str
) -> None:
    cuts = split_into_cuts(events, sizes)
    assert run(specs, cuts, disorder, how, shards=1 + (how == "turns")) == expected(specs, cuts, disorder)


@given(specs, pays, sizes, st.sampled_from([0, 3, 15, 100]), st.sampled_from(["one", "new", "turns"]))
@settings(max_examples=100)
def test_in_order_features_are_what_plain_python_finds_in_events_sorted_by_time(
    specs: list[Spec], events: list[Pay], sizes: list[int], disorder: int, how: str
) -> None:
    cuts = [*split_into_cuts(events, sizes), [Pay(60, "c", offset=1_000)]]  # the watermark passes the events before it
    found = run(specs, cuts, disorder, how, shards=1 + (how == "turns"), order="in_order")
    assert found == expected_in_order(specs, cuts, disorder)


@given(specs, pays, sizes, sizes, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_in_order_features_do_not_depend_on_the_order_of_arrival(
    specs: list[Spec], events: list[Pay], sizes: list[int], other_sizes: list[int], random: Random
) -> None:
    last = [Pay(200, "c", offset=1_000)]
    shuffled = random.sample(events, len(events))
    found = [
        run(specs, [*split_into_cuts(arrived, own), last], 100, order="in_order")
        for arrived, own in ((events, sizes), (shuffled, other_sizes))
    ]
    assert {place: approximate(values) for place, values in found[0].items()} == found[1]


def approximate(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values, doubles with room for their last bits: sums of doubles depend on the cuts."""
    return {name: pytest.approx(v, abs=1e-6) if isinstance(v, float) else v for name, v in values.items()}


@given(st.lists(specs, min_size=2, max_size=4), pays, sizes, st.sampled_from([0, 15, 100]))
@settings(max_examples=60)
def test_changes_of_rules_give_the_same_in_one_process_in_new_ones_and_in_two_that_take_turns(
    versions: list[list[Spec]], events: list[Pay], sizes: list[int], disorder: int
) -> None:
    cuts = split_into_cuts(events, sizes)
    found = []
    for how in ("one", "new", "turns"):
        spec = feature_app(disorder, 2)
        app = InProcessApp(spec)
        turns = [app, InProcessApp(spec, app.blobs)]
        alerts: list[object] = []
        for number, cut in enumerate(cuts):
            runner = turns[number % 2] if how == "turns" else InProcessApp(spec, app.blobs) if how == "new" else app
            runner.projection = None  # what rules need is a fact of the driver, of which there is one
            own = versions[number % len(versions)]
            records = [rule(own, number + 1)] if number % 3 == 0 else []
            if number % 5 == 4:  # another rule reads one of the features
                records.append(rule(own[:1], number + 1, name="other"))
            alerts.append(lane(runner.cut([*records, *(e.record() for e in cut)], CLOCK), ALERTS))
        found.append(alerts)
    assert found[0] == found[1] == found[2]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("of", [*AGGREGATES])
def test_each_function_over_many_cuts(of: str) -> None:
    events = [Pay((n * 7) % 31 + n // 4, "ab"[n % 3 % 2], n % 5 or None, f"c{n % 4}", n) for n in range(60)]
    own = [Spec(of, where, by, w, this) for where in WHERES for by in KEYS for w in WINDOWS for this in (False, True)]
    cuts = split_into_cuts(events, [7, 2, 11])
    assert run(own, cuts, 100) == expected(own, cuts, 100)
