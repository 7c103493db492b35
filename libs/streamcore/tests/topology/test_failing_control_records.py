"""A bad control record is one dead letter with its offset and its bytes, for any number of shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from streamcore.app import CONTROL
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.keyed import ProcessContext, ProcessFunction, ValueState
from streamcore.keyed.keyed_store import KeyedLimits
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import Simulation
from streamcore.topology.stream import BroadcastStream, control_stream, source
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import DEAD_LETTERS, Record

FIELDS = {"ts": "timestamp not null", "user": "string not null", "n": "long not null"}
SCHEMAS = [
    StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": FIELDS}) for name in ("a", "b")
]
EVENTS, RULES = source(SCHEMAS[0]), source(SCHEMAS[1], raw=True)


class Limits(ProcessFunction):
    """Keeps whole numbers by the key of the control record."""

    outputs = {MAIN: {"user": pl.String, "limit": pl.Int64}}
    seen = ValueState(int, default=0)

    def process_control(self, record: Any, context: ProcessContext) -> None:
        if record.key == "of-a-key":
            self.seen += 1
        _, value = record  # two columns, as declared
        context.broadcast[record.key] = int(value)

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.seen += 1
        yield {"user": event.user, "limit": context.broadcast.get(event.user)}


class RowLimits(Limits):
    """The same over rows of a broadcast stream."""

    def process_control(self, record: Any, context: ProcessContext) -> None:
        assert record.n != 7, "seven"


def topology(control: BroadcastStream, function: ProcessFunction, limits: KeyedLimits | None = None) -> Topology:
    return Topology("t", EVENTS.key_by("user").connect(control).process(function, limits=limits).sink("out"))


def header_texts(letter: Record) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers}


def letters(*records: tuple[bytes | None, bytes | None], shards: int) -> list[Record]:
    app = InProcessApp(topology(control_stream(), Limits()).app(control_topic="limits", shards=shards))
    sent = [RawRecord(CONTROL, 3, 40 + n, value, key) for n, (key, value) in enumerate(records)]
    return [record for record in app.cut(sent, 0) if record.lane == DEAD_LETTERS]


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"x", b"  lots ", "ValueError"),
        (b"x", b"\xff\x00", "ValueError"),
        (b"x", None, "TypeError"),
        (b"of-a-key", b"1", "there is no current key here"),
        (b"\xff", b"1", "control: the key is no UTF-8 text"),
        (None, b"1", "control: the key is missing"),
    ],
)
@pytest.mark.quick_cases(3)
def test_the_dead_letter_of_a_control_record_is_the_record(
    key: bytes | None, value: bytes | None, reason: str, shards: int
) -> None:
    (letter,) = letters((b"good", b"5"), (key, value), shards=shards)
    assert (letter.key, letter.value) == (key, value)
    where = {"source_topic": "limits", "source_partition": "3", "source_offset": "41", "reason_code": "failed_control"}
    assert where.items() <= header_texts(letter).items()
    assert reason in header_texts(letter)["reason"]


def test_failures_are_counted_once_for_any_number_of_shards() -> None:
    for shards in (1, 3):
        simulation = Simulation(topology(control_stream(), Limits(), KeyedLimits(broadcast_entries=1)), shards=shards)
        result = simulation.cut({}, control={"x": b"1", "y": b"2", "z": b"lots"})
        assert {"process-1.failed": 1, "process-1.broadcast_rejected": 1}.items() <= result.counters.items()


def test_a_bad_row_of_a_broadcast_stream_is_one_dead_letter_with_its_record() -> None:
    simulation = Simulation(topology(RULES.broadcast(), RowLimits()), shards=3)
    rows = pl.DataFrame({"ts": [1, 2], "user": ["x", "y"], "n": [6, 7]}).with_columns(
        pl.col("ts").cast(pl.Datetime("ms", "UTC")), pl.lit(b"the record").alias("@value")
    )
    (letter,) = simulation.cut({"b": rows}).dead
    assert letter.value == b"the record"
    assert {"source_topic": "b", "source_offset": "1", "reason_code": "failed_control"}.items() <= header_texts(
        letter
    ).items()


def test_every_shard_continues_with_the_same_values_after_a_bad_record() -> None:
    simulation = Simulation(topology(control_stream(), Limits()), shards=3)
    users = [f"u{n}" for n in range(9)]
    events = pl.DataFrame({"ts": range(9), "user": users, "n": range(9)}).with_columns(
        pl.col("ts").cast(pl.Datetime("ms", "UTC"))
    )
    control = dict.fromkeys(users, b"5") | {"bad": b"lots"}
    assert set(simulation.cut({"a": events}, control=control)["out"]["limit"]) == {5}
