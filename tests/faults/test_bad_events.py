"""Invalid events become dead letters with their bytes and a reason, and the app runs on."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pytest

from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka.readers import Record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import HOUR_MS, Order
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import as_object, text

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
YEAR_MS = 365 * orders.DAY_MS
GARBAGE = 400


@dataclass(frozen=True, slots=True)
class Bad:
    """The value of a record and the code of its dead letter."""

    value: bytes | None
    code: str


def bad_records(good: Mapping[str, object], now_ms: int) -> list[Bad]:
    """Return one record of each kind. ``good`` is an accepted event."""

    def event(**change: object) -> bytes:
        return json.dumps({**good, **change}).encode()

    return [
        Bad(None, "no_value"),
        Bad(b"", "not_json"),
        Bad(b'{"id": 1, "ts": ', "not_json"),
        Bad(b"not json at all", "not_json"),
        Bad(event(id=1) + event(id=2), "not_json"),
        Bad(b'{"id": 1, "user": "\xff\xfe"}', "not_utf8"),
        Bad(b"[1, 2, 3]", "not_an_object"),
        Bad(b"null", "not_an_object"),
        Bad(event(user={"a": 1}), "wrong_type"),
        Bad(event(id="one"), "wrong_type"),
        Bad(event(kind=7), "wrong_type"),
        Bad(event(amount=True), "wrong_type"),
        Bad(json.dumps({k: v for k, v in good.items() if k != "kind"}).encode(), "missing_field"),
        Bad(event(kind=None), "missing_field"),
        Bad(event(colour="red"), "extra_field"),
        Bad(event()[:-1] + b', "id": 2}', "duplicate_field"),
        Bad(event(user=_nested(100)), "too_deep"),
        Bad(event(id=2**63), "out_of_range"),
        Bad(event(amount="1.005"), "out_of_range"),
        Bad(event(ts="yesterday"), "bad_timestamp"),
        Bad(event(ts=now_ms + HOUR_MS), "from_the_future"),
        Bad(event(ts=now_ms + 70 * YEAR_MS), "from_the_future"),
        Bad(event(country="x" * 300_000), "too_large"),
    ]


def test_every_kind_of_invalid_record_is_a_dead_letter_with_its_bytes_and_its_reason(live: Scene) -> None:
    start_ms = live.next_day()
    good = json.loads(Order(1, start_ms, "u", "pay").value)
    bad = bad_records(good, time.time_ns() // 1_000_000)
    live.tick(start_ms)
    live.settle()
    events, watermark_ms = live.app.events, live.app.watermark_ms
    offsets = live.send_raw(live.orders_topic, [(b"key-%d" % n, b.value) for n, b in enumerate(bad)])
    live.settle()
    assert live.app.events == events, "none was taken for an event"
    assert live.app.watermark_ms == watermark_ms == start_ms - orders.DISORDER_MS, "not even the years ahead moved it"
    letters = dead_letters(live)
    for number, (offset, one) in enumerate(zip(offsets, bad, strict=True)):
        letter = letters[offset]
        assert text(letter, "reason_code") == one.code, one
        assert text(letter, "reason"), one
        assert text(letter, "source_topic") == live.orders_topic
        assert (letter.key, letter.value) == (b"key-%d" % number, one.value)
    live.check_counts()


def test_a_record_of_a_megabyte_becomes_a_dead_letter_with_its_original_length(live: Scene) -> None:
    value = b'{"id": 1, "country": "' + b"x" * 1_040_000 + b'"}'
    producer = control_plane.control_producer(live.kafka)  # the other one sends no records as large
    sent = producer.send(live.orders_topic, value=value, key=None, partition=0).get(60)
    producer.close()
    live.count += 1
    live.settle()
    letter = dead_letters(live)[sent.offset]
    assert text(letter, "reason_code") == "too_large"
    assert text(letter, "truncated_from_bytes") == str(len(value))
    assert letter.value is not None
    assert len(letter.value) > 900_000
    assert value.startswith(letter.value)
    live.check_counts()


def test_events_without_a_key_are_processed_and_late_ones_go_to_the_late_lane(live: Scene) -> None:
    start_ms = live.next_day()
    rule = rules.large_order(prefix="past-")
    with live.live_rules(rule):
        live.tick(start_ms + HOUR_MS)
        live.settle()
        late = len(live.outputs.read("late"))
        past = Order(1, start_ms - 20 * YEAR_MS, "past", "pay", Decimal(1000))
        on_time = Order(2, start_ms + 2 * HOUR_MS, None, "pay", Decimal(2000))
        offsets = live.send_raw(live.orders_topic, [(None, past.value), (None, on_time.value)])
        live.settle()
    letters = live.outputs.read("late")[late:]
    assert len(letters) == 1
    letter = as_object(letters[0])
    assert letter["source"] == {"topic": live.orders_topic, "partition": 0, "offset": offsets[0]}
    watermark_ms = start_ms + HOUR_MS - orders.DISORDER_MS
    assert (letter["watermark_ms"], letter["lateness_ms"]) == (watermark_ms, watermark_ms - past.ts)
    alerts = live.alerts_of([rule])
    assert {json.dumps(a["source"]) for a in alerts} == {
        json.dumps({"topic": live.orders_topic, "partition": 0, "offset": offset}) for offset in offsets
    }, "a rule per event sees late events and those without a user, too"
    live.check_counts()


def test_random_bytes_do_not_stop_the_app_and_the_counts_add_up(live: Scene) -> None:
    chance = random.Random(6)
    start_ms = live.next_day()
    rule = rules.large_order(prefix="garbage-")
    template = Order(1, start_ms, "u", "pay", Decimal("12.50"), "GB").value
    with live.live_rules(rule):
        live.send_raw(live.orders_topic, [(None, _garbage(chance, template)) for _ in range(GARBAGE)])
        live.send([Order(2, start_ms, "after", "pay", Decimal(1234))])
        live.settle()
    assert [a for a in live.alerts_of([rule]) if a["key"] == {"user": "after"}], "the good event after it alerted"
    letters = dead_letters(live)
    assert len(Counter(text(letter, "reason_code") for letter in letters.values())) > 4, "garbage of many kinds"
    live.check_counts()


def dead_letters(live: Scene) -> dict[int, Record]:
    """Return the dead letters of partition 0 of ``orders`` by their source offset.

    The app reports a cut when Kafka has accepted its commit; a busy broker shows the records a moment later.
    """
    read: list[Record] = []

    def has_all() -> bool:
        read[:] = live.outputs.read("deadletters")
        return len(read) >= live.app.lane("deadletters")

    live.app.wait_for(has_all, "the dead letters that are reported")
    records = [r for r in read if text(r, "source_topic") == live.orders_topic]
    return {int(text(r, "source_offset")): r for r in records if text(r, "source_partition") == "0"}


def _garbage(chance: random.Random, template: bytes) -> bytes | None:
    """Return random bytes, or a valid event with a few bytes removed, changed or repeated."""
    if chance.random() < 0.2:
        return chance.choice([None, chance.randbytes(chance.randrange(200))])
    value = bytearray(template)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(value))
        match chance.randrange(3):
            case 0:
                del value[at : at + chance.randrange(1, 10)]
            case 1:
                value[at] = chance.randrange(256)
            case _:
                value[at:at] = value[at : at + chance.randrange(1, 30)]
        if not value:
            return b""
    return bytes(value)


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value
