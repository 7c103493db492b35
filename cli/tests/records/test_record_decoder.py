"""Commands decode few and many records on different paths to the same events."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import polars.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.records import decoder as decoding
from headgate.records.decoder import EventDecoder
from headgate.rules.bundle import load_streams
from streamcore.wire.raw import raw_batch

SHOP = load_streams()["shop"]
NOW_MS = 1_767_700_000_000
EVENT = {"event_id": "e1", "ts": 1_767_600_000_000, "type": "payment", "user_id": "u1", "amount": 99.5}
VALUES = st.none() | st.integers(-5, 2**60) | st.booleans() | st.text(max_size=4)
CHANGES = st.dictionaries(st.sampled_from([*SHOP.names, "undeclared"]), VALUES, max_size=3)
RECORDS = st.none() | st.binary(max_size=6) | CHANGES.map(lambda changes: orjson.dumps(EVENT | changes))


@settings(max_examples=50, deadline=None)
@given(st.lists(RECORDS, max_size=8))
def test_few_and_many_records_decode_to_the_same_events(records: list[bytes | None]) -> None:
    numbers = np.arange(len(records), dtype=np.int64)
    zeros = np.zeros(len(records), np.int32)
    batch = raw_batch(zeros, zeros + 3, numbers, [None] * len(records), records)

    def decode_all() -> tuple[Any, Any]:
        decode = EventDecoder(SHOP, NOW_MS)
        return decode(batch, "t"), decode.take_dead_letters()

    few, few_dead = decode_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "SCALAR_LIMIT", -1)
        many, many_dead = decode_all()
    polars.testing.assert_frame_equal(few, many)
    assert few_dead == many_dead
