"""Event times by pattern, by unit and from the record's timestamp, and the bounds of plausible times: in columns as in
the reference, in every format."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from streamcore.decode.formats import Avro, Bare, Csv, InputFormat, Json
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar import RejectedRecord
from streamcore.decode.scalar.event import IgnoredRecord, StreamRecord, decode_json_event
from streamcore.decode.stream_decoder import event_decoder
from streamcore.decode.types import BesideValues, RawBatch
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.schema.evolution import find_problems
from streamcore.schema.record_layout import reads_timestamps
from streamcore.timestamps import load_zone, to_text

CLOCK_MS = 1_767_608_220_000  # 2026-01-05T10:17:00Z
AMERICAN = "MM/dd/yyyy hh:mm:ss a"
LIMITS = DecodeLimits()


def stream(at: object, event_time: object = "at", **more: object) -> StreamSchema:
    document = {"name": "s", "fields": {"at": at, "n": "long"}, "event_time": event_time, "keys": [[]]}
    return StreamSchema.parse(document | more)


def decode(
    schema: StreamSchema,
    values: list[bytes],
    stamps: list[int | None] | None = None,
    of: InputFormat | None = None,
    limits: DecodeLimits = LIMITS,
    fields: frozenset[str] | None = None,
) -> tuple[list[tuple[int, int]], list[tuple[int, str, str]]]:
    """Return offset and time of each event, and each rejection."""
    count = len(values)
    beside = BesideValues(timestamp_ms=None if stamps is None else pa.array(stamps, pa.int64()))
    batch = RawBatch(
        pa.array(values, pa.large_binary()),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        CLOCK_MS,
        beside,
        fields=fields,
    )
    decoded = event_decoder(schema, of or Json(), limits, ExtraFields.IGNORE).decode(batch)
    events = zip(*(decoded.events.column(name).to_pylist() for name in ("__offset", "__event_ms")), strict=True)
    dead = zip(*(decoded.dead.column(name).to_pylist() for name in ("row", "code", "reason")), strict=True)
    return list(events), list(dead)


def expected(
    schema: StreamSchema, values: list[bytes], stamps: list[int | None] | None, limits: DecodeLimits = LIMITS
) -> tuple[list[tuple[int, int]], list[tuple[int, str, str]]]:
    """Return what the reference makes of JSON records."""
    events, dead = [], []
    for row, value in enumerate(values):
        record = StreamRecord(value, timestamp_ms=None if stamps is None else stamps[row])
        found = decode_json_event(
            schema,
            record,
            clock_ms=CLOCK_MS,
            zone=load_zone(schema.zone),
            limits=limits,
            extra_fields=ExtraFields.IGNORE,
        )
        assert not isinstance(found, IgnoredRecord)
        if isinstance(found, RejectedRecord):
            dead.append((row, found.code.value, found.reason))
        else:
            time = found[0]
            assert isinstance(time, int)
            events.append((row, time))
    return events, dead


def test_a_time_of_a_pattern_is_the_event_time_in_the_zone_of_the_stream() -> None:
    schema = stream({"type": "timestamp not null", "from": "created", "pattern": AMERICAN}, zone="America/New_York")
    records = [b'{"created": "01/31/2020 11:59:00 PM", "n": 1}', b'{"created": "31/01/2020 11:59:00 PM"}', b'{"n": 1}']
    events, dead = decode(schema, records)
    assert events == [(0, 1_580_533_140_000)]  # 2020-02-01T04:59:00Z
    assert [code for _, code, _ in dead] == ["bad_timestamp", "missing_field"]
    assert 'found the text "31/01/2020 11:59:00 PM"; accepted is a time such as MM/dd/yyyy hh:mm:ss a' in dead[0][2]
    assert (events, dead) == expected(schema, records, None)


def test_a_text_that_is_no_time_rejects_a_record_whose_field_nobody_reads() -> None:
    document = {
        "name": "s",
        "fields": {"at": "timestamp not null", "seen": {"type": "timestamp", "pattern": "dd.MM.yyyy"}, "n": "long"},
        "event_time": "at",
        "keys": [[]],
    }
    values = [b'{"at": 1767608220000, "seen": "x"}', b'{"at": 1767608220000}', b'{"at": 1767608220000, "seen": 5}']
    events, dead = decode(StreamSchema.parse(document), values, fields=frozenset({"at"}))
    assert [row for row, _ in events] == [1]
    assert [code for _, code, _ in dead] == ["bad_timestamp", "wrong_type"]


def test_the_timestamp_of_the_record_is_the_event_time_of_an_event_without_one() -> None:
    schema = stream(
        "timestamp not null", {"field": "at", "fallback": "kafka"}
    )  # fmt: skip
    values = [b'{"at": 1767600000000}', b"{}", b'{"at": null}', b'{"n": 1}', b'{"at": "x"}', b"{}"]
    stamps = [1, 1_767_600_000_111, 1_767_600_000_222, None, 5, CLOCK_MS + 10**9]
    events, dead = decode(schema, values, stamps)
    assert events == [(0, 1_767_600_000_000), (1, 1_767_600_000_111), (2, 1_767_600_000_222)]
    assert [(row, code) for row, code, _ in dead] == [
        (3, "missing_field"), (4, "bad_timestamp"), (5, "from_the_future")
    ]  # fmt: skip
    assert "the record has no timestamp" in dead[0][2]
    assert (events, dead) == expected(schema, values, stamps)


@pytest.mark.parametrize(
    ("unit", "number", "question"),
    [
        ("ms", 1_767_608_220, "are these seconds? Use unit: s"),
        ("us", 1_767_608_220_000, "are these milliseconds? Use unit: ms"),
        ("ns", 1_767_608_220_000_000, "are these microseconds? Use unit: us"),
    ],
)
def test_a_number_in_a_smaller_unit_than_declared_is_a_dead_letter_that_asks(
    unit: str, number: int, question: str
) -> None:
    schema = stream({"type": "timestamp not null", "unit": unit})
    events, dead = decode(schema, [f'{{"at": {number}}}'.encode()])
    assert not events
    assert dead[0][1] == "implausible_time"
    assert question in dead[0][2]
    assert "1970-01-21T11:00:08.220Z is no plausible time" in dead[0][2]


def test_a_number_in_a_larger_unit_than_declared_asks_too() -> None:
    _, dead = decode(stream("timestamp not null"), [b'{"at": 1767608220000000}', b'{"at": 1767608220000000000}'])
    assert [code for _, code, _ in dead] == ["out_of_range"] * 2
    assert "are these microseconds? Use unit: us" in dead[0][2]
    assert "are these nanoseconds? Use unit: ns" in dead[1][2]


def test_early_times_that_are_no_mistake_of_a_unit_are_events() -> None:
    times = [0, 1, 86_400_000, 999_999_999, CLOCK_MS // 1000 + 301, 2_000_000_000, 10**10, 631_151_999_999]
    values = [f'{{"at": {ms}}}'.encode() for ms in times]
    events, dead = decode(stream("timestamp not null"), values)
    assert [ms for _, ms in events] == times
    assert not dead


def test_a_time_without_a_year_is_of_the_year_of_its_record() -> None:
    schema = stream({"type": "timestamp not null", "pattern": "MMM d HH:mm:ss"}, zone="Europe/Berlin")
    assert reads_timestamps(schema)
    assert not reads_timestamps(stream({"type": "timestamp not null", "pattern": AMERICAN}))
    texts = [
        "Jan  5 11:17:00",
        "Dec 31 23:59:59",
        "Feb 29 12:00:00",
        "Jan 6 11:16:00",
        "Jan 6 11:18:00",
        "Feb 30 1:1:1",
    ]
    values = [json.dumps({"at": text}).encode() for text in [*texts, "Jan 5 11:17:00"]]
    stamps = [CLOCK_MS] * len(texts) + [None]
    events, dead = decode(schema, values, stamps, limits=replace(LIMITS, max_future_ms=90_000_000))
    assert [to_text(ms) for _, ms in events] == [
        "2026-01-05T10:17:00.000Z", "2025-12-31T22:59:59.000Z", "2024-02-29T11:00:00.000Z", "2026-01-06T10:16:00.000Z",
        "2025-01-06T10:18:00.000Z",
    ]  # fmt: skip
    assert [(row, code) for row, code, _ in dead] == [(5, "bad_timestamp"), (6, "bad_timestamp")]
    assert 'found the text "Feb 30 1:1:1"' in dead[0][2]
    assert "has no year, and the record has no timestamp" in dead[1][2]
    assert (events, dead) == expected(schema, values, stamps, replace(LIMITS, max_future_ms=90_000_000))


def test_the_setting_is_the_earliest_plausible_time() -> None:
    limits = replace(LIMITS, min_event_ms=631_152_000_000)
    values = [f'{{"at": {ms}}}'.encode() for ms in (631_151_999_999, 631_152_000_000, 1_767_608_220)]
    events, dead = decode(stream("timestamp not null"), values, limits=limits)
    assert [row for row, _ in events] == [1]
    assert "1989-12-31T23:59:59.999Z is before 1990-01-01T00:00:00.000Z (min_event_time)" in dead[0][2]
    assert "?" not in dead[0][2]
    assert "are these seconds? Use unit: s" in dead[1][2]
    early = replace(LIMITS, min_event_ms=0)  # whoever sets it, says what is plausible
    assert [row for row, _ in decode(stream("timestamp not null"), values, limits=early)[0]] == [0, 1, 2]


AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "at", "type": "long"}]})


def _zigzag(number: int) -> bytes:
    found, rest = bytearray(), number << 1
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def test_all_formats_have_the_same_bounds() -> None:
    times = [1_767_608_220, 999_999_999, CLOCK_MS, 1_000_000_000, CLOCK_MS + 300_001, 5_000]
    schema = stream("timestamp not null")
    accepted = [1, 2, 5]
    found = {
        "json": decode(schema, [f'{{"at": {ms}}}'.encode() for ms in times]),
        "csv": decode(schema, [f"{ms},1".encode() for ms in times], of=Csv()),
        "avro": decode(schema, [_zigzag(ms) for ms in times], of=Avro(Bare(AVRO))),
    }
    for name, (events, dead) in found.items():
        assert [row for row, _ in events] == accepted, name
        assert dead == found["json"][1], name


def test_columns_and_reference_agree_on_any_times() -> None:
    draw = Random(7)
    patterns = [AMERICAN, "MM/dd HH:mm", "dd/MMM/yyyy:HH:mm:ss Z", "yyyyMMddHHmmss.SSS"]
    texts = ["01/31/2020 11:59:00 PM", "13/31/2020 11:59:00 PM", "05/Jan/2026:10:17:00 +0100", "20260105101700.123",
             "05/jan/0001:10:17:00 -0000", "03/29/2026 02:30:00 AM", "10/25 02:30", "02/29 00:00", "", "x"]  # fmt: skip
    for pattern in patterns:
        for event_time in ("at", {"field": "at", "fallback": "kafka"}):
            at = {"type": "timestamp not null", "pattern": pattern}
            schema = stream(at, event_time, zone=draw.choice(["UTC", "Europe/Berlin"]))
            values, stamps = [], list[int | None]()
            for _ in range(60):
                at_value = draw.choice([*texts, *texts, None, 5])
                values.append(json.dumps({"at": at_value, "n": 1} if draw.random() < 0.9 else {"n": 2}).encode())
                stamps.append(draw.choice([None, -1, 5, 1_767_608_220, CLOCK_MS, CLOCK_MS + 10**12]))
            assert decode(schema, values, stamps) == expected(schema, values, stamps)


@pytest.mark.parametrize(
    ("at", "event_time", "message"),
    [
        ({"type": "timestamp not null", "pattern": "yyyy-MM"}, "at", "pattern 'yyyy-MM': the pattern has no day"),
        ({"type": "long", "pattern": "yyyy-MM-dd"}, "at", "pattern: of a timestamp that is text"),
        ({"type": "timestamp not null", "pattern": "yyyy-MM-dd", "unit": "s"}, "at", "leave one out"),
        ({"type": "timestamp not null", "pattern": "yyyy-MM-dd hh:mm"}, "at", "belong together"),
        ("timestamp not null", {"field": "at", "fallback": "now"}, "{field: NAME, fallback: kafka}"),
    ],
)
def test_a_wrong_declaration_is_refused(at: object, event_time: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stream(at, event_time)
    assert message in str(caught.value)


def test_a_pattern_does_not_change_while_the_app_runs() -> None:
    old = stream({"type": "timestamp not null", "pattern": AMERICAN})
    assert "its texts would be read as ISO 8601" in find_problems(old, stream("timestamp not null"))[0]
    assert (
        "time_fallback does not change"
        in find_problems(
            stream("timestamp not null"), stream("timestamp not null", {"field": "at", "fallback": "kafka"})
        )[0]
    )
