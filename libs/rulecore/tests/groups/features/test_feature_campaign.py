"""Generated pairs of a feature rule and an event against plain Python: ``HEADGATE_FEATURE_PAIRS`` (nightly: 100,000).

Each round has four rules in one app, in both orders. Its events come late and twice, each time at another offset; the
app starts anew in some cuts, and moves to another number of shards once. In every other round the rules read features
of other keys too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import orjson
import pytest

from streamcore.engine.in_process import InProcessApp
from streamcore.wire.lanes import ALERTS, STATUS
from tests.harness.apps.feature_app import feature_app
from tests.harness.apps.versioned_shop import moment, restore, save
from tests.harness.oracles.features import (
    AGGREGATES,
    CLOCK,
    KEYS,
    OTHER_KEYS,
    WHERES,
    WINDOWS,
    Pay,
    Spec,
    expected,
    expected_in_order,
    rule,
    split_into_cuts,
)
from tests.harness.run.profiles import cases

PAIRS = int(os.environ.get("HEADGATE_FEATURE_PAIRS", "0")) or cases(4_000)
SEED = int(os.environ.get("HEADGATE_SEED", "1"))
EVENTS, RULES = 100, 4
ROUNDS = -(-PAIRS // (EVENTS * RULES))
pytestmark = pytest.mark.timeout(300 + ROUNDS)


def random_rule(random: Random, keys: Sequence[tuple[str, ...]]) -> list[Spec]:
    return [
        Spec(
            random.choice([*AGGREGATES]),
            random.choice([*WHERES]),
            random.choice(keys),
            random.choice([*WINDOWS]),
            random.random() < 0.3,
        )
        for _ in range(random.randint(1, 5))
    ]


def random_events(random: Random) -> list[Pay]:
    """Return events whose times rise with leaps back; one in six is a copy of an earlier one."""
    found: list[Pay] = []
    for offset in range(EVENTS):
        if found and random.random() < 1 / 6:
            one = random.choice(found[-10:])
        else:
            minute = max(0, offset // 2 - random.choice([0, 0, 0, 1, 3, 12]))
            one = Pay(minute, random.choice("aabc"), random.choice([None, *range(7)]), random.choice(["x", "y", None]))
        found.append(Pay(one.minute, one.user, one.amount, one.card, offset))
    return found


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.slow
def test_rules_and_events_give_what_plain_python_finds(number: int, tmp_path: Path) -> None:
    random = Random(SEED * 1_000_003 + number)
    has_stage = number % 2 == 1
    keys = [*KEYS, *(OTHER_KEYS if has_stage else ())]
    rules = {f"r{n}": (random_rule(random, keys), ("on_arrival", "in_order")[n % 2]) for n in range(RULES)}
    disorder = random.choice([0, 2, 10, 200])
    cuts = [
        *split_into_cuts(random_events(random), [random.randint(1, 30) for _ in range(4)]),
        [Pay(400, "z", offset=999)],
    ]
    app = InProcessApp(feature_app(disorder, random.randint(1, 3), has_stage=has_stage))
    records = [rule(specs, n, name=name, order=order) for n, (name, (specs, order)) in enumerate(rules.items(), 1)]
    statuses = [orjson.loads(r.value or b"") for r in app.cut(records, CLOCK) if r.lane == STATUS]
    assert [one["status"] for one in statuses] == ["accepted"] * RULES
    moves = random.randrange(len(cuts))
    found: dict[str, dict[int, Mapping[str, object]]] = {name: {} for name in rules}
    for at, cut in enumerate(cuts):
        if at == moves:
            saved = save(app.app, app.blobs, tmp_path / "savepoints", moment())
            more = feature_app(disorder, random.randint(1, 4), has_stage=has_stage)
            app = InProcessApp(more, restore(saved, more, tmp_path / "checkpoint"))
        elif random.random() < 0.3:
            app = InProcessApp(app.app, app.blobs)
        for record in app.cut([event.record() for event in cut], CLOCK):
            if record.lane == ALERTS:
                alert = orjson.loads(record.value or b"")
                assert alert["source"]["offset"] not in found[alert["rule"]], "twice"
                found[alert["rule"]][alert["source"]["offset"]] = alert["values"]
    for name, (specs, order) in rules.items():
        right = (expected if order == "on_arrival" else expected_in_order)(specs, cuts, disorder)
        assert found[name] == right, (name, order, specs)
