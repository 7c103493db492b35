"""An app that routes by key: events go around the deduplication, and all shards behind it leave out the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamcore.app import App, Source
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kernel import Cut, KernelOutput
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.operators.deduplication.events import IS_LATE, take_out
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import LATE, Record
from tests.harness.apps.stateless_kernel import StatelessKernel

CLOCK = 1_700_000_000_000
SCHEMA = StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "event_id": "id",
        "deduplicate": "1s",
        "keys": [["user"], ["card"]],
        "fields": {"at": "timestamp not null", "id": "long", "user": "string", "card": "string"},
    }
)


class Seen(StatelessKernel):
    """A kernel that outputs the ids that it gets under each key, in their order."""

    def step(self, cut: Cut) -> KernelOutput:
        seen = {str(key.route): rows["id"].to_list() for key, rows in cut.events.items()}
        return KernelOutput([Record("seen", None, orjson.dumps(seen))])


def write_late(source: int, late: pl.DataFrame, watermark_ms: int) -> Sequence[Record]:
    rows = late.select("id", LATE_REASON, LATENESS_MS).rows()
    return [Record(LATE, None, orjson.dumps([source, watermark_ms, *row])) for row in rows]


def new_app(shards: int) -> App:
    source = Source(SCHEMA, "orders", watermark=WatermarkStrategy(max_out_of_orderness_ms=0))
    return add_deduplication(App("app", (source,), "control", {}, (Seen,), shards=shards), write_late)


def order(partition: int, offset: int, number: int | None, at: int = 0, user: str = "u", card: str = "c") -> RawRecord:
    value = {"at": CLOCK - 60_000 + at, "id": number, "user": user, "card": card}
    return RawRecord(0, partition, offset, orjson.dumps(value))


def seen(records: Sequence[Record]) -> dict[str, Counter[int | None]]:
    """Return the ids that the kernels of all shards got, by key."""
    found = {"0": Counter[int | None](), "1": Counter[int | None]()}
    for record in records:
        if record.lane == "seen":
            for route, ids in orjson.loads(record.value or b"").items():
                found[route].update(ids)
    return found


def test_each_key_gets_an_event_once_although_its_copies_have_other_keys_and_partitions() -> None:
    process = InProcessApp(new_app(shards=3))
    first = [order(0, n, n, user=f"u{n}", card=f"c{n % 7}") for n in range(40)]
    near = [order(1, n, n, user=f"other{n}", card=f"c{n}") for n in range(0, 40, 2)]
    without_id = [order(1, 100 + n, None) for n in range(3)]
    wanted = Counter([*range(40), None, None, None])
    assert seen(process.cut([*near, *first, *without_id], CLOCK, tasks=3)) == {"0": wanted, "1": wanted}
    again = [order(1, 200 + n, n, user="x", card="y") for n in range(50)]
    fresh = Counter(range(40, 50))
    assert seen(process.cut(again, CLOCK + 1)) == {"0": fresh, "1": fresh}


def test_a_late_event_is_written_once_and_reaches_no_key() -> None:
    process = InProcessApp(new_app(shards=4))
    process.cut([order(0, 0, 1, at=10_000)], CLOCK)
    records = process.cut([order(0, 1, 2, at=8_999), order(0, 2, 3, at=9_000)], CLOCK + 1)
    fresh = Counter([3])
    assert seen(records) == {"0": fresh, "1": fresh}
    (late,) = [orjson.loads(r.value or b"") for r in records if r.lane == LATE]
    assert late[:3] == [0, CLOCK - 50_000, 2]
    assert "may be forgotten" in late[3]
    assert late[4] == 1_001


def test_events_go_to_the_second_stage_alone_and_the_first_gets_hashes() -> None:
    exchanges = {e.rows.route: e for e in new_app(2).exchanges}
    assert [(exchanges[route].stage, exchanges[route].direct) for route in (-1, -2, 0, 1)] == [
        (0, False),
        (1, False),
        (1, True),
        (1, True),
    ]
    assert exchanges[-1].hashed
    assert exchanges[-2].broadcast


positions = st.tuples(st.integers(0, 3), st.integers(0, 12))


@given(st.sets(positions), st.dictionaries(positions, st.booleans()))
def test_the_events_that_a_verdict_names_are_taken_out(
    here: set[tuple[int, int]], refused: dict[tuple[int, int], bool]
) -> None:
    rows = sorted(here)
    schema = {PARTITION: pl.Int32, OFFSET: pl.Int64}
    events = pl.DataFrame(rows, schema, orient="row")
    verdicts = pa.table(
        {
            PARTITION: pa.array([p for p, _ in refused], pa.int32()),
            OFFSET: pa.array([o for _, o in refused], pa.int64()),
            IS_LATE: pa.array(np.array([*refused.values()], dtype=bool)),
        }
    )
    used, late = take_out(events, verdicts)
    assert used.rows() == [row for row in rows if row not in refused]
    assert late.rows() == [row for row in rows if refused.get(row, False)]
