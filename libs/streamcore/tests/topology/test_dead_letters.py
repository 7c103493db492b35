"""A dead letter holds its original record, byte for byte, whatever step its row failed at."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.keyed import ProcessContext, ProcessFunction
from streamcore.operators.base import MAIN
from streamcore.schema import StreamSchema
from streamcore.topology.stream import Stream, source
from streamcore.topology.topology import Topology
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import Record

NOW_MS = 1_790_000_000_000
SCHEMA = StreamSchema.parse(
    {
        "name": "a",
        "event_time": "at",
        "keys": [["id"]],
        "fields": {"at": "timestamp not null", "id": "string not null", "n": "long not null"},
    }
)


def record(offset: int, at_ms: int = NOW_MS, n: int = 1) -> RawRecord:
    """Return a record with spaces that the encoder of the engine would not write."""
    value = json.dumps({"at": at_ms, "id": f"x{offset}", "n": n}, separators=(",  ", " : ")).encode()
    return RawRecord(0, 2, offset, value, b"key%d" % offset)


def letters(stream: Stream, *cuts: list[RawRecord], shards: int = 2) -> list[Record]:
    app = InProcessApp(Topology("t", stream.sink("out")).app(topics={"a": "a-topic"}, shards=shards))
    return [record for cut in cuts for record in app.cut(cut, NOW_MS) if record.lane == "deadletters"]


def header_texts(letter: Record) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers}


def fail_on_seven(frame: pl.DataFrame) -> pl.DataFrame:
    if (frame["n"] == 7).any():
        raise ValueError("seven")
    return frame


def test_the_dead_letter_of_a_failed_function_has_its_record() -> None:
    sent = [record(n, n=n) for n in range(5, 10)]
    (letter,) = letters(source(SCHEMA, raw=True).flat_map(fail_on_seven), sent)
    assert (letter.key, letter.value) == (sent[2].key, sent[2].value)
    where = {"source_topic": "a-topic", "source_partition": "2", "source_offset": "7", "reason_code": "failed"}
    assert where.items() <= header_texts(letter).items()


class FailsOnSeven(ProcessFunction):
    """Fails on the event of seven, and on the timer of eight."""

    outputs = {MAIN: {"id": pl.String}}

    def process(self, event: Any, context: ProcessContext) -> list[dict[str, object]]:
        assert event.n != 7, "seven"
        if event.n == 8:
            context.timers.set(context.event_ms)
        return [{"id": event.id}]

    def on_timer(self, at_ms: int, context: ProcessContext) -> None:
        raise ValueError(context.key)


def test_the_dead_letter_of_a_keyed_function_has_the_record_of_the_event_or_the_key_of_the_timer() -> None:
    sent = [record(n, n=n) for n in range(5, 10)]
    stream = source(SCHEMA, WatermarkStrategy(0), raw=True).key_by("id").process(FailsOnSeven())
    event, timer = letters(stream, sent, shards=1)
    assert (event.key, event.value, header_texts(event)["source_offset"]) == (sent[2].key, sent[2].value, "7")
    assert json.loads(timer.value or b"") == {"at": None, "id": "x8", "n": None}
    assert "source_offset" not in header_texts(timer)


def test_the_dead_letter_of_a_row_rejected_in_a_later_stage_has_its_record() -> None:
    stream = source(SCHEMA, WatermarkStrategy(0), raw=True).key_by("id").deduplicate(1_000)
    late = record(9, NOW_MS - 60_000)
    (letter,) = letters(stream, [record(1)], [late])
    assert (letter.key, letter.value) == (late.key, late.value)
    assert header_texts(letter)["source_offset"] == "9"


def test_a_topology_can_send_rows_to_the_dead_letters_with_its_own_reason() -> None:
    rows = source(SCHEMA, raw=True).map(code=pl.lit("odd"), why=pl.format("n is {}", "n"))
    topology = Topology("t", rows.dead_letters("code", "why"))
    app = InProcessApp(topology.app(shards=1))
    sent = [record(0, n=3), RawRecord(0, 2, 1, b"no json"), record(2, n=4)]
    found = [r for r in app.cut(sent, NOW_MS) if r.lane == "deadletters"]
    assert sorted(str(r.value) for r in found) == sorted(str(r.value) for r in sent)
    assert sorted(header_texts(r)["reason"] for r in found if header_texts(r)["reason_code"] == "odd") == [
        "n is 3",
        "n is 4",
    ]


def test_a_dead_letter_without_its_record_holds_the_row() -> None:
    (letter,) = letters(source(SCHEMA).flat_map(fail_on_seven), [record(7, n=7)])
    assert json.loads(letter.value or b"")["n"] == 7
    assert "source_topic" not in header_texts(letter)


@pytest.mark.parametrize("tasks", [1, 3])
def test_output_rows_do_not_contain_their_records(tasks: int) -> None:
    rows = source(SCHEMA, raw=True).select("id", "n")
    app = InProcessApp(Topology("t", rows.sink("out")).app(shards=2))
    found = app.cut([record(n) for n in range(6)], NOW_MS, tasks=tasks)
    assert [set(json.loads(r.value or b"")) for r in found] == [{"id", "n"}] * 6
