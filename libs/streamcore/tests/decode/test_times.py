"""Local times, changes of the clocks, and columns of times compared with single texts."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.timestamps import from_iso, load_zone

LONDON = ZoneInfo("Europe/London")


def utc(text: str) -> int:
    ms = from_iso(text + "Z", ZoneInfo("UTC"))
    assert ms is not None
    return ms


def test_a_local_time_that_exists_twice_is_the_earlier_one() -> None:
    assert from_iso("2026-10-25T01:30:00", LONDON) == utc("2026-10-25T00:30:00")


def test_a_local_time_that_does_not_exist_moves_forward_by_the_gap() -> None:
    assert from_iso("2026-03-29T01:30:00", LONDON) == utc("2026-03-29T01:30:00")  # shown there as 02:30
    assert from_iso("2026-03-29T02:30:00", LONDON) == utc("2026-03-29T01:30:00")


def test_an_offset_in_the_text_overrules_the_zone() -> None:
    assert from_iso("2026-07-01T12:00:00+00:00", LONDON) == utc("2026-07-01T12:00:00")


def test_an_unknown_zone_is_an_error_before_any_event() -> None:
    with pytest.raises(ConfigError, match="no such time zone"):
        load_zone("Europe/Nowhere")
    with pytest.raises(ConfigError, match="no such time zone"):
        load_zone("../../etc/passwd")


@pytest.mark.parametrize(
    "zone", ["Europe/London", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kathmandu", "UTC"]
)
def test_an_array_of_local_times_is_read_like_each_of_them(zone: str) -> None:
    rng = random.Random(zone)
    hours = [rng.randrange(0, 24 * 366 * 100) for _ in range(300)]
    changes = [datetime(1972, 1, 7), datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1), datetime(2026, 4, 5, 1)]
    moments = [datetime(1970, 1, 1) + timedelta(hours=h, milliseconds=rng.randrange(3_600_000)) for h in hours]
    moments += [c + timedelta(milliseconds=rng.randrange(3 * 3_600_000)) for c in changes for _ in range(50)]
    local_ms = [(m - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for m in moments]
    found = local_to_utc(ZoneInfo(zone), np.array(local_ms, dtype=np.int64))
    assert found.tolist() == [from_iso(m.isoformat(timespec="milliseconds"), ZoneInfo(zone)) for m in moments]


@pytest.mark.parametrize("layout", ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"])
@pytest.mark.parametrize("end", ["", "Z", "+05:30", "-08:00"])
def test_text_times_in_columns_are_read_like_each_of_them(make_both: Callable[..., Any], layout: str, end: str) -> None:
    rng = random.Random(layout + end)
    moments = [datetime(2026, 1, 1) + timedelta(microseconds=rng.randrange(10**12 * 30)) for _ in range(200)]
    records = [f'{{"id":"x","ts":"{m.strftime(layout)}{end}"}}'.encode() for m in moments]
    both = make_both()
    assert both.agree(records).dead.num_rows == 0
    assert both.agree(records).dead.num_rows == 0


def test_both_decoders_use_the_time_zone_of_the_schema(make_both: Callable[..., Any]) -> None:
    schema = StreamSchema.parse(
        {"name": "t", "event_time": "ts", "keys": [[]], "zone": "Asia/Tokyo", "fields": {"ts": "timestamp not null"}}
    )
    events = make_both(schema).agree([b'{"ts":"2026-01-31T09:00:00"}'] * 50).events
    assert set(events.column("ts").to_pylist()) == {utc("2026-01-31T00:00:00")}
