"""The demo shop is a pure function, and the decoder gives every record its expected fate."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from headgate.demo.shop.settings import (
    DAY_MS,
    EVENTS_PER_BLOCK,
    FIRST_LATE_BLOCK,
    MAX_DISORDER_MS,
    MIN_LATENESS_MS,
    RecordFate,
    ShopRecord,
    ShopSettings,
    shop_start_ms,
)
from headgate.demo.shop.stream import records
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.types import RawBatch
from streamcore.schema import StreamSchema

ROOT = Path(__file__).parents[4]
NOW_MS = 1_790_000_000_000
SHOP = ShopSettings(seed=7, start_ms=shop_start_ms(NOW_MS))
N = 20 * EVENTS_PER_BLOCK


@pytest.fixture(scope="module")
def all_records() -> list[ShopRecord]:
    return list(records(SHOP, 0, N))


@pytest.mark.slow
def test_record_i_does_not_depend_on_where_the_reading_begins(all_records: list[ShopRecord]) -> None:
    for start, stop in [(0, 10), (999, 1001), (1500, 4321), (N - 1, N)]:
        assert list(records(SHOP, start, stop)) == all_records[start:stop]
    assert [r.index for r in all_records] == list(range(N))


def test_another_seed_gives_another_stream(all_records: list[ShopRecord]) -> None:
    other = ShopSettings(seed=8, start_ms=SHOP.start_ms)
    assert list(records(other, 0, 100)) != all_records[:100]


def test_the_decoder_gives_every_record_its_expected_fate(all_records: list[ShopRecord]) -> None:
    schema = StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "shop.yaml").read_text()))
    numbers = pa.array(range(N), pa.int64())
    values = pa.array([r.value for r in all_records], pa.large_binary())
    decoded = JsonDecoder(schema).decode(RawBatch(values, numbers.cast(pa.int32()), numbers, NOW_MS))
    assert decoded.dead.column("row").to_pylist() == [r.index for r in all_records if r.fate is RecordFate.DEAD]
    assert decoded.events.column("ts").to_pylist() == [r.event_ms for r in all_records if r.fate is not RecordFate.DEAD]


@pytest.mark.slow
def test_every_kind_of_dead_letter_occurs() -> None:
    schema = StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "shop.yaml").read_text()))
    dead = [r.value for r in records(SHOP, 0, 60 * EVENTS_PER_BLOCK) if r.fate is RecordFate.DEAD]
    numbers = pa.array(range(len(dead)), pa.int64())
    decoded = JsonDecoder(schema).decode(
        RawBatch(pa.array(dead, pa.large_binary()), numbers.cast(pa.int32()), numbers, NOW_MS)
    )
    of_other_sources = {
        RejectCode.NOT_CSV,
        RejectCode.WRONG_COLUMNS,
        RejectCode.NOT_A_LOG_LINE,
        RejectCode.NOT_AVRO,
        RejectCode.UNKNOWN_SCHEMA,
        RejectCode.NOT_ONE_RECORD,
        RejectCode.NO_STREAM,
        RejectCode.NO_SCHEMA_ID,
        RejectCode.UNUSABLE_SCHEMA,
        RejectCode.NOT_PROTOBUF,
        RejectCode.TOO_MANY_VALUES,  # of arrays and maps
        RejectCode.IMPLAUSIBLE_TIME,
    }
    assert set(decoded.dead.column("code").to_pylist()) == set(RejectCode) - of_other_sources


def test_event_times_are_out_of_order_but_within_the_bound(all_records: list[ShopRecord]) -> None:
    events = [r for r in all_records if r.fate is RecordFate.EVENT]
    behind = [SHOP.time_ms(r.index) - r.event_ms for r in events]
    assert min(behind) >= 0
    assert 4_000 < max(behind) < MAX_DISORDER_MS
    assert sum(b.event_ms < a.event_ms for a, b in pairwise(events)) > N / 10


def test_late_events_are_hours_older_than_the_first_event_and_none_is_among_the_first(
    all_records: list[ShopRecord],
) -> None:
    late = [r for r in all_records if r.fate is RecordFate.LATE]
    assert len(late) == 3 * (N // EVENTS_PER_BLOCK - FIRST_LATE_BLOCK)
    assert all(r.event_ms <= SHOP.start_ms - MIN_LATENESS_MS for r in late)
    assert late[0].index >= FIRST_LATE_BLOCK * EVENTS_PER_BLOCK


def test_some_events_are_duplicates_with_equal_bytes(all_records: list[ShopRecord]) -> None:
    copies = Counter(r.value for r in all_records if r.fate is RecordFate.EVENT)
    assert Counter(copies.values())[2] > 4 * N // EVENTS_PER_BLOCK
    assert max(copies.values()) <= 3


def test_a_user_stays_on_one_partition_and_users_spread_over_all_partitions(all_records: list[ShopRecord]) -> None:
    places: dict[bytes, set[int]] = {}
    for record in all_records:
        if record.key is not None:
            places.setdefault(record.key, set()).add(record.partition(4))
    assert {len(p) for p in places.values()} == {1}
    assert min(Counter(r.partition(4) for r in all_records).values()) > N / 5


def test_a_few_users_have_most_of_the_events(all_records: list[ShopRecord]) -> None:
    seen = Counter(r.key for r in all_records if r.key is not None)
    assert seen.most_common(1)[0][1] > 50
    assert sum(1 for n in seen.values() if n < 10) > 500


def test_the_first_day_ends_in_the_gap_between_two_blocks() -> None:
    times = [SHOP.time_ms(i) for i in range(0, 12 * EVENTS_PER_BLOCK)]
    midnight = (SHOP.start_ms // DAY_MS + 1) * DAY_MS
    before, after = [t for t in times if t < midnight], [t for t in times if t >= midnight]
    assert len(before) == 10 * EVENTS_PER_BLOCK
    assert midnight - before[-1] > 60_000
    assert after[0] - midnight > 60_000
    assert SHOP.start_ms < NOW_MS
