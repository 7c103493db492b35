"""Records of random Avro and Protobuf schemas: walks, compiled or not, references and other libraries agree."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streamcore.decode.scalar.record import RejectedRecord
from tests.harness.decode import random_avro, random_protobuf
from tests.harness.decode.binary_answers import (
    CLOCK_MS,
    FEW_VALUES,
    HEAD,
    Decoding,
    avro_decoding,
    digest,
    proto_decoding,
)
from tests.harness.decode.column_values import count_inside
from tests.harness.decode.random_protobuf import Message, by_key, without_other_fields_in_entries
from tests.harness.decode.spoil import spoil
from tests.harness.run import profiles

#: Random schemas of each format; ``make nightly`` has more, from another seed.
COUNT = int(os.environ.get("HEADGATE_BINARY_SCHEMAS") or profiles.cases(40))
SEED = int(os.environ.get("HEADGATE_BINARY_SEED", "1"))
RECORDS = 60
UNCOMPILED_COUNT = max(6, COUNT // 50)


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_logical_types(one) for name, one in schema.items() if name != "logicalType"}
    return [without_logical_types(one) for one in schema] if isinstance(schema, list) else schema


def check_walk(decoding: Decoding, records: list[bytes]) -> list[Any]:
    """Check that what the walk accepts the reference accepts with the same values; return what the reference says."""
    said = [decoding.reference(record, CLOCK_MS) for record in records]
    for record, row, expected in zip(records, decoding.walk(records), said, strict=True):
        # The text tells floats and whole numbers apart, and -0.0 and 0.0.
        assert row is None or repr(row) == repr(expected), record
    return said


@pytest.mark.slow
def test_avro_records_are_read_as_fastavro_reads_them_and_as_they_were_written() -> None:
    left = 0
    for seed in range(SEED, SEED + COUNT):
        case, chance = random_avro.make_case(seed), random.Random(seed)
        decoding = avro_decoding(case.schema, case.stream)
        written = [case.write(chance) for _ in range(RECORDS)]
        fast = fastavro.parse_schema(without_logical_types(case.schema))
        for data, value, _ in written:
            stream = io.BytesIO(data)
            assert repr(fastavro.schemaless_reader(stream, fast, None)) == repr(value)
            assert stream.tell() == len(data)
        said = check_walk(decoding, [data for data, _, _ in written])
        for (_, _, row), one in zip(written, said, strict=True):
            if isinstance(one, RejectedRecord):
                assert one.code.value == "too_deep", (seed, one)
            else:
                assert repr(one) == repr(row), seed
        good = [data for (data, _, _), one in zip(written, said, strict=True) if not isinstance(one, RejectedRecord)]
        left += decoding.walk(good).count(None)
    assert left <= max(1, COUNT // 20), "it leaves next to no good record to the reference"


@pytest.mark.slow
def test_of_spoiled_avro_records_the_walk_accepts_none_that_the_reference_rejects() -> None:
    accepted = rejected = 0
    for seed in range(SEED, SEED + COUNT):
        case, chance = random_avro.make_case(seed), random.Random(seed)
        records = [spoil(case.write(chance)[0], chance) for _ in range(RECORDS)]
        said = check_walk(avro_decoding(case.schema, case.stream), records)
        rejected += sum(isinstance(one, RejectedRecord) for one in said)
        accepted += sum(not isinstance(one, RejectedRecord) for one in said)
    assert rejected > COUNT * RECORDS / 4
    assert accepted > COUNT


@pytest.mark.slow
def test_protobuf_records_are_read_as_googles_library_reads_them() -> None:
    left = 0
    for seed in range(SEED, SEED + COUNT):
        case, chance = random_protobuf.make_case(seed), random.Random(seed)
        decoding = proto_decoding(case.text, case.stream)
        records = [case.write(chance) for _ in range(RECORDS)]
        for record, one in zip(records, check_walk(decoding, [HEAD + record for record in records]), strict=True):
            assert repr(by_key(one)) == repr(by_key(case.row(record))), (seed, one)
        left += decoding.walk([HEAD + case.write_plain(chance) for _ in range(RECORDS)]).count(None)
    assert left <= max(1, COUNT // 20), "it leaves next to no record to the reference that Google's library wrote"


@pytest.mark.slow
def test_spoiled_protobuf_records_are_read_as_googles_library_reads_them_or_rejected() -> None:
    accepted = rejected = unread = 0
    for seed in range(SEED, SEED + COUNT):
        case, chance = random_protobuf.make_case(seed), random.Random(seed)
        records = [spoil(case.write(chance), chance) for _ in range(RECORDS)]
        said = check_walk(proto_decoding(case.text, case.stream), [HEAD + record for record in records])
        for record, one in zip(records, said, strict=True):
            try:
                expected = case.row(record)
            except Exception:
                expected = None
            if isinstance(one, RejectedRecord):
                # In an unknown group, Google's library lets pass numbers that no field has, such as 0. proto2 does not
                # ask for UTF-8, and a time or a double may be out of range.
                is_right = expected is None or one.code.value != "not_protobuf" or has_groups(record, case.message)
                assert is_right, (seed, record, one)
                rejected += 1
            elif expected is None:
                unread += 1  # the mistake is in a message that the stream does not read
            else:
                if has_groups(record, case.message):
                    continue
                expected = case.row(without_other_fields_in_entries(record, case.message))
                assert repr(by_key(one)) == repr(by_key(expected)), (seed, record)
                accepted += 1
    assert rejected > COUNT * RECORDS / 10
    assert accepted > COUNT
    assert unread < accepted / 4


def has_groups(record: bytes, message: Message) -> bool:
    """Return whether there is a group in a record that Google's library reads: the only part that is not cleaned."""
    try:
        without_other_fields_in_entries(record, message)
    except (IndexError, ValueError):
        return True
    return False


def check_counts(full: Decoding, few: Decoding, records: list[bytes]) -> int:
    """Check of each record which has all its values read that it is rejected if these are more than a few, by the
    walk too; return how many are."""
    rejected = 0
    answers = zip(records, full.walk(records), few.walk(records), strict=True)
    for record, row, of_few in answers:
        expected = full.reference(record, CLOCK_MS)
        if isinstance(expected, RejectedRecord):
            continue
        columns = [pa.array([v], f.type.arrow) for v, f in zip(expected, full.stream.fields, strict=True)]
        too_many = sum(map(count_inside, columns)) > FEW_VALUES.max_record_values
        said = few.reference(record, CLOCK_MS)
        assert too_many == isinstance(said, RejectedRecord), (record, said)
        assert not isinstance(said, RejectedRecord) or said.code.value == "too_many_values"
        assert row is None or too_many == (of_few is None), record
        rejected += too_many
    return rejected


@pytest.mark.slow
def test_walks_and_references_count_values_as_the_columns_have_them() -> None:
    of_avro = of_protobuf = 0
    for seed in range(SEED, SEED + COUNT):
        avro, proto, chance = random_avro.make_case(seed), random_protobuf.make_case(seed), random.Random(seed)
        pair = (avro_decoding(avro.schema, avro.stream), avro_decoding(avro.schema, avro.stream, FEW_VALUES))
        of_avro += check_counts(*pair, [avro.write(chance)[0] for _ in range(RECORDS)])
        pair = (proto_decoding(proto.text, proto.stream), proto_decoding(proto.text, proto.stream, FEW_VALUES))
        of_protobuf += check_counts(*pair, [HEAD + proto.write_plain(chance) for _ in range(RECORDS)])
    assert min(of_avro, of_protobuf) > COUNT * RECORDS / 20
    assert max(of_avro, of_protobuf) < COUNT * RECORDS * 0.9


@pytest.mark.slow
def test_uncompiled_the_walks_give_the_same_answers() -> None:
    command = [sys.executable, "-m", "tests.harness.decode.binary_answers", str(SEED), str(UNCOMPILED_COUNT)]
    done = subprocess.run(
        command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(SEED, UNCOMPILED_COUNT)
