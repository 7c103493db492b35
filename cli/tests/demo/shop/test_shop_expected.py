"""The hand-written expectation equals the output of the product, in-process over the same stream."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import yaml

from headgate.demo.shop.expected_alerts import PER_EVENT, WINDOWED, AlertId, expect
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, ShopSettings, shop_start_ms
from headgate.demo.shop.stream import ROUND, records
from rulecore.documents.loading import load_path
from rulecore.documents.rule import Emit, Rule, canonical_json
from rulecore.documents.windows import SlidingSpec, TumblingSpec
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, Record

ROOT = Path(__file__).parents[4]
NOW_MS = 1_790_000_000_000
PARTITIONS = 3


def load_shipped_rules() -> list[Rule]:
    loaded, problems = load_path(ROOT / "rules" / "shop")
    assert not problems
    return [one.rule for one in loaded if one.rule is not None]


def run(settings: ShopSettings, n: int, cut_records: int) -> list[Record]:
    """Run the shipped rules over the first ``n`` records, in cuts of random sizes up to ``cut_records``."""
    schema = StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "shop.yaml").read_text()))
    factory = RulesFactory((RuleStream(schema, "shop"),))
    source = Source(schema, "shop", reject_extra_fields=True)
    app = InProcessApp(App("shop", (source,), "control", {}, (factory,), shards=3))
    output = app.cut([control_record(i, r.id, canonical_json(r)) for i, r in enumerate(load_shipped_rules())], NOW_MS)
    rng, offsets, cut = random.Random(cut_records), Counter[int](), list[RawRecord]()
    border = EVENTS_PER_BLOCK  # the first cut ends before any record is late
    for record in records(settings, 0, n):
        partition = record.partition(PARTITIONS)
        cut.append(RawRecord(0, partition, offsets[partition], record.value, record.key))
        offsets[partition] += 1
        if len(cut) == border:
            output += app.cut(sorted(cut, key=lambda r: (r.partition, r.offset)), NOW_MS)
            cut, border = [], rng.randrange(1, cut_records)
    return [*output, *app.cut(cut, NOW_MS)]


@pytest.mark.parametrize(
    ("seed", "n", "cut_records"),
    [(1, 13 * EVENTS_PER_BLOCK, 5_000), (2, 13 * EVENTS_PER_BLOCK, 1_400), (3, 12_345, 20_000)],
)
def test_the_product_finds_exactly_what_is_expected(seed: int, n: int, cut_records: int) -> None:
    settings = ShopSettings(seed, shop_start_ms(NOW_MS))
    output = run(settings, n, cut_records)
    expected = expect(settings, n, PARTITIONS)
    found = Counter(AlertId.of(r.value) for r in output if r.lane == ALERTS and r.value is not None)
    assert found == Counter(expected.alerts)
    lanes = Counter(r.lane for r in output)
    assert (lanes[DEAD_LETTERS], lanes[LATE]) == (expected.dead_letters, expected.late)
    assert not expected.uncertain


def test_the_expectation_covers_every_shipped_rule_with_its_window() -> None:
    """Kind, window and emission are compared; expressions are not."""
    rules = {rule.id: rule for rule in load_shipped_rules()}
    assert set(rules) == set(PER_EVENT) | set(WINDOWED)
    for name, own in WINDOWED.items():
        within = rules[name].within
        assert isinstance(within, TumblingSpec | SlidingSpec)
        assert (within.size_ms, within.slide_ms) == (own.size_ms, own.slide_ms)
        assert (rules[name].emit is Emit.FINAL) == own.final
    assert not [name for name in PER_EVENT if rules[name].windowed]


@pytest.mark.slow
def test_every_shipped_rule_is_expected_to_fire_soon() -> None:
    expected = expect(ShopSettings(7, shop_start_ms(NOW_MS)), (10 + ROUND) * EVENTS_PER_BLOCK, PARTITIONS)
    assert {alert.rule for alert in expected.alerts} == set(PER_EVENT) | set(WINDOWED)


@pytest.mark.slow
def test_a_day_that_ends_between_the_partitions_is_uncertain() -> None:
    settings = ShopSettings(7, shop_start_ms(NOW_MS))
    sizes = [len(expect(settings, 10 * EVENTS_PER_BLOCK + n, 4).uncertain) for n in (0, 2, EVENTS_PER_BLOCK)]
    assert sizes[0] == sizes[2] == 0
    assert sizes[1] > 0


@pytest.mark.slow
def test_the_number_of_partitions_changes_only_the_source_of_an_alert() -> None:
    settings = ShopSettings(7, shop_start_ms(NOW_MS))
    one, four = (expect(settings, 12 * EVENTS_PER_BLOCK, p) for p in (1, 4))
    assert {a for a in one.alerts if a.window} == {a for a in four.alerts if a.window}
    assert Counter(a.rule for a in one.alerts) == Counter(a.rule for a in four.alerts)
