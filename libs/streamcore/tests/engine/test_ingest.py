"""Stage 1 and shuffle blocks: every record ends in one place, however tasks share the input."""

from __future__ import annotations

import random
from collections import Counter

import orjson
import polars as pl
import pytest

from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.shard import ShardOutput
from streamcore.errors import ConfigError
from streamcore.kernel import Cut, KernelOutput, StreamKey
from streamcore.limits import Limits
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.wire.lane_codec import decode_records, encode_records, group_by_lane
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, Record
from tests.harness.apps.stateless_kernel import StatelessKernel

SCHEMA = StreamSchema.parse(
    {
        "name": "s",
        "event_time": "ts",
        "keys": [["user"], ["ip"], []],
        "fields": {"ts": "timestamp not null", "user": "string", "ip": "string"},
    }
)
CLOCK = 1_700_000_000_000


class Recorder(StatelessKernel):
    """A kernel that outputs what it received."""

    def step(self, cut: Cut) -> KernelOutput:
        seen = [
            Record("seen", b"%d" % cut.shard, orjson.dumps([r.stream, r.route, *row]))
            for r, frame in sorted(cut.events.items(), key=str)
            for row in frame.select(PARTITION, OFFSET, "user").iter_rows()
        ]
        heard = [Record("control", b"%d" % cut.shard, r.key) for r in cut.control]
        times = [Record("time", None, orjson.dumps([cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms]))]
        return KernelOutput(seen + heard + times)


def new_app(shards: int = 3, **limits: int) -> App:
    return App("a", (Source(SCHEMA, "t"),), "c", {}, (Recorder,), shards=shards, limits=Limits(**limits))


def event(offset: int, user: str | None, partition: int = 0, ts: int = CLOCK) -> RawRecord:
    return RawRecord(0, partition, offset, orjson.dumps({"ts": ts, "user": user, "ip": f"ip{offset % 3}"}), b"k")


def some_records(n: int = 200) -> list[RawRecord]:
    draw = random.Random(7)
    good = [event(i, draw.choice(["a", "b", "c", None]), i % 4) for i in range(n)]
    bad = [RawRecord(0, i % 4, n + i, b"{" * i, b"k") for i in range(10)]
    return [*good, *bad, control_record(1, "r", b"v")]


def output(records: list[RawRecord], tasks: int, shards: int = 3, **limits: int) -> list[Record]:
    return InProcessApp(new_app(shards, **limits)).cut(records, CLOCK, tasks)


def test_every_valid_event_reaches_each_key_once_and_every_bad_one_is_a_dead_letter() -> None:
    out = output(some_records(), tasks=2)
    seen = Counter(tuple(orjson.loads(r.value or b"")[:4]) for r in out if r.lane == "seen")
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * 200
    assert sum(r.lane == DEAD_LETTERS for r in out) == 10


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_the_result_does_not_depend_on_how_tasks_share_the_input(tasks: int) -> None:
    assert output(some_records(), tasks) == output(some_records(), 1)


def test_the_result_does_not_depend_on_how_many_rows_are_packed_at_a_time() -> None:
    assert output(some_records(), 2, flush_rows=7) == output(some_records(), 1)


def test_one_key_is_always_on_one_shard_in_order_of_partition_and_offset() -> None:
    rows = [(r.key, orjson.loads(r.value or b"")) for r in output(some_records(), 3) if r.lane == "seen"]
    owners: dict[str | None, set[bytes | None]] = {}
    for shard, (_, route, _, _, user) in rows:
        if route == 0:
            owners.setdefault(user, set()).add(shard)
    assert all(len(shards) == 1 for shards in owners.values())
    for shard in {s for s, _ in rows}:
        for route in range(3):
            places = [(p, o) for s, (_, r, p, o, _) in rows if s == shard and r == route]
            assert places == sorted(places)


def test_control_records_and_time_reach_every_shard() -> None:
    out = output(some_records(), 2)
    assert sorted(r.key or b"" for r in out if r.lane == "control") == [b"0", b"1", b"2"]
    times = {r.value for r in out if r.lane == "time"}
    assert len(times) == 1


def test_a_dead_letter_has_its_source_and_reason() -> None:
    (letter,) = [r for r in output([RawRecord(0, 2, 5, b"nonsense", b"key")], 1) if r.lane == DEAD_LETTERS]
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (b"key", b"nonsense")
    assert [headers[n] for n in ("source_topic", "source_partition", "source_offset")] == [b"t", b"2", b"5"]
    assert headers["reason_code"] == b"not_json"


def test_an_event_from_the_future_is_a_dead_letter_and_does_not_move_the_watermark() -> None:
    app = InProcessApp(new_app(shards=1))
    out = app.cut([event(0, "a", ts=CLOCK), event(1, "a", ts=CLOCK + 80 * 365 * 86_400_000)], CLOCK)
    assert [dict(r.headers)["reason_code"] for r in out if r.lane == DEAD_LETTERS] == [b"from_the_future"]
    assert app.outputs[0].watermark_ms == CLOCK - 10_000


def test_every_shard_receives_the_watermark_of_each_partition_with_events() -> None:
    app = InProcessApp(new_app(shards=2))
    app.cut([event(0, "a", 0), event(0, "b", 3, ts=CLOCK - 60_000)], CLOCK)
    assert [_times(one) for one in app.outputs] == [
        {0: (CLOCK, CLOCK - 10_000), 3: (CLOCK - 60_000, CLOCK - 70_000)}
    ] * 2
    app.cut([event(1, "a", 3, ts=CLOCK - 20_000)], CLOCK + 1_000)
    assert [_times(one) for one in app.outputs] == [
        {0: (CLOCK, CLOCK - 10_000), 3: (CLOCK - 20_000, CLOCK - 30_000)}
    ] * 2


def _times(output: ShardOutput) -> dict[int, tuple[int, int]]:
    """Return the newest event and the watermark of each partition."""
    return {n: (time.max_event_ms, time.watermark_ms) for n, time in output.partitions.items()}


def test_every_shard_takes_part_in_an_empty_cut() -> None:
    app = InProcessApp(new_app())
    out = app.cut([], CLOCK)
    assert sum(r.lane == "time" for r in out) == 3


def test_records_of_lanes_read_back_unchanged() -> None:
    records = [
        Record("alerts", b"k", b"v", (("a", b"1"), ("a", b"2"))),
        Record("late", None, None),
        Record("x", b"", "ü\0".encode(), ()),
    ]
    assert list(decode_records(encode_records(records))) == records
    assert list(decode_records(encode_records(records[1:]))) == records[1:], "including records without headers"
    assert list(decode_records(encode_records([]))) == []


def test_output_records_are_grouped_by_lane_with_order_and_headers_preserved() -> None:
    plain = [Record(f"lane{n % 3}", b"%d" % n if n % 4 else None, b"v%d" % n if n % 5 else None) for n in range(40)]
    headed = [Record("lane1", b"h", None, (("a", b"1"), ("a", b"2"))), Record("lane9", None, b""), *plain[:2]]
    rows = LaneRows("lane2", ("k",), pl.DataFrame({"k": ["x", None], "n": [1, 2]}))
    for records, more in [(plain, []), (headed, [rows]), ([], [rows, rows]), ([], [])]:
        blob = encode_records(records, [one.batch() for one in more])
        found: dict[str, list[Record]] = {}
        for some in group_by_lane(blob):
            headers = some.headers or [()] * len(some.values)
            for key, value, those in zip(some.keys, some.values, headers, strict=True):
                found.setdefault(some.lane, []).append(Record(some.lane, key, value, those))
        every = [*records, *(record for one in more for record in one.records())]
        assert found == {lane: [r for r in every if r.lane == lane] for lane in {r.lane for r in every}}
        assert list(decode_records(blob)) == every


def test_an_invalid_app_is_rejected_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match="stream appears twice"):
        App("a", (Source(SCHEMA, "t"), Source(SCHEMA, "u")), "c", {}, (Recorder,))
    with pytest.raises(ConfigError, match="shards"):
        new_app(shards=0)


def test_a_cut_gives_kernels_polars_frames_of_the_stream() -> None:
    frames: list[pl.DataFrame] = []

    class Keep(Recorder):
        def step(self, cut: Cut) -> KernelOutput:
            frames.extend(f for r, f in cut.events.items() if r == StreamKey("s", 0))
            return KernelOutput()

    app = App("a", (Source(SCHEMA, "t"),), "c", {}, (Keep,), shards=1)
    InProcessApp(app).cut([event(0, "a")], CLOCK)
    assert frames[0].columns == SCHEMA.arrow.names
