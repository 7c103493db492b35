"""What records begin with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streamcore.decode.record_starts import RecordStarts

WHOLE = bytes(range(1, 41))


@pytest.mark.parametrize("length", [0, 1, 4, 5, 8, 9, 16, 39])
def test_a_prefix_is_matched_to_its_last_byte(length: int) -> None:
    prefix = WHOLE[:length]
    records = [WHOLE, prefix, prefix[:-1], b"", *(WHOLE[:n] + b"\xff" + WHOLE[n + 1 :] for n in range(40))]
    expected = [record.startswith(prefix) for record in records]
    starts = RecordStarts(pa.array([b"before", *records], pa.large_binary())[1:])
    assert starts.match(np.arange(len(records)), prefix).tolist() == expected
    assert starts.match(np.arange(1, len(records), 2), prefix).tolist() == expected[1::2]


def test_an_id_is_the_number_behind_the_magic_byte_of_records_that_have_one() -> None:
    records = [b"\0\0\0\1\7", b"\0\xff\xff\xff\xff!", b"\0\0\0\1", b"\1\0\0\0\1", b"", None, b"\0" * 11]
    starts = RecordStarts(pa.array(records, pa.large_binary()))
    assert starts.schema_ids(0, 10).tolist() == [0x107, 2**32 - 1, -1, -1, -1, -1, -1]
