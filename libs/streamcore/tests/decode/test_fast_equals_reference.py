"""The fast path gives the same records with the same values as the reference for any bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.reject_codes import ExtraFields
from streamcore.decode.types import RawBatch
from streamcore.schema import StreamSchema

MakeBoth = Callable[..., Any]

_SOME_NUMBERS = (  # noqa: SIM905 - fifty quoted numbers, one a line, read worse
    "0 -0 1 -1 1.0 0.0 -0.0 1e3 1E3 1e+3 1e-3 -0e5 0.1 0.10 1.005 12.50 12.500 999999999999999 9007199254740993"
    " 1234567890123.45 12345678901234.56 123456789012345.67 0.29 1.15 2.675 999999999999999999 9223372036854775807"
    " 9223372036854775808 1700000000000 99999999999999 253402300800000 1e15 1e16 1e99 1e308 1e309 0.1234 0.99995 01 +1"
    " 1. .5 1e 0x1 NaN Infinity -Infinity -"
).split()
_SOME_TEXTS = [
    r"\u0000", r"\ud800", r"\ud83d\ude00", r"\\ud800", r"\n", r"\x", "\n", "\t", "\u00e9", "\U0001f600", "\u2028", "",
    "null", "5", "12.50", "-0.1", "1e2", "1234567890123456.78", ":null", "},{", '"', "\\", "2026-01-31T12:00:00Z",
    "2026-02-30T12:00:00Z", "2026-01-31T12:00:00", "2026-03-29T01:30:00", "2026-10-25 01:30:00", "1970-01-01T00:00:00",
    "2026-01-31T12:00:00.1239+05:30", "2026-01-31T12:00:60Z", "2026-01-31T25:00:00Z", "1970-01-01T00:00:00+00:01",
    "2099-01-01T00:00:00Z", "2026-01-31 12:00", "9999-12-31T23:59:59.999999-00:01",
]  # fmt: skip

numbers = st.one_of(
    st.sampled_from(_SOME_NUMBERS),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
)
texts = st.one_of(st.sampled_from(_SOME_TEXTS), st.text(max_size=8).map(lambda t: json.dumps(t)[1:-1])).map(
    lambda body: f'"{body}"'
)
literals = st.one_of(
    numbers, texts, st.sampled_from(["null", "true", "false", "{}", "[]", "[1]", '{"s":"x"}', "", "nul", "True"])
)
names = st.sampled_from(["id", "ts", "s", "b", "n", "d", "m", "r", "u", "x", r"\u0073", "S", ""])


@st.composite
def styles(draw: st.DrawFn) -> dict[str, st.SearchStrategy[str]]:
    """How one producer writes: order of fields, form of times and decimals; good values by field."""
    clock = st.integers(0, 1_800_000_000_000)
    time = st.sampled_from(
        ["1700000000000", '"2026-01-31T12:00:00Z"', '"2026-07-31 12:00:00.25"', '"2026-10-25T01:30:00+05:30"']
    )
    money = st.sampled_from(["12.5", '"12.5"'])
    fields = {
        "id": st.just('"x"'),
        "ts": st.just(draw(time)),
        "s": st.sampled_from(['"a"', '"\\u00e9"', "null"]),
        "b": st.sampled_from(["true", "false", "null"]),
        "n": clock.map(str),
        "d": st.floats(-1e6, 1e6).map(repr),
        "m": st.just(draw(money)),
        "r": st.just("0.25"),
        "u": st.just(draw(time)),
        "x": st.sampled_from(draw(st.sampled_from([["1"], ["1", "[]", '{"s": [1]}', '[{"a": "\\u00e9"}]']]))),
    }
    order = draw(st.permutations([n for n in fields if n in ("id", "ts") or draw(st.booleans())]))
    return {name: fields[name] for name in order}


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    """Return a producer's good records, enough to learn from, and then ones with something wrong or odd in them."""
    style = draw(styles())
    good = {name: draw(values) for name, values in style.items()}
    comma, colon = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :"), (",\n", ":")]))

    def write(pairs: Sequence[tuple[str, str]]) -> bytes:
        body = comma.join(f'"{name}"{colon}{value}' for name, value in pairs)
        return f"{{{body}}}".encode("utf-8", "surrogatepass")

    records: list[bytes | None] = [write(list(good.items()))] * draw(st.sampled_from([0, 20]))
    for _ in range(draw(st.integers(1, 25))):
        pairs = [(name, draw(values)) for name, values in style.items()]
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.integers(0, len(pairs) - 1))
            match draw(st.sampled_from(["value", "value", "value", "name", "drop", "twice", "insert"])):
                case "value":
                    pairs[place] = (pairs[place][0], draw(literals))
                case "name":
                    pairs[place] = (draw(names), pairs[place][1])
                case "drop" if len(pairs) > 1:
                    del pairs[place]
                case "twice":
                    pairs.append(pairs[place])
                case _:
                    pairs.insert(place, (draw(names), draw(literals)))
        record = write(pairs)
        if draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(record)))
            record = record[:cut] + draw(st.binary(max_size=3)) + record[cut + draw(st.integers(0, 2)) :]
        records.append(record)
    return records


@settings(max_examples=400, deadline=None)
@given(records=batches())
def test_the_fast_path_equals_the_reference(make_both: MakeBoth, records: list[bytes | None]) -> None:
    both = make_both()
    first, second = both.agree(records), both.agree(records)
    assert first.events.equals(second.events)


@settings(max_examples=150, deadline=None)
@given(records=batches())
def test_the_fast_path_equals_the_reference_when_extra_fields_are_ignored(
    make_both: MakeBoth, records: list[bytes | None]
) -> None:
    decoded = make_both(extra_fields=ExtraFields.IGNORE).agree(records)
    assert "extra_field" not in decoded.dead.column("code").to_pylist()


@settings(max_examples=300, deadline=None)
@given(records=st.lists(st.one_of(st.none(), st.binary(max_size=60), st.text().map(str.encode)), max_size=20))
def test_random_bytes_become_dead_letters_and_none_are_lost(make_both: MakeBoth, records: list[bytes | None]) -> None:
    decoded = make_both().agree(records)
    assert decoded.dead.num_rows == len(records)


@settings(max_examples=200, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_no_json_makes_the_decoder_raise(make_both: MakeBoth, value: object) -> None:
    record = json.dumps({"id": "x", "ts": 1, "s": value}).encode()
    decoded = make_both().agree([record])
    assert decoded.events.num_rows == (1 if value is None or isinstance(value, str) else 0)


@settings(max_examples=100, deadline=None)
@given(records=batches(), cut=st.integers(0, 30))
def test_earlier_records_do_not_affect_the_result(make_both: MakeBoth, records: list[bytes | None], cut: int) -> None:
    both = make_both()
    whole = both.agree(records)
    again = pa.concat_tables([both.agree(records[:cut]).events, both.agree(records[cut:]).events])
    names = list(both.schema.names)
    assert again.select(names).equals(whole.events.select(names))


def test_a_slice_of_small_binary_is_decoded_like_any_other() -> None:
    schema = StreamSchema.parse(
        {"name": "t", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null", "m": "decimal(9,2)"}}
    )
    records = [b'{"ts":%d,"m":%d.25}' % (i, i) for i in range(100)]
    n = pa.array(range(100), pa.int64())
    batch = RawBatch(pa.array(records, pa.binary()), n.cast(pa.int32()), n, clock_ms=0)
    part = RawBatch(batch.values[40:60], batch.partition[40:60], batch.offset[40:60], 0)
    assert JsonDecoder(schema).decode(part).events.equals(JsonDecoder(schema).decode(batch).events.slice(40, 20))
