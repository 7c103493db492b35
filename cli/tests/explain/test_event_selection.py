"""Which event of a key an explanation is about."""

from __future__ import annotations

import orjson
import polars as pl
import pytest

from headgate.errors import InputError
from headgate.explain.event_selection import select_latest
from headgate.records.decoder import EventDecoder
from headgate.time_arguments import parse_time, show_time
from streamcore.schema import OFFSET, PARTITION, StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "device": "string"},
    }
)


def test_the_latest_event_of_a_key_is_the_last_in_time_of_the_whole_key() -> None:
    events = [(3, "a", "d1"), (5, "a", "d1"), (4, "a", "d1"), (6, "a", "d2"), (9, "a", "d1"), (5, "b", "d1")]
    lines = [orjson.dumps({"ts": 1_000 * at, "user": user, "device": device}) for at, user, device in events]
    frame = EventDecoder(SCHEMA, 100_000).of_lines(lines, range(len(lines)))

    def select(key: dict[str, object]) -> list[int]:
        return select_latest(frame, key, SCHEMA, 6_000)[OFFSET].to_list()

    assert select({"user": "a", "device": "d1"}) == [1]
    assert select({"user": "a"}) == [3]
    assert select({"user": "c"}) == []
    later_partition = frame.with_columns(pl.when(pl.col(OFFSET) == 0).then(1).otherwise(0).alias(PARTITION))
    same_time = later_partition.with_columns(pl.lit(5_000).alias("__event_ms"))
    assert select_latest(same_time, {"user": "a"}, SCHEMA, 6_000)[OFFSET].to_list() == [0]


def test_a_time_that_is_read_can_be_shown() -> None:
    last = "253402300799999"
    assert show_time(parse_time(last, 0, "--at")) == "9999-12-31 23:59:59.999"
    for text in ("253402300800000", "9" * 18, "9999999d"):
        with pytest.raises(InputError, match=f"--at '{text}': write a time of the years 1 to 9999"):
            parse_time(text, 1_800_000_000_000, "--at")
