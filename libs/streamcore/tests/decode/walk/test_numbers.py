"""Numbers to doubles, bit by bit as Python reads them, and to decimals and whole numbers up to the limits."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.walk.decoder import RecordWalk
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone
from tests.harness.decode.hostile_json import random_double, random_number
from tests.harness.decode.walk_answers import walk_records

COUNT = 20_000


def read(kind: str, texts: Sequence[str]) -> list[object]:
    """Return the value of each number; None where the walk is not sure."""
    document = {"name": "t", "event_time": "at", "keys": [[]], "fields": {"at": "timestamp not null", "x": kind}}
    walk = RecordWalk(StreamSchema.parse(document), load_zone("UTC"), DecodeLimits(), ExtraFields.REJECT)
    walked = walk_records(walk, pa.array([b'{"at":1,"x":%b}' % text.encode() for text in texts], pa.large_binary()))
    values = iter(walked.columns["x"].to_pylist())
    return [next(values) if sure else None for sure in walked.sure]


def bits(value: object) -> bytes:
    assert isinstance(value, float)
    return struct.pack(">d", value)


def doubles(draw: random.Random) -> list[str]:
    """Return numbers of up to 18 digits, among them the shortest text of doubles, and those near to a tie."""
    texts = [repr(random_double(draw)) for _ in range(COUNT)]
    texts += [repr(draw.uniform(-1000, 1000)) for _ in range(COUNT)]
    texts += [f"{draw.randrange(10**17)}e{draw.randrange(-345, 300)}" for _ in range(COUNT)]
    texts += [f"{draw.randrange(10 ** draw.randrange(1, 19))}e{draw.randrange(-30, 30)}" for _ in range(COUNT)]
    # In the middle between two doubles, exactly: 2**53 and above, every second whole number is no double.
    texts += [str((2**53 + 2 * draw.randrange(2**52) + 1) * 2 ** draw.randrange(5)) for _ in range(COUNT)]
    texts += [f"{draw.randrange(2**53)}.5" for _ in range(COUNT)]
    return texts


@pytest.mark.slow
def test_a_double_is_the_nearest_one() -> None:
    texts = doubles(random.Random(5))
    unsure = 0
    for text, value in zip(texts, read("double", texts), strict=True):
        if value is None:
            unsure += abs(float(text)) != float("inf")
        else:
            assert bits(value) == bits(float(text)), text
    assert unsure < len(texts) / 10_000


LIMITS = (
    "5e-324 2.4703282292062327e-324 2.4703282292062328e-324 2.2250738585072011e-308 2.2250738585072014e-308 6.4e-323"
    " 1.7976931348623157e308 1.7976931348623158e308 -0 -0.0 0e5 -0e-400 1e-400 9007199254740993 4503599627370497.5 1e23"
    " 8.41e21 9e-265 1e22 3e-342 123e-343 999999999999999999e-342"
)


@pytest.mark.parametrize("text", LIMITS.split())
def test_a_double_at_a_limit_is_the_nearest_one(text: str) -> None:
    (value,) = read("double", [text])
    assert bits(value) == bits(float(text))


@pytest.mark.parametrize("text", ["1.7976931348623159e308", "1e309", "-1e309", "1e99999999999"])
def test_an_infinite_double_is_left_to_the_reference(text: str) -> None:
    assert read("double", [text]) == [None]


def test_a_number_of_any_text_is_read_right_or_left_to_the_reference() -> None:
    draw = random.Random(6)
    texts = [random_number(draw) for _ in range(COUNT)]
    found = [(text, value) for text, value in zip(texts, read("double", texts), strict=True) if value is not None]
    assert len(found) > COUNT / 2
    assert all(bits(value) == bits(float(text)) for text, value in found)


def test_a_decimal_of_eighteen_digits_is_exact() -> None:
    draw = random.Random(7)
    numbers = [draw.randrange(-(10**18) + 1, 10**18) for _ in range(COUNT)]
    for scale in (0, 2, 18):
        texts = [format(Decimal(number).scaleb(-scale), "f") for number in numbers]
        assert read(f"decimal(18,{scale})", texts) == numbers


def test_whole_numbers_are_exact_up_to_nearly_the_limits_of_64_bits() -> None:
    largest = 2**63 - 9
    numbers = [0, 1, -1, 10**18, largest, -largest, *map(int, np.arange(-50, 50) * 10**16)]
    assert read("long", [*map(str, numbers)]) == numbers
    assert read("long", ["9223372036854775800", "9223372036854775808", "-9223372036854775808"]) == [None] * 3
