"""Bounds of inputs: where they end, what waits for files, and that the first start decides."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.app import App, EventTime, Source
from streamcore.checkpoint.offset_log import OffsetLog
from streamcore.cuts.cut_clock import CutClock, CutTimer
from streamcore.engine.inputs import InputBounds, kafka_topics, open_bounds, resolve, with_files
from streamcore.engine.planner import Planner, TaskAssignment
from streamcore.errors import ConfigError, Drained, Permanent
from streamcore.files.listing import FileInput, InputFile, list_input, ranges
from streamcore.files.reader import FileReader
from streamcore.limits import Limits
from streamcore.offsets import FILES_PARTITION, StreamOffsets, TopicPartition, source_partitions
from streamcore.schema import StreamSchema
from streamcore.storage import ObjectStore

SCHEMA = StreamSchema.parse(
    {"name": "s", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null", "n": "long"}}
)
FILES = ("t", FILES_PARTITION)


def no_kernel() -> object:
    raise AssertionError("a plan needs no kernel")


def app(source: Source) -> App:
    return App("a", (source,), "control", {}, (no_kernel,), limits=Limits(events_per_cut=10))  # type: ignore[arg-type]


@dataclass
class Topics:
    """A cluster whose offsets a test sets; those for a time are a third of the latest."""

    reach: dict[TopicPartition, int]

    def earliest(self) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(self.reach, 0)

    def latest(self) -> Mapping[TopicPartition, int]:
        return dict(self.reach)

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        return {place: end // 3 for place, end in self.reach.items()}


def go_on() -> None:
    """Return None: there is no request to stop."""


@dataclass
class Run:
    """Plans the cuts of an app one by one."""

    app: App
    topics: Topics
    log: OffsetLog
    starting: str = "earliest"
    ending: str | None = None

    def cuts(self, most: int = 50) -> list[TaskAssignment]:
        """Return the assignment of each cut until the inputs are read to their end, with one task a cut."""
        bounds = open_bounds(self.app, self.log, self.topics, self.ending)
        clock = iter(range(1_000, 1_000_000, 1_000))
        timer = CutTimer(lambda: next(clock), lambda: 0)
        ends = with_files(self.topics, bounds)
        planner = Planner(self.app, self.log, ends, self.starting, timer, bounds)
        found: list[TaskAssignment] = []
        for batch in range(most):
            try:
                cut = planner.plan_cut(batch, go_on, go_on)
            except Drained:
                return found
            found += planner.assign(cut, 1)
        return found


@pytest.fixture
def log(tmp_path: Path) -> OffsetLog:
    return OffsetLog(tmp_path / "offsets")


def test_a_closed_range_ends_in_the_cut_that_reaches_it_and_what_arrives_later_is_not_read(log: OffsetLog) -> None:
    topics = Topics({("t", 0): 15, ("t", 1): 0, ("control", 0): 2})
    at = Run(app(Source(SCHEMA, "t")), topics, log, ending="latest")
    open_bounds(at.app, log, topics, "latest")
    topics.reach |= {("t", 0): 99, ("t", 2): 5}
    cuts = at.cuts()
    assert [[(r.start, r.end) for r in cut.ranges if r.topic == "t" and r.partition == 0] for cut in cuts] == [
        [(0, 10)],
        [(10, 15)],
    ]
    first = source_partitions(0)[0]
    assert cuts[-1].ended == (first, first + 1, first + 2), "the windows of a partition that is not read close too"
    assert first not in cuts[0].ended
    assert len(at.cuts()) == 2, "a restart of a finished run reads nothing"


@pytest.mark.parametrize(("where", "offset"), [("earliest", 0), ("latest", 30), ("7", 7), ("2026-01-01T00:00:00Z", 10)])
def test_a_place_is_a_name_an_offset_or_a_time(where: str, offset: int) -> None:
    assert resolve(where, Topics({("t", 0): 30}), "x") == {("t", 0): offset}


def test_a_time_without_a_zone_is_rejected() -> None:
    for wrong in ("2026-01-01T00:00:00", "2026-01-01 noon"):
        with pytest.raises(ConfigError, match="a time with its zone"):
            resolve(wrong, Topics({}), "starting_offsets")


def test_a_start_behind_the_end_or_before_the_beginning_is_moved_into_the_topic(log: OffsetLog) -> None:
    at = Run(app(Source(SCHEMA, "t")), Topics({("t", 0): 5}), log, starting="9", ending="latest")
    assert [list(cut.ranges) for cut in at.cuts()] == [[]]


def test_files_come_before_the_topic_whose_partitions_hold_the_watermark_back_from_the_cut_that_ends_the_files(
    log: OffsetLog, tmp_path: Path
) -> None:
    for name, count in (("a", 8), ("b", 17)):
        (tmp_path / f"{name}.jsonl").write_text("{}\n" * count)
    source = replace(Source(SCHEMA, "t"), files=FileInput(str(tmp_path / "."), header=False))
    topics = Topics({("t", 0): 4, ("t", 1): 6, ("control", 0): 0})
    cuts = Run(app(source), topics, log, ending="latest").cuts()
    rows = [[(Path(r.path).stem, r.first, r.rows, r.offset) for _, found in c.files for r in found] for c in cuts]
    assert rows == [[("a", 0, 8, 0), ("b", 0, 2, 8)], [("b", 2, 10, 10)], [("b", 12, 5, 20)], []]
    files, first = source_partitions(0)[FILES_PARTITION], source_partitions(0)[0]
    assert [[number for number, _ in cut.partitions] for cut in cuts] == [
        [files],
        [files],
        [first, first + 1, files],
        [first, first + 1, files],
    ]
    assert [cut.ended for cut in cuts] == [(), (), (files,), (first, first + 1, files)]
    assert [[(r.partition, r.start, r.end) for r in cut.ranges] for cut in cuts] == [[], [], [], [(1, 0, 6), (0, 0, 4)]]


def test_only_files_need_no_topic_and_a_file_that_comes_later_is_not_read(log: OffsetLog, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,n\n1,2\n")
    source = replace(Source(SCHEMA, "t"), files=FileInput(str(tmp_path), header=True), live=False)
    at = Run(app(source), Topics({("control", 0): 0}), log)
    assert [*kafka_topics(at.app)] == ["control"]
    assert sum(r.rows for cut in at.cuts() for _, found in cut.files for r in found) == 1
    (tmp_path / "0.csv").write_text("ts,n\n1,2\n")
    assert open_bounds(at.app, log, at.topics, None).file_rows("t") == 1


def test_an_app_without_an_end_stores_no_bounds(log: OffsetLog) -> None:
    assert open_bounds(app(Source(SCHEMA, "t")), log, Topics({}), None) == InputBounds()
    assert log.read_inputs() is None


def test_wrong_inputs_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are none that end in"):
        list_input(FileInput(str(tmp_path)))
    with pytest.raises(ConfigError, match="files have no time of arrival"):
        Source(SCHEMA, "t", time=EventTime.INGESTION, files=FileInput("x"))
    with pytest.raises(ConfigError, match="neither files nor a topic"):
        Source(SCHEMA, "t", live=False)
    (tmp_path / "x.parquet").write_bytes(b"not a table")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        list_input(FileInput(str(tmp_path)))


def values(reader: FileReader, files: tuple[InputFile, ...], start: int, end: int, *, header: bool) -> list[bytes]:
    batches = [*reader.read(0, FILES_PARTITION, ranges(files, start, end), header=header)]
    offsets = [n for batch in batches for n in batch.column("offset").to_pylist()]
    assert offsets == list(range(start, end))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@given(st.data())
def test_any_ranges_of_files_give_the_rows_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    header = data.draw(st.booleans())
    wanted = []
    for name in range(data.draw(st.integers(1, 3))):
        rows = [f'{{"n":{name * 100 + n}}}' for n in range(data.draw(st.integers(0, 9)))]
        blank = data.draw(st.sampled_from(["\n", "\n\n", "\r\n"]))
        end = data.draw(st.sampled_from(["", "\n", "\n\n"]))
        (folder / f"{name}.jsonl").write_bytes((blank.join([*(["header"] if header else []), *rows]) + end).encode())
        wanted += [row.encode() for row in rows]
    files = list_input(FileInput(str(folder), header=header))
    assert sum(file.rows for file in files) == len(wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wanted)), max_size=4)))
    reader = FileReader()
    found = [
        value
        for start, end in zip([0, *cuts], [*cuts, len(wanted)], strict=True)
        for value in values(reader, files, start, end, header=header)
    ]
    assert found == wanted
    assert values(reader, files, 0, len(wanted), header=header) == wanted, "a replay reads again from the beginning"


def test_a_file_that_became_shorter_is_no_end_of_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    files = list_input(FileInput(str(tmp_path)))
    (tmp_path / "a.jsonl").write_text("{}\n")
    with pytest.raises(Permanent, match="had 2 rows when the app started, and has 1 now"):
        values(FileReader(), files, 0, 2, header=False)


def test_rows_of_a_table_are_json_objects_and_times_without_a_zone_are_utc(tmp_path: Path) -> None:
    times = pl.Series("ts", [0, 1_500], pl.Datetime("ms"))
    pl.DataFrame([times, pl.Series("n", [None, 7])]).write_parquet(tmp_path / "a.parquet")
    files = list_input(FileInput(str(tmp_path / "a.parquet")))
    assert values(FileReader(), files, 1, 2, header=False) == [b'{"ts":"1970-01-01T00:00:01.500+00:00","n":7}']


@pytest.mark.parametrize("cut_rows", [1, 7, 30])
def test_ranges_of_tables_and_lines_in_a_folder_or_a_bucket_give_their_rows(
    any_place: ObjectStore, cut_rows: int
) -> None:
    buffer = io.BytesIO()
    pl.DataFrame({"n": range(20)}).write_parquet(buffer, row_group_size=6)
    any_place.write("a/rows.parquet", buffer.getvalue())
    any_place.write("b.jsonl", b"".join(b'{"n":%d}\n' % n for n in range(20, 30)))
    any_place.write("_SUCCESS", b"")
    files, reader = list_input(FileInput(any_place.url)), FileReader()
    found = [
        value
        for start in range(0, 30, cut_rows)
        for value in values(reader, files, start, min(30, start + cut_rows), header=False)
    ]
    assert found == [b'{"n":%d}' % n for n in range(30)]


def test_bounds_are_stored_as_they_are(log: OffsetLog) -> None:
    bounds = InputBounds({("t", 0): 5}, {"t": (InputFile("/a", 3),)})
    log.write_inputs(bounds.to_json())
    stored = log.read_inputs()
    assert stored is not None
    assert InputBounds.from_json(stored) == bounds
    read = StreamOffsets(CutClock(), {("t", 0): 5, FILES: 3, ("control", 0): 0})
    assert bounds.is_finished(read, "control")
    assert log.batches() == ()
