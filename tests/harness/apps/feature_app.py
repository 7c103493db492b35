"""An app of rules in this process that reads the payments of ``tests.harness.oracles.features``, and draws of features
and payments."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rulecore.factory import RulesFactory, find_exchanges
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.watermark import WatermarkStrategy
from tests.harness.oracles.features import AGGREGATES, KEYS, MINUTE, OTHER_KEYS, SCHEMA, WHERES, WINDOWS, Pay, Spec


def feature_app(disorder: int, shards: int = 1, *, has_stage: bool = False) -> App:
    """Return the app. ``disorder``: minutes that the watermark is behind. ``has_stage``: whether it computes features
    of ``OTHER_KEYS``."""
    stream = RuleStream(SCHEMA, "pay", tuple(OTHER_KEYS) if has_stage else ())
    rules = RulesFactory((stream,), feature_stage=has_stage)
    return App(
        "t",
        (Source(SCHEMA, "pay"),),
        "control",
        {},
        (rules.for_features(), rules) if has_stage else (rules,),
        exchanges=tuple(find_exchanges([stream], feature_stage=has_stage)),
        shards=shards,
        watermark=WatermarkStrategy(max_out_of_orderness_ms=disorder * MINUTE),
        reads_of_all_stages=has_stage,
    )


def draw_specs(*, least: int, most: int, keys: Iterable[tuple[str, ...]] = KEYS) -> SearchStrategy[list[Spec]]:
    """Return draws of between ``least`` and ``most`` features by some of these keys."""
    drawn = st.builds(
        Spec,
        st.sampled_from([*AGGREGATES]),
        st.sampled_from([*WHERES]),
        st.sampled_from([*keys]),
        st.sampled_from([*WINDOWS]),
        st.booleans(),
    )
    return st.lists(drawn, min_size=least, max_size=most)


def draw_pays(*, least: int, most: int, minutes: int, cards: Iterable[str | None]) -> SearchStrategy[list[Pay]]:
    """Return draws of payments within so many minutes, whose offsets are their places."""
    drawn = st.builds(
        Pay,
        st.integers(0, minutes),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(0, 6)),
        st.sampled_from([*cards]),
    )
    return st.lists(drawn, min_size=least, max_size=most).map(
        lambda events: [Pay(e.minute, e.user, e.amount, e.card, i) for i, e in enumerate(events)]
    )
