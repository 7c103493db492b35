"""The walk, compiled or not, says of every record what the reference says, or leaves it to the reference."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from streamcore.decode.reject_codes import ExtraFields
from streamcore.decode.scalar.json import decode_one
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.walk.decoder import RecordWalk
from streamcore.timestamps import load_zone
from tests.harness.decode.column_values import count_inside
from tests.harness.decode.hostile_json import STREAMS, make_records
from tests.harness.decode.walk_answers import CLOCK_MS, LIMITS, all_answers, digest, walk_answers, walk_records

#: Of each stream, for each odds; ``make nightly`` has more, from another seed, and all of them uncompiled too.
COUNT = int(os.environ.get("HEADGATE_JSON_RECORDS", "700"))
SEED = int(os.environ.get("HEADGATE_JSON_SEED", "1"))
UNCOMPILED_COUNT = int(os.environ.get("HEADGATE_JSON_RECORDS", "60"))


def by_bits(value: object) -> object:
    if isinstance(value, list):
        return [by_bits(item) for item in value]
    if isinstance(value, dict):
        return {name: by_bits(item) for name, item in value.items()}
    return struct.pack(">d", value) if isinstance(value, float) else value


@pytest.mark.slow
def test_what_the_walk_accepts_the_reference_accepts_with_the_same_values() -> None:
    accepted = rejected = left = 0
    for stream, extra, limits, records, answers in all_answers(SEED, COUNT):
        schema = STREAMS[stream]
        zone = ZoneInfo(schema.zone)
        for record, answer in zip(records, answers, strict=True):
            expected = decode_one(schema, record, clock_ms=CLOCK_MS, zone=zone, limits=limits, extra_fields=extra)
            if answer is None:
                rejected += isinstance(expected, RejectedRecord)
                left += not isinstance(expected, RejectedRecord)
            else:
                assert not isinstance(expected, RejectedRecord), (record, expected)
                assert [*map(by_bits, answer)] == [*map(by_bits, expected)], record
                accepted += 1
    assert min(accepted, rejected) > 2 * COUNT
    assert left < accepted / 200, "it leaves few good records to the reference"


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_the_walk_leaves_no_ordinary_record_to_the_reference(stream: str) -> None:
    for extra in ExtraFields:
        assert None not in walk_answers(stream, extra, make_records(stream, SEED, COUNT, 0.0))


@pytest.mark.parametrize("few", [12, *(pytest.param(few, marks=pytest.mark.slow) for few in (0, 1, 40))])
def test_walk_and_reference_count_values_as_the_columns_have_them(few: int) -> None:
    records, schema, extra = make_records("typed", SEED, COUNT, 0.0), STREAMS["typed"], ExtraFields.REJECT
    walk = RecordWalk(schema, load_zone(schema.zone), LIMITS, extra)
    columns = walk_records(walk, pa.array(records, pa.large_binary())).columns.combine_chunks()
    expected = [
        sum(count_inside(column.chunk(0).slice(row, 1)) for column in columns.columns) > few
        for row in range(len(records))
    ]
    limits = replace(LIMITS, max_record_values=few)
    assert [answer is None for answer in walk_answers("typed", extra, records, limits)] == expected
    zone = ZoneInfo(schema.zone)
    said = [decode_one(schema, r, clock_ms=CLOCK_MS, zone=zone, limits=limits, extra_fields=extra) for r in records]
    assert [isinstance(one, RejectedRecord) and one.code == "too_many_values" for one in said] == expected
    assert COUNT / 20 < sum(expected) <= COUNT


@pytest.mark.slow
def test_uncompiled_it_gives_the_same_answers() -> None:
    command = [sys.executable, "-m", "tests.harness.decode.walk_answers", str(SEED), str(UNCOMPILED_COUNT)]
    done = subprocess.run(
        command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(SEED, UNCOMPILED_COUNT)


def test_the_bytes_behind_a_null_are_not_read() -> None:
    record = make_records("flat", SEED, 1, 0.0)[0]
    offsets, valid = pa.py_buffer(np.array([0, len(record), 2 * len(record)], np.int64)), pa.py_buffer(b"\x01")
    records = pa.Array.from_buffers(pa.large_binary(), 2, [valid, offsets, pa.py_buffer(record * 2)])
    walk = RecordWalk(STREAMS["flat"], load_zone("UTC"), LIMITS, ExtraFields.REJECT)
    assert walk_records(walk, records).sure.tolist() == [True, False]


def test_columns_keep_only_their_own_values_in_memory() -> None:
    text = "x" * 100
    schema = STREAMS["flat"]
    records = [b'{"id":"a","ts":1,"s":"%s"}' % text.encode() if i % 100 == 0 else b"{}" * 500 for i in range(1_000)]
    walk = RecordWalk(schema, load_zone("UTC"), LIMITS, ExtraFields.REJECT)
    columns = walk_records(walk, pa.array(records, pa.large_binary())).columns
    assert columns["s"].to_pylist() == [text] * 10
    held = sum(buffer.size for column in columns.columns for buffer in column.chunk(0).buffers() if buffer)
    assert held < 4_000
