"""What a Delta table holds, which rows are rejected, and which existing tables the sink accepts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Retryable
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.delta.settings import DeltaSettings, DeltaStorage, DeltaTableSpec
from streamcore.sinks.delta.sink import DeltaSink
from streamcore.sinks.sink import Guarantee, RetryPolicy, SinkHooks, WriteOutcome, WriteResult
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import delta_log
from tests.harness.oracles.delta_log import Row, table_of

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.large_string()),
        ("n", pa.int64()),
        ("q", pa.bool_()),
        ("price", pa.decimal128(18, 4)),
        ("at", pa.timestamp("ms", "UTC")),
        ("x", pa.float64()),
        ("text", pa.large_string()),
    ]
)
_OWNER = WriterId("app", 1)
_PATIENCE = RetryPolicy(recovery_ms=300, pause_ms=50)


def _sink(
    folder: Path | str,
    schema: pa.Schema = _SCHEMA,
    partition_by: tuple[str, ...] = (),
    *,
    merge_schema: bool = False,
) -> DeltaSink:
    spec = DeltaTableSpec(str(folder), partition_by, merge_schema=merge_schema)
    return DeltaSink(DeltaSettings({"rows": spec}, patience=_PATIENCE), {"rows": schema})


def _write(sink: DeltaSink, schema: pa.Schema, batch: int, *rows: Row) -> WriteResult:
    return sink.write(cut_id(batch), {"rows": table_of(schema, *rows)})


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "p": st.none() | _text,
            "n": st.none() | st.integers(-3, 3),
            "q": st.none() | st.booleans(),
            "price": st.none() | st.decimals(-(10**13), 10**13, places=4, allow_nan=False, allow_infinity=False),
            "at": st.none()
            | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
                lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
            ),
            "x": st.none() | st.floats(),
            "text": st.none() | _text,
        }
    ),
    min_size=1,
    max_size=8,
)


def _comparable(row: Row, partition: str = "p") -> str:
    """Return values that compare exactly: NaN and minus zero differ; an empty text as partition value is null."""
    plain = {**row, "at": str(row["at"] and row["at"].astimezone(UTC))}  # type: ignore[attr-defined]  # a time
    return repr([(k, None if k == partition and v == "" else v) for k, v in sorted(plain.items())])


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(_rows, min_size=1, max_size=3))
def test_a_reader_of_the_log_reads_back_what_the_sink_wrote(cuts: list[list[Row]]) -> None:
    with TemporaryDirectory() as folder:
        sink = _sink(folder, partition_by=("p", "n", "q"))
        sink.open(_OWNER)
        for batch, cut in enumerate(cuts):
            written = _write(sink, _SCHEMA, batch, *cut)
            assert (written.outcome, written.rows, list(written.rejected)) == (WriteOutcome.COMMITTED, len(cut), [])
        expected = sorted(_comparable(row) for cut in cuts for row in cut)
        assert sorted(map(_comparable, delta_log.rows(Path(folder)))) == expected


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "value",
    [
        None,
        "/",
        "%",
        "%2F",
        "a b",
        "é",
        "日本",
        ".",
        "..",
        "a=b",
        "\n",
        "\\",
        "#?*:",
        "🙂",
        "null",
        "a/../b",
        "x" * 200,
    ],
)
def test_a_partition_value_may_be_any_text(tmp_path: Path, value: str | None) -> None:
    sink = _sink(tmp_path, partition_by=("p",))
    sink.open(_OWNER)
    _write(sink, _SCHEMA, 0, {"id": 1, "p": value})
    assert [row["p"] for row in delta_log.rows(tmp_path)] == [value]
    assert DeltaTable(tmp_path).to_pyarrow_table().column("p").to_pylist() == [value]


def test_an_empty_text_as_partition_value_is_null_as_in_the_protocol(tmp_path: Path) -> None:
    sink = _sink(tmp_path, partition_by=("p",))
    sink.open(_OWNER)
    _write(sink, _SCHEMA, 0, {"id": 1, "p": "", "text": ""})
    assert [(row["p"], row["text"]) for row in delta_log.rows(tmp_path)] == [(None, "")]


def test_duckdb_reads_the_files_that_the_log_lists(tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    sink.open(_OWNER)
    for batch in range(3):
        _write(sink, _SCHEMA, batch, *({"id": i, "price": Decimal("0.1001")} for i in range(100)))
    files = [str(tmp_path / str(file["path"])) for file in delta_log.live_files(tmp_path)]
    with duckdb.connect() as connection:
        query = 'SELECT count(*), sum(price), any_value(typeof("at")) FROM read_parquet(?)'
        found = connection.execute(query, [files]).fetchone()
    assert found == (300, Decimal("30.0300"), "TIMESTAMP WITH TIME ZONE")


def test_rows_that_the_table_cannot_hold_are_rejected_and_the_others_are_written(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.large_string()), _SCHEMA.field("at")])
    _sink(tmp_path, schema, ("p",)).open(_OWNER)
    lane = pa.schema([("id", pa.int64()), ("p", pa.large_string()), _SCHEMA.field("at")])
    far = pa.array([0, 0, 2**60, 0, 0], pa.timestamp("ms", "UTC"))
    rows = pa.table({"id": [1, None, 3, 4, 5], "p": ["a", "a", "a", "é" * 60, "b"], "at": far}, schema=lane)
    for expected in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED):
        sink = _sink(tmp_path, lane, ("p",))
        sink.open(_OWNER)
        written = sink.write(cut_id(0), {"rows": rows})
        assert (written.outcome, written.rows) == (expected, 2)
        assert [(one.row, one.code) for one in written.rejected] == [
            (1, "null"),
            (2, "timestamp_out_of_range"),
            (3, "partition_too_long"),
        ]
    assert sorted(str(row["id"]) for row in delta_log.rows(tmp_path)) == ["1", "5"]


def test_the_sink_adds_new_columns_and_old_rows_have_nulls_in_them(tmp_path: Path) -> None:
    old = pa.schema([("id", pa.int64())])
    new = pa.schema([("id", pa.int64()), pa.field("note", pa.large_string(), nullable=False)])
    sink = _sink(tmp_path, old)
    sink.open(_OWNER)
    _write(sink, old, 0, {"id": 1})
    with pytest.raises(ConfigError, match=r"lacks \['note'\]; add them, or set merge_schema"):
        _sink(tmp_path, new).open(_OWNER)
    evolved = _sink(tmp_path, new, merge_schema=True)
    evolved.open(_OWNER)
    _write(evolved, new, 1, {"id": 2, "note": "x"})
    found = sorted(delta_log.rows(tmp_path), key=lambda row: str(row["id"]))
    assert found == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
    _write(sink, old, 2, {"id": 3})  # a lane that lacks a column of the table, which is not null there then
    assert {"id": 3, "note": None} in delta_log.rows(tmp_path)


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        ([("id", pa.large_string())], (), "column id is string here and int64 in the table"),
        ([("ID", pa.int64())], (), "the table calls column ID 'id'"),
        ([("id", pa.int64()), ("day", pa.large_string())], ("day",), "is partitioned by"),
        ([("day", pa.large_string())], (), "must not be null and the lane has none"),
    ],
)
def test_a_table_that_does_not_fit_is_rejected_before_anything_is_written(
    tmp_path: Path, columns: list[tuple[str, pa.DataType]], partition_by: tuple[str, ...], reason: str
) -> None:
    _sink(tmp_path, pa.schema([pa.field("id", pa.int64(), nullable=False)])).open(_OWNER)
    before = delta_log.actions(tmp_path)
    with pytest.raises(ConfigError, match=reason):
        _sink(tmp_path, pa.schema(columns), partition_by, merge_schema=True).open(WriterId("app", 2))
    assert delta_log.actions(tmp_path) == before, "not even the earlier epoch was fenced"


def test_a_table_with_constraints_is_rejected(tmp_path: Path) -> None:
    _sink(tmp_path).open(_OWNER)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ConfigError, match=r"delta\.constraints\.positive; drop it"):
        _sink(tmp_path).open(_OWNER)


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        ([("a b", pa.int64())], (), "rename it"),
        ([("a", pa.int64()), ("A", pa.int64())], (), "there twice"),
        ([("a", pa.list_(pa.int64()))], (), "does not hold"),
        ([("a", pa.int64())], ("b",), "no column 'b'"),
        ([("a", pa.int64())], ("a",), "a column of its own"),
        ([("a", pa.int64()), ("x", pa.float64())], ("x",), "make a column of text"),
    ],
)
def test_invalid_columns_are_rejected_when_the_sink_is_built(
    tmp_path: Path, columns: list[tuple[str, pa.DataType]], partition_by: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        _sink(tmp_path, pa.schema(columns), partition_by)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 400 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_the_sink_waits_for_a_full_disk_and_writes_no_part_of_a_cut(small_disk: Path) -> None:
    sink = _sink(small_disk / "t")
    sink.open(_OWNER)
    _write(sink, _SCHEMA, 0, {"id": 0})
    large = [{"id": i, "text": os.urandom(40).hex()} for i in range(40_000)]
    with pytest.raises(Retryable, match="No space left"):
        _write(sink, _SCHEMA, 1, *large)
    assert [row["id"] for row in delta_log.rows(small_disk / "t")] == [0]
    assert _write(sink, _SCHEMA, 1, *large[:10]).outcome == WriteOutcome.COMMITTED


@pytest.mark.slow
def test_a_read_only_disk_is_an_error_without_a_wait(small_disk: Path) -> None:
    sink = _sink(small_disk / "t")
    sink.open(_OWNER)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ConfigError, match="Read-only file system"):
        _write(sink, _SCHEMA, 0, {"id": 0})


def test_the_sink_retries_an_unavailable_object_store_until_its_patience_ends() -> None:
    storage = DeltaStorage(
        {"aws_endpoint_url": "http://127.0.0.1:9", "aws_region": "us-east-1", "aws_allow_http": "true"},
        secret_env={"aws_secret_access_key": "PATH", "aws_access_key_id": "PATH"},
    )
    spec = DeltaTableSpec("s3://lake/t")
    sink = DeltaSink(DeltaSettings({"rows": spec}, storage, _PATIENCE), {"rows": _SCHEMA})
    with pytest.raises(Retryable, match=r"s3://lake/t"):
        sink.open(_OWNER)


def test_repr_errors_and_logs_contain_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hush")
    (tmp_path / "token").write_text("hushhush\n")
    storage = DeltaStorage(
        {"aws_region": "x"}, {"aws_session_token": tmp_path / "token"}, {"aws_secret_access_key": "KEY"}
    )
    assert storage.read()["aws_session_token"] == "hushhush"
    assert "hush" not in repr(DeltaSettings({"rows": DeltaTableSpec("t")}, storage))
    for name in ("aws_secret_access_key", "azure_storage_account_key", "aws_session_token", "azure_storage_sas_token"):
        with pytest.raises(ConfigError, match="a secret; name its file") as error:
            DeltaStorage({name: "hush"})
        assert "hush" not in str(error.value)
    with pytest.raises(ConfigError, match="environment variable NO_SUCH is empty"):
        DeltaStorage(secret_env={"aws_secret_access_key": "NO_SUCH"}).read()
    with pytest.raises(ConfigError, match="cannot read"):
        DeltaStorage(secret_files={"aws_secret_access_key": tmp_path / "none"}).read()


def test_the_settings_build_the_sink(tmp_path: Path) -> None:
    settings = DeltaSettings({"rows": DeltaTableSpec(str(tmp_path), ("p",))})
    sink = sink_factory(settings, {"rows": _SCHEMA})(SinkHooks())
    assert (sink.name, sink.lanes, sink.guarantee) == ("delta", frozenset({"rows"}), Guarantee.EXACTLY_ONCE)
    with pytest.raises(ConfigError, match="both a table and columns"):
        sink_factory(settings, {"others": _SCHEMA})(SinkHooks())


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValidationError, match="vacuum_retention_hours"):
        DeltaTableSpec("t", vacuum_retention_hours=0)
    with pytest.raises(ConfigError, match="without user and password"):
        DeltaTableSpec("s3://key:secret@bucket/t")
    with pytest.raises(ConfigError, match="give each its own"):
        DeltaSettings({"a": DeltaTableSpec("t/"), "b": DeltaTableSpec("t")})
    with pytest.raises(ConfigError, match="use A-Z, a-z, 0-9"):
        DeltaSettings({"a.b": DeltaTableSpec("t")})
