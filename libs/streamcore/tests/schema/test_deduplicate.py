"""``deduplicate`` of a stream file: a duration, and an id whose values are equal or not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema


def parse(**more: object) -> StreamSchema:
    fields: Mapping[str, object] = {"id": "string", "n": "long", "x": "double", "ts": "timestamp not null"}
    document = {"name": "s", "event_time": "ts", "keys": [["id"]], "fields": fields}
    return StreamSchema.parse(document | more)


def test_a_duration_is_read_and_without_it_each_event_is_used() -> None:
    assert parse(event_id="id", deduplicate="24h").deduplicate_ms == 86_400_000
    assert parse(event_id="n", deduplicate="1ms").deduplicate_ms == 1
    assert parse(event_id="id").deduplicate_ms is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"deduplicate": "1h"}, "deduplicate needs event_id"),
        ({"event_id": "x", "deduplicate": "1h"}, "event_id x is a double"),
        ({"event_id": "id", "deduplicate": "1 hour"}, "is no duration"),
        ({"event_id": "id", "deduplicate": 3600}, "is no duration"),
        ({"event_id": "id", "deduplicate": "0s"}, "from 1ms to 3650d"),
        ({"event_id": "id", "deduplicate": "3651d"}, "from 1ms to 3650d"),
    ],
)
def test_what_cannot_be_is_rejected(more: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(**more)
