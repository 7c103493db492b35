"""Deduplication equals a dictionary, row by row, with any cuts, restarts and limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError, CorruptState
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime
from streamcore.operators.deduplication.events import EventDeduplication
from streamcore.operators.deduplication.operator import DUPLICATES, Deduplicate, Deduplication, Duplicates, WhenFull
from streamcore.operators.deduplication.seen_ids import SLICES
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.state.state_log import HEAD
from streamcore.windowing.model import END_OF_TIME_MS
from streamcore.wire.map_entries import KEY, VALUE

SCHEMA = {"id": pl.String(), "row": pl.Int64(), EVENT_MS: pl.Int64()}
SETTINGS = StateSettings(buckets=4)
NO_WATERMARK = -(2**62)
HORIZON = Milliseconds(100)


@dataclass(frozen=True)
class Row:
    id: str | None
    event_ms: int


@dataclass(frozen=True)
class Cut:
    rows: Sequence[Row]
    watermark_ms: int
    next_watermark_ms: int


@dataclass
class Plain:
    """The definition, one row at a time: which ids passed at which times."""

    horizon_ms: int
    max_ids: int = 10**9
    when_full: WhenFull = WhenFull.PASS
    floor_ms: int = -(2**63)
    passed: list[tuple[str, int]] = field(default_factory=list)

    def step(self, cut: Cut) -> list[str]:
        """The port of each row."""
        ports: list[str] = []
        new: list[tuple[str, int]] = []
        since = max(cut.watermark_ms - self.horizon_ms, self.floor_ms)
        for row in cut.rows:
            near = [m for i, m in [*self.passed, *new] if i == row.id and abs(m - row.event_ms) <= self.horizon_ms]
            if row.id is None:
                ports.append(MAIN)
            elif row.event_ms < since:
                ports.append(LATE)
            elif any(m >= since for m in near):
                ports.append(DUPLICATES)
            else:
                ports.append(MAIN)
                new.append((row.id, row.event_ms))
        self.remember(new, cut.next_watermark_ms)
        return ports

    def remember(self, new: list[tuple[str, int]], watermark_ms: int) -> None:
        width = -(-self.horizon_ms // SLICES)
        since = max(watermark_ms - self.horizon_ms, self.floor_ms)
        self.passed = [(i, m) for i, m in self.passed if m // width >= since // width]
        new = [(i, m) for i, m in new if m >= since]
        if self.when_full is WhenFull.FORGET_OLDEST:
            slices = sorted({m // width for _, m in self.passed + new})
            while len(self.passed) + len(new) > self.max_ids and len(slices) > 1:
                gone = slices.pop(0)
                self.floor_ms = (slices[0]) * width
                self.passed = [(i, m) for i, m in self.passed if m // width > gone]
                new = [(i, m) for i, m in new if m // width > gone]
        self.passed += new[: max(0, self.max_ids - len(self.passed))]


@dataclass
class Run:
    """The operator on its blobs; ``restart`` creates a new one that loads the committed state."""

    spec: Deduplication
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    rows: int = 0
    totals: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.operator, self.log = Deduplicate(self.spec, SCHEMA), StateLog(SETTINGS)
        tables = self.operator.tables()
        self.log.load(self.blobs.get(HEAD), self.blobs, lambda name: tables[name])
        self.operator.on_state_loaded()

    def step(self, cut: Cut) -> list[str]:
        """The port of each row; every row is on exactly one, in order of arrival."""
        numbers = range(self.rows, self.rows + len(cut.rows))
        self.rows += len(cut.rows)
        out = self.operator.step(
            [frame(cut.rows, numbers)], CutTime(cut.watermark_ms, cut.next_watermark_ms, clock_ms=0)
        )
        self.log.commit(self.blobs, self.operator.tables(), {})
        for name, number in self.operator.metrics().items():
            self.totals[name] = number if name == "ids" else self.totals.get(name, 0) + number
        ports = {row: port for port, rows in out.items() for row in rows["row"].to_list()}
        assert all(rows["row"].is_sorted() for rows in out.values())
        assert sum(rows.height for rows in out.values()) == len(cut.rows), "nothing lost, nothing twice"
        return [ports[n] for n in numbers]


def frame(rows: Sequence[Row], numbers: Iterable[int]) -> pl.DataFrame:
    columns = {"id": [r.id for r in rows], "row": list(numbers), EVENT_MS: [r.event_ms for r in rows]}
    return pl.DataFrame(columns, schema=SCHEMA)


def split_into_cuts(rows: Sequence[Row], sizes: Sequence[int], max_out_of_orderness_ms: int) -> list[Cut]:
    """Cuts of these sizes in turn; the watermark is the latest event time less the disorder."""
    cuts, at, turn, watermark = [], 0, 0, NO_WATERMARK
    while at < len(rows):
        part = rows[at : at + sizes[turn % len(sizes)]]
        after = max([watermark, *(r.event_ms - max_out_of_orderness_ms for r in part)])
        cuts.append(Cut(part, watermark, after))
        at, turn, watermark = at + len(part), turn + 1, after
    return cuts


def run(spec: Deduplication, cuts: Sequence[Cut], restart_before: int | None = None) -> list[str]:
    one, ports = Run(spec), []
    for number, cut in enumerate(cuts):
        if number == restart_before:
            one.restart()
        ports += one.step(cut)
    return ports


ids = st.sampled_from(["a", "b", "c", "d", "x" * 70, "y" * 70, "é"])
rows_of = st.lists(st.builds(Row, st.none() | ids, st.integers(-50, 700)), max_size=60)
sizes_of = st.lists(st.integers(1, 12), min_size=1, max_size=6)
disorders = st.integers(0, 900)
horizons = st.sampled_from([1, 7, HORIZON, 1000])


@given(rows_of, sizes_of, disorders, horizons)
def test_every_row_goes_to_the_port_of_the_definition(
    rows: list[Row], sizes: list[int], disorder: int, horizon: int
) -> None:
    cuts, plain = split_into_cuts(rows, sizes, disorder), Plain(horizon)
    assert run(Deduplication(("id",), Milliseconds(horizon)), cuts) == [p for cut in cuts for p in plain.step(cut)]


@given(rows_of, sizes_of, sizes_of, horizons)
def test_any_cuts_give_the_same_result_while_no_row_is_behind_the_watermark(
    rows: list[Row], sizes: list[int], others: list[int], horizon: int
) -> None:
    disorder = 800  # more than the rows are apart
    spec = Deduplication(("id",), Milliseconds(horizon))
    assert run(spec, split_into_cuts(rows, sizes, disorder)) == run(spec, split_into_cuts(rows, others, disorder))


@given(rows_of, sizes_of, disorders, horizons)
def test_at_most_one_of_several_copies_with_one_event_time_passes(
    rows: list[Row], sizes: list[int], disorder: int, horizon: int
) -> None:
    ports = run(Deduplication(("id",), Milliseconds(horizon)), split_into_cuts(rows, sizes, disorder))
    passed = [row for row, port in zip(rows, ports, strict=True) if port == MAIN and row.id is not None]
    assert len(passed) == len(set(passed))


@given(rows_of, sizes_of, disorders, st.integers(0, 12), st.sampled_from(WhenFull), st.integers(1, 30))
def test_a_restart_before_any_cut_changes_nothing(
    rows: list[Row], sizes: list[int], disorder: int, at: int, when_full: WhenFull, limit: int
) -> None:
    spec = Deduplication(("id",), HORIZON, max_ids=limit, when_full=when_full)
    cuts = split_into_cuts(rows, sizes, disorder)
    assert run(spec, cuts, restart_before=at) == run(spec, cuts)


@example([Row("a", 2), Row("b", 2), Row("a", 0)], [1], 0, WhenFull.FORGET_OLDEST, 1)  # one slice, too full
@given(rows_of, sizes_of, disorders, st.sampled_from(WhenFull), st.integers(1, 8))
def test_at_the_limit_of_ids_every_row_goes_to_the_port_of_the_policy(
    rows: list[Row], sizes: list[int], disorder: int, when_full: WhenFull, limit: int
) -> None:
    spec = Deduplication(("id",), HORIZON, max_ids=limit, when_full=when_full)
    plain, one = Plain(HORIZON, limit, when_full), Run(spec)
    for cut in split_into_cuts(rows, sizes, disorder):
        assert one.step(cut) == plain.step(cut)
        assert one.totals["ids"] == len(plain.passed) <= limit


def steady_cuts(cuts: int, ids_per_cut: int, cut_ms: int) -> list[Cut]:
    """Return cuts of new ids, each repeated in the next cut (in the first cut, immediately)."""
    result, watermark = [], NO_WATERMARK
    for number in range(cuts):
        rows = [Row(f"{n}-{i}", n * cut_ms + i % 7) for n in (number, max(0, number - 1)) for i in range(ids_per_cut)]
        after = number * cut_ms - 10
        result.append(Cut(rows, watermark, after))
        watermark = after
    return result


@pytest.mark.slow
def test_expired_ids_are_freed_and_restarts_do_not_restore_them() -> None:
    one, blob_bytes = Run(Deduplication(("id",), HORIZON)), []
    for number, cut in enumerate(steady_cuts(cuts=200, ids_per_cut=50, cut_ms=20)):
        if number % 17 == 0:
            one.restart()
        assert one.step(cut) == [MAIN] * 50 + [DUPLICATES] * 50
        assert one.totals["ids"] <= 8 * 50
        blob_bytes.append(sum(map(len, one.blobs.blobs.values())))
    assert blob_bytes[-1] < 2 * blob_bytes[20]


@pytest.mark.slow
def test_clearing_the_columns_of_expired_ids_drops_no_live_id() -> None:
    one = Run(Deduplication(("id",), HORIZON))
    for number, cut in enumerate(steady_cuts(cuts=60, ids_per_cut=500, cut_ms=50)):
        if number % 19 == 18:
            one.restart()
        assert one.step(cut) == [MAIN] * 500 + [DUPLICATES] * 500
        assert one.operator._seen._count <= 2 * 5 * 500 + 1024
    assert len(one.operator._seen) <= 5 * 500


def test_ids_expire_to_the_millisecond_although_memory_is_freed_by_slice() -> None:
    spec = Deduplication(("id",), horizon_ms=1_000)  # slices of 16 ms
    for watermark, port in ((1_000, DUPLICATES), (1_001, MAIN)):
        one = Run(spec)
        one.step(Cut([Row("a", 0)], 0, 0))
        one.step(Cut([], 0, watermark))
        assert one.step(Cut([Row("a", 5)], watermark, watermark)) == [port]


def test_a_cut_writes_only_its_own_ids() -> None:
    one = Run(Deduplication(("id",), HORIZON))
    cuts = steady_cuts(cuts=4, ids_per_cut=50, cut_ms=1)
    for cut in cuts[:3]:
        one.step(cut)
    one.operator.step([frame(cuts[3].rows, range(100))], CutTime(-8, -7, 0))
    assert one.operator.tables()["seen"].changes().height == 50
    assert one.operator.tables()["seen"].changes().height == 0


def test_the_buckets_hold_every_live_id_exactly_once() -> None:
    one = Run(Deduplication(("id",), HORIZON))
    for cut in steady_cuts(cuts=30, ids_per_cut=100, cut_ms=30):
        one.step(cut)
    table = one.operator.tables()["seen"]
    rows = pl.concat([table.rows(bucket, 7) for bucket in range(7)])
    assert rows.height == rows.unique().height == len(one.operator._seen)


def test_a_late_row_has_a_reason_and_its_lateness() -> None:
    operator = Deduplicate(Deduplication(("id",), HORIZON), SCHEMA)
    out = operator.step([frame([Row("a", 899), Row("a", 900)], range(2))], CutTime(1000, 1000, 0))
    assert out[MAIN]["row"].to_list() == [1]
    assert out[LATE]["row"].to_list() == [0]
    assert out[LATE][LATENESS_MS].to_list() == [101]
    assert "older than the watermark less the horizon" in out[LATE][LATE_REASON][0]


def test_a_row_of_an_evicted_id_is_late_with_a_reason_of_its_own() -> None:
    operator = Deduplicate(Deduplication(("id",), HORIZON, max_ids=2, when_full=WhenFull.FORGET_OLDEST), SCHEMA)
    first = [Row("a", 0), Row("b", 40), Row("c", 80)]
    operator.step([frame(first, range(3))], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
    out = operator.step([frame([*first, Row("d", 90)], range(4))], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
    assert out[MAIN]["row"].to_list() == [3]
    assert out[DUPLICATES]["row"].to_list() == [1, 2]
    assert out[LATE]["row"].to_list() == [0]
    assert "limit of ids" in out[LATE][LATE_REASON][0]
    assert operator.metrics() == {
        "duplicates": 2, "late": 1, "without_id": 0, "not_remembered": 0, "evicted": 2, "ids": 2,
    }  # fmt: skip


def test_duplicates_without_a_port_are_only_counted() -> None:
    operator = Deduplicate(Deduplication(("id",), HORIZON, duplicates=Duplicates.COUNT), SCHEMA)
    out = operator.step([frame([Row("a", 0), Row("a", 1), Row(None, 2)], range(3))], CutTime(0, 0, 0))
    assert DUPLICATES not in out
    assert out[MAIN]["row"].to_list() == [0, 2]
    metrics = operator.metrics()
    assert (metrics["duplicates"], metrics["without_id"]) == (1, 1)
    assert operator.metrics()["duplicates"] == 0


def test_the_end_of_the_stream_drops_all_ids() -> None:
    operator = Deduplicate(Deduplication(("id",), HORIZON), SCHEMA)
    operator.step([frame([Row("a", 0)], range(1))], CutTime(0, END_OF_TIME_MS, 0))
    assert operator.metrics()["ids"] == 0


@given(st.lists(st.tuples(st.sampled_from(["s", "t"]), st.none() | st.integers(-2, 2), st.booleans()), max_size=40))
def test_an_id_compares_all_its_columns_and_null_equals_nothing(
    keys: list[tuple[str, int | None, bool]],
) -> None:
    schema = {"source": pl.String(), "number": pl.Int64(), "test": pl.Boolean()}
    rows = pl.DataFrame(keys, schema=schema, orient="row").with_columns(pl.lit(0, pl.Int64).alias(EVENT_MS))
    operator = Deduplicate(Deduplication(tuple(schema), HORIZON), rows.schema)
    out = operator.step([rows], CutTime(0, 0, 0))
    named = [k for k in keys if k[1] is not None]
    assert out[MAIN].height == len(set(named)) + len(keys) - len(named)


def test_an_id_that_is_repeated_many_times_takes_linear_time() -> None:
    """20,000 first rows of one id: if each row compared all of them, this would take minutes."""
    rows = [Row("a", n * (HORIZON + 1)) for n in range(20_000)]
    one = Run(Deduplication(("id",), HORIZON))
    assert set(one.step(Cut(rows, NO_WATERMARK, NO_WATERMARK))) == {MAIN}
    assert set(one.step(Cut(rows, NO_WATERMARK, NO_WATERMARK))) == {DUPLICATES}


def test_ids_that_share_one_hash_are_distinguished_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def hash_with_collisions(columns: Sequence[pl.Series], height: int) -> tuple[np.ndarray, np.ndarray]:
        checks = columns[0].str.len_bytes().to_numpy().astype(np.uint64)
        return np.full(height, 7, dtype=np.uint64), checks

    monkeypatch.setattr("streamcore.operators.deduplication.operator.fingerprint_columns", hash_with_collisions)
    one = Run(Deduplication(("id",), HORIZON))
    rows = [Row("a", 0), Row("bb", 0), Row("a", 1), Row("bb", 1)]
    assert one.step(Cut(rows, 0, 0)) == [MAIN, MAIN, DUPLICATES, DUPLICATES]
    assert one.step(Cut([Row("bb", 5), Row("ccc", 5)], 0, 0)) == [DUPLICATES, MAIN]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"id_columns": ()}, "at least one"),
        ({"id_columns": ("id", "id")}, "each once"),
        ({"horizon_ms": 0}, "from 1 to"),
        ({"max_ids": 0}, "from 1 to"),
    ],
)
def test_invalid_settings_are_rejected(arguments: Mapping[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Deduplication(**({"id_columns": ("id",), "horizon_ms": HORIZON} | dict(arguments)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({EVENT_MS: pl.Int64()}, "no id column 'id'"),
        ({"id": pl.Float64(), EVENT_MS: pl.Int64()}, "Float64"),
        ({"id": pl.UInt64(), EVENT_MS: pl.Int64()}, "wider than Int64"),
        ({"id": pl.String()}, "event time"),
    ],
)
def test_a_schema_that_does_not_fit_is_rejected_at_construction(schema: dict[str, pl.DataType], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Deduplicate(Deduplication(("id",), HORIZON), schema)


NESTED = StreamSchema.parse(
    {
        "name": "readings",
        "event_time": "ts",
        "event_id": "id",
        "deduplicate": "1h",
        "keys": [["id"]],
        "fields": {"id": "long", "ts": "timestamp not null", "values": "array<double>", "tags": "map<string,long>"},
    }
)


def readings(rows: Sequence[tuple[int, list[float | None], dict[str, int]]]) -> pl.DataFrame:
    """Events of one time: id, values, tags."""
    columns = {
        "id": [number for number, _, _ in rows],
        "ts": [0] * len(rows),
        "values": pa.array([values for _, values, _ in rows], pa.large_list(pa.float64())),
        "tags": pa.array([[{KEY: k, VALUE: v} for k, v in tags.items()] for _, _, tags in rows], TAGS),
        EVENT_MS: [0] * len(rows),
    }
    return pl.DataFrame(columns)


TAGS = pa.large_list(pa.struct([(KEY, pa.large_string()), (VALUE, pa.int64())]))


def test_duplicates_with_other_nested_content_are_told_apart() -> None:
    once = EventDeduplication(NESTED)
    first: list[tuple[int, list[float | None], dict[str, int]]] = [
        (1, [math.nan], {"a": 1, "b": 2}),
        (2, [None], {}),
        (3, [0.0], {}),
    ]
    assert once.filter(readings(first)).height == 3
    assert once.filter(readings([(1, [math.nan], {"b": 2, "a": 1}), (3, [-0.0], {})])).height == 0
    assert once.operator.metrics()["other_content"] == 0, "the order of a map and the sign of zero are no content"
    assert (
        once.filter(readings([(1, [math.inf], {"a": 1, "b": 2}), (2, [math.nan], {}), (3, [0.0, 0.0], {})])).height == 0
    )
    assert once.operator.metrics()["other_content"] == 3


def test_stored_hashes_of_nested_contents_of_an_earlier_version_are_rejected() -> None:
    schema = {"id": pl.Int64(), "content": pl.Int64(), EVENT_MS: pl.Int64()}
    rows = pl.DataFrame({"id": [1], "content": [2], EVENT_MS: [0]}, schema)
    before, now = (
        Deduplicate(Deduplication(("id",), HORIZON, content_columns=("content",), nested_contents=nested), schema)
        for nested in (False, True)
    )
    blobs = MemoryBlobs()
    before.step([rows], CutTime(NO_WATERMARK, NO_WATERMARK, 0))
    StateLog(SETTINGS).commit(blobs, before.tables(), {})
    with pytest.raises(CorruptState, match="state seen: column nested_content is not stored"):
        StateLog(SETTINGS).load(blobs.get(HEAD), blobs, lambda name: now.tables()[name], now.tables())
