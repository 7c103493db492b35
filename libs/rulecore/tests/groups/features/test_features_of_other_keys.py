"""Features of several keys in one rule, in a stage of their own, compared with plain Python that looks at all earlier
events for each event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.apps.feature_app import draw_pays, draw_specs, feature_app, run_feature_app
from tests.harness.oracles.features import (
    KEYS,
    OTHER_KEYS,
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
    shards: int = 3,
    order: str = "on_arrival",
    where: str = "n >= 0",
) -> dict[int, Mapping[str, object]]:
    """Return the values of the features by the offset of their event. ``how``: as of ``run_feature_app``."""
    spec = feature_app(disorder, shards, has_stage=True)
    record = rule(specs, order=order, where=where)
    found = run_feature_app(spec, record, cuts, how, lambda number: 1 + number % 2)
    assert not any(alert["incomplete"] for alert in found)
    return {alert["source"]["offset"]: alert["values"] for alert in found}


pays = draw_pays(least=1, most=40, minutes=45, cards=["x", "y", "z", None])
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)
specs = draw_specs(least=2, most=6, keys=(*KEYS, *OTHER_KEYS))


@given(specs, pays, sizes, st.sampled_from([0, 3, 100]), st.sampled_from(["one", "new", "turns"]), st.integers(1, 4))
@settings(max_examples=40)
def test_features_of_several_keys_are_what_plain_python_finds(
    specs: list[Spec], events: list[Pay], sizes: list[int], disorder: int, how: str, shards: int
) -> None:
    cuts = split_into_cuts(events, sizes)
    assert run(specs, cuts, disorder, how, shards) == expected(specs, cuts, disorder)


@given(specs, pays, sizes, st.sampled_from([0, 3, 15]), st.sampled_from(["one", "new", "turns"]), st.integers(1, 4))
@settings(max_examples=40)
def test_in_order_they_are_what_plain_python_finds_in_events_sorted_by_time(
    specs: list[Spec], events: list[Pay], sizes: list[int], disorder: int, how: str, shards: int
) -> None:
    cuts = [*split_into_cuts(events, sizes), [Pay(60, "c", offset=1_000)]]  # the watermark passes the events before it
    found = run(specs, cuts, disorder, how, shards, order="in_order")
    assert found == expected_in_order(specs, cuts, disorder)
