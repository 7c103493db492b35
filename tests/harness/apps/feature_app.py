"""An app of rules in this process that reads the payments of ``tests.harness.oracles.features``, and draws of features
and payments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rulecore.factory import RulesFactory, find_exchanges
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record
from tests.harness.oracles.features import (
    AGGREGATES,
    CLOCK,
    KEYS,
    MINUTE,
    OTHER_KEYS,
    SCHEMA,
    WHERES,
    WINDOWS,
    Pay,
    Spec,
)


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


def run_feature_app(
    spec: App, record: RawRecord, cuts: Sequence[Sequence[Pay]], how: str, tasks: Callable[[int], int] = lambda _: 1
) -> list[dict[str, Any]]:
    """Return the alerts of a rule, which the app accepts, over the cuts; no event has two.

    ``how``: one process, a new one for every cut, or two that take turns. ``tasks``: by the number of a cut.
    """
    app = InProcessApp(spec)
    turns = [app, InProcessApp(spec, app.blobs)]
    first = app.cut([record], CLOCK)
    assert [s["status"] for s in lane(first, STATUS)] == ["accepted"], lane(first, STATUS)
    found, last = list[dict[str, Any]](), app
    for number, cut in enumerate(cuts):
        if how == "new":
            app = InProcessApp(spec, app.blobs)
        runner = turns[1 if number % 3 else 0] if how == "turns" else app
        runner.projection = last.projection  # a fact of the driver, of which there is one
        last = runner
        found += lane(runner.cut([e.record() for e in cut], CLOCK, tasks=tasks(number)), ALERTS)
    places = [alert["source"]["offset"] for alert in found]
    assert len(set(places)) == len(places)
    return found


def lane(records: Sequence[Record], name: str) -> list[dict[str, Any]]:
    """Return the values of the records of a lane, which are JSON."""
    return [orjson.loads(one.value or b"null") for one in records if one.lane == name]


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
