"""Files for a back-test: their rows become the events that a replay of the file would give, or get the same reason."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.backtest.sources import file_batches
from headgate.records.decoder import EventDecoder
from headgate.records.file_rows import read_rows
from headgate.records.stream_files import load_stream
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, StreamSchema

ROOT = Path(__file__).parents[3]
NOW_MS = 1_790_000_000_000
SCHEMA = StreamSchema.parse(
    {
        "name": "odd",
        "event_time": "ts",
        "zone": "Europe/London",
        "keys": [["who"]],
        "fields": {
            "ts": "timestamp not null",
            "who": "string",
            "n": "long not null",
            "ratio": "double",
            "price": "decimal(9,2)",
            "fine": "boolean",
        },
    }
)


def decode_by_replay(path: Path, schema: StreamSchema) -> tuple[pl.DataFrame, Counter[str]]:
    """Decode row by row through JSON, as `headgate replay` and the app do."""
    decode = EventDecoder(schema, NOW_MS)
    values = [row.value for row in read_rows(path, schema)]
    return decode.of_lines(values), decode.dead_letters


def decode_by_columns(path: Path, schema: StreamSchema, size: int = 1_000) -> tuple[pl.DataFrame, Counter[str]]:
    """Decode the columns, as a back-test does."""
    source = RuleInput.of_stream(schema, schema.name)
    batches = [batch for _, batch in file_batches({schema.name: [path]}, source, NOW_MS, size=size)]
    dead_letters: Counter[str] = Counter()
    for batch in batches:
        dead_letters.update(batch.dead_letters)
    return pl.concat([batch.events[schema.name] for batch in batches]), dead_letters


WHEN = st.datetimes(datetime.datetime(1960, 1, 1), datetime.datetime(2026, 12, 31))
FLOATS = st.one_of(st.floats(), st.integers(-200, 200).map(float), st.decimals(-99, 99, places=2).map(float))
COLUMNS = {
    "ts": st.sampled_from(
        [
            (pa.timestamp("us"), WHEN),
            (pa.timestamp("ms", "UTC"), WHEN.map(lambda t: t.replace(tzinfo=datetime.UTC))),
            (pa.int64(), st.integers(-5, 1_700_000_000_000)),
            (pa.string(), WHEN.map(str)),
        ]
    ),
    "who": st.sampled_from(
        [
            (pa.string(), st.text(max_size=5)),
            (pa.int32(), st.integers(-9, 9)),
            (pa.float64(), FLOATS),
            (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b"])),
        ]
    ),
    "n": st.sampled_from(
        [
            (pa.int8(), st.integers(-9, 9)),
            (pa.uint64(), st.integers(0, 2**64 - 1)),
            (pa.float64(), FLOATS),
            (pa.decimal128(5, 1), st.decimals(-99, 99, places=1)),
            (pa.bool_(), st.booleans()),
        ]
    ),
    "ratio": st.sampled_from(
        [(pa.float64(), FLOATS), (pa.float32(), st.floats(width=32)), (pa.int64(), st.integers(-9, 9))]
    ),
    "price": st.sampled_from(
        [
            (pa.float64(), st.one_of(FLOATS, st.floats(-1e8, 1e8), st.decimals(-(10**7), 10**7, places=2).map(float))),
            (pa.decimal128(12, 2), st.decimals(-(10**8), 10**8, places=2)),
            (pa.decimal128(12, 4), st.decimals(-9, 9, places=4)),
            (pa.int64(), st.integers(-(10**8), 10**8)),
            (pa.string(), st.decimals(-9, 9, places=3).map(str)),
        ]
    ),
    "fine": st.sampled_from([(pa.bool_(), st.booleans()), (pa.int64(), st.integers(0, 1)), (pa.null(), st.none())]),
    "more": st.just((pa.string(), st.text(max_size=3))),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Generate tables with types that occur in lakes; some columns are missing, some values are null."""
    rows = draw(st.integers(1, 8))
    columns = {}
    for name, kinds in COLUMNS.items():
        if name == "ts" or draw(st.booleans()):
            kind, values = draw(kinds)
            some = st.one_of(values, values, values, st.none())
            columns[name] = pa.array(draw(st.lists(some, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


@settings(max_examples=200, deadline=None, suppress_health_check=[*HealthCheck])
@given(tables())
def test_a_back_test_decodes_the_same_events_and_reasons_as_a_replay(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table
) -> None:
    path = tmp_path_factory.mktemp("odd") / "odd.parquet"
    pq.write_table(table, path)
    events, dead_letters = decode_by_columns(path, SCHEMA, size=3)
    wanted, reasons = decode_by_replay(path, SCHEMA)
    assert events.equals(wanted), f"{events} is not {wanted}"
    assert dead_letters == reasons


@pytest.mark.slow
def test_a_back_test_and_a_replay_decode_real_invoice_lines_alike() -> None:
    schema = load_stream("retail", ROOT / "streams")
    path = ROOT / "tests" / "data" / "retail_sample.parquet"
    events, dead_letters = decode_by_columns(path, schema, size=7_000)
    wanted, _ = decode_by_replay(path, schema)
    assert events.equals(wanted)
    assert not dead_letters


def test_offsets_continue_over_several_files_and_a_limit_is_exact(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100)):
        pq.write_table(
            pa.table({"ts": [first + i for i in range(5)], "n": [Decimal(1)] * 5}), tmp_path / f"{name}.parquet"
        )
    source = RuleInput.of_stream(SCHEMA, SCHEMA.name)
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    frames = [b.events[SCHEMA.name] for _, b in file_batches({SCHEMA.name: files}, source, NOW_MS, limit=8, size=3)]
    events = pl.concat(frames)
    assert events[OFFSET].to_list() == list(range(8))
    assert events[EVENT_MS].to_list() == [0, 1, 2, 3, 4, 100, 101, 102]


NESTED = StreamSchema.parse(
    {
        "name": "trail",
        "event_time": "at",
        "keys": [["user"]],
        "fields": {
            "at": {"type": "timestamp not null", "from": "eventTime"},
            "user": {"type": "string", "from": "identity.userName"},
            "price": {"type": "decimal(9,2)", "from": "detail.inner.price"},
            "gone": {"type": "string", "from": "detail.gone.name"},
        },
    }
)


def test_fields_inside_of_structs_become_the_events_of_a_replay(tmp_path: Path) -> None:
    time = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    rows = [
        {"eventTime": time, "identity": {"userName": "a"}, "detail": {"inner": {"price": 1.25}}},
        {"eventTime": time, "identity": {"userName": None}, "detail": {"inner": None}},
        {"eventTime": time, "identity": None, "detail": None},
        {"eventTime": time, "identity": {"userName": "b"}, "detail": {"inner": {"price": 1e9}}},
        {"eventTime": None, "identity": {"userName": "c"}, "detail": {"inner": {"price": 2.5}}},
    ]
    path = tmp_path / "trail.parquet"
    pl.DataFrame(rows).write_parquet(path)
    by_replay, dead = decode_by_replay(path, NESTED)
    by_columns, dead_by_columns = decode_by_columns(path, NESTED)
    assert by_columns.equals(by_replay.select(by_columns.columns))
    assert (dead_by_columns, by_columns.height) == (dead, 3)
    assert by_columns["price"].to_list() == [125, None, None]
    assert [row.key for row in read_rows(path, NESTED)] == [b"a", None, None, b"b", b"c"]


def test_times_of_a_unit_or_a_pattern_become_the_events_of_a_replay(tmp_path: Path) -> None:
    schema = StreamSchema.parse(
        {
            "name": "odd",
            "zone": "Europe/Berlin",
            "event_time": "seen",
            "keys": [["n"]],
            "fields": {
                "seen": {"type": "timestamp not null", "unit": "s"},
                "said": {"type": "timestamp", "pattern": "dd.MM.yyyy HH:mm[:ss]"},
                "at": {"type": "timestamp", "pattern": "yyyy-MM-dd HH:mm zzz"},
                "n": "long",
            },
        }
    )
    path = tmp_path / "odd.parquet"
    moment = datetime.datetime(2026, 7, 5, 10, 17, tzinfo=datetime.UTC)
    table = {"seen": [1_783_246_620, 1_783_246_621], "said": ["05.07.2026 12:17", "5.7.2026"], "at": [moment] * 2}
    pq.write_table(pa.table({**table, "n": [1, 2]}), path)
    replayed, reasons = decode_by_replay(path, schema)
    columns, same = decode_by_columns(path, schema)
    assert columns.equals(replayed.select(columns.columns))
    assert reasons == same
    assert [reason.split(":")[0] for reason in same] == ["bad_timestamp"]
    times = columns.select("seen", "said", "at").row(0)
    assert times == (1_783_246_620_000,) * 3


def test_times_without_a_zone_are_written_in_the_pattern_as_they_are(tmp_path: Path) -> None:
    schema = StreamSchema.parse(
        {
            "name": "odd",
            "zone": "America/New_York",
            "event_time": "at",
            "keys": [["n"]],
            "fields": {"at": {"type": "timestamp not null", "pattern": "yyyy-MM-dd HH:mm:ss"}, "n": "long"},
        }
    )
    path = tmp_path / "local.parquet"
    pq.write_table(pa.table({"at": [datetime.datetime(2026, 7, 5, 10, 17)], "n": [1]}), path)
    columns, _ = decode_by_columns(path, schema)
    utc = datetime.datetime(2026, 7, 5, 14, 17, tzinfo=datetime.UTC)
    assert columns["at"].to_list() == [int(utc.timestamp() * 1000)]


def test_a_column_that_should_be_an_object_makes_a_dead_letter(tmp_path: Path) -> None:
    time = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
    path = tmp_path / "trail.parquet"
    pl.DataFrame({"eventTime": [time, time], "identity": ["a", None]}).write_parquet(path)
    by_columns, dead = decode_by_columns(path, NESTED)
    assert (by_columns.height, dead) == (1, decode_by_replay(path, NESTED)[1])
    assert [*dead] == ["wrong_type: field user (from identity.userName): identity"]
