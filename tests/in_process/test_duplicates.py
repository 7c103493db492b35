"""A stream with ``deduplicate``: the app writes what it would write if no event had been sent twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import orjson
import pytest

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.app import App
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.kernel import DEDUPLICATION
from streamcore.wire.lanes import ALERTS, LATE, Record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order
from tests.harness.apps.versioned_shop import moment, restore, save
from tests.harness.oracles.duplicates import EventsOnce

HORIZON_MS = 60_000
CLOCK_MS = orders.START_MS + orders.DAY_MS
STEP_MS = 500

Cuts = list[list[RawRecord]]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "shards"), [(1, 1), (2, 2), (3, 5)])
def test_rules_see_each_event_once_whatever_the_partitions_and_cuts_of_its_copies(
    tmp_path: Path, seed: int, shards: int
) -> None:
    cuts = deliveries(seed)
    expected, once = without_copies(cuts)
    assert min(once.same, once.other, once.late) > 10, "there is something to remove"
    run = Run(new_app(tmp_path, "1m", shards))
    found = run.all(cuts)
    wanted = Run(new_app(tmp_path, None, shards)).all(expected)
    late = [record for record in found if is_too_late(record)]
    assert [record for record in found if not is_too_late(record)] == wanted
    assert len(late) == once.late
    assert sum(record.lane == ALERTS for record in wanted) > 50
    names = ("duplicates", "other_content", "late", "evicted", "not_remembered")
    counts = [run.counters[f"{DEDUPLICATION}.orders.{name}"] for name in names]
    assert counts == [once.same + once.other, once.other, once.late, 0, 0]


@pytest.mark.slow
def test_without_the_line_the_copies_count(tmp_path: Path) -> None:
    cuts = deliveries(1)
    expected, _ = without_copies(cuts)
    found, wanted = (Run(new_app(tmp_path, None)).all(each) for each in (cuts, expected))
    assert sum(r.lane == ALERTS for r in found) > sum(r.lane == ALERTS for r in wanted)


@pytest.mark.slow
def test_a_restart_after_each_cut_and_any_tasks_change_no_byte(tmp_path: Path) -> None:
    cuts = deliveries(4)
    app = new_app(tmp_path, "1m")
    assert Run(app, restart=True, tasks=3).all(cuts) == Run(app).all(cuts)


@pytest.mark.slow
def test_ids_on_disk_are_found(tmp_path: Path) -> None:
    cuts = deliveries(5)
    small = new_app(tmp_path, "1m", state_memory_bytes=4_000, local_dir=str(tmp_path))
    paged = Run(small)
    assert paged.all(cuts) == Run(new_app(tmp_path, "1m")).all(cuts)
    assert paged.counters["cold_moves.recalled"] > 0


def test_an_event_behind_the_watermark_by_more_than_the_horizon_is_late_and_meets_no_rule(tmp_path: Path) -> None:
    run = Run(new_app(tmp_path, "1m"))
    old = Order(2, orders.START_MS, "u", "pay", Decimal(950))
    new = Order(1, orders.START_MS + 10 * HORIZON_MS, "u", "pay", Decimal(950))
    run.all([[record(0, 0, new), record(1, 0, replace(new, id=3))]])
    (late,) = run.cut([record(0, 1, old)])
    assert late.lane == LATE
    body = orjson.loads(late.value or b"")
    assert body["source"] == {"topic": "orders", "partition": 0, "offset": 1}
    assert body["lateness_ms"] == 10 * HORIZON_MS - orders.DISORDER_MS
    assert body["event"]["amount"] == "950.00"
    assert "may be forgotten" in body["reason"]


def test_at_the_limit_the_oldest_ids_are_forgotten_and_no_event_counts_twice(tmp_path: Path) -> None:
    run = Run(new_app(tmp_path, "1h", shards=1, max_event_ids=100))
    events = [Order(n, orders.START_MS + n * 1_000, f"u{n}", "pay", Decimal(950)) for n in range(300)]
    first = run.all([[record(0, n, event) for n, event in enumerate(events)]])
    again = run.cut([record(0, 300 + n, event) for n, event in enumerate(events)])
    assert sum(r.lane == ALERTS for r in first) == 300
    assert Counter(r.lane for r in again) == {LATE: run.counters[f"{DEDUPLICATION}.orders.late"]}
    assert run.counters[f"{DEDUPLICATION}.orders.evicted"] >= 200
    assert run.counters[f"{DEDUPLICATION}.orders.ids"] <= 100


@pytest.mark.slow
def test_a_savepoint_switches_it_on_and_off_and_divides_the_ids_among_other_shards(tmp_path: Path) -> None:
    cuts = deliveries(6)
    expected, _ = without_copies(cuts)
    third = len(cuts) // 3
    known = {event_id(one) for cut in expected[:third] for one in cut}  # before it is on, ids are not remembered
    middle = [[one for one in cut if event_id(one) not in known] for cut in cuts[third : 2 * third]]
    half = len(middle) // 2
    wanted = Run(new_app(tmp_path, None)).all(expected)
    phases = ((None, 2, expected[:third]), ("1m", 2, middle[:half]), ("1m", 3, middle[half:]))
    found, run = [], Run(new_app(tmp_path, None))
    for number, (deduplicate, shards, part) in enumerate((*phases, (None, 2, expected[2 * third :]))):
        app = new_app(tmp_path / str(number), deduplicate, shards)
        found += run.all(part) if number == 0 else run.restored(app, tmp_path / str(number)).rest(part)
    assert run.counters[f"{DEDUPLICATION}.orders.duplicates"] > 20
    assert sorted(alerts(found)) == sorted(alerts(wanted))


# --- input ------------------------------------------------------------------------------------------------------------


def deliveries(seed: int) -> Cuts:
    """Return the records of many cuts. Of a third of the orders there are copies, near and far, in any partition; some
    have another content, and some copies and new events are too late."""
    chance = random.Random(seed)
    arrivals: list[tuple[float, Order, int]] = []
    for number, order in enumerate(orders.orders(700, seed=seed, step_ms=STEP_MS, users=20)):
        arrivals.append((number, order, order.partition))
        while chance.random() < 0.3:
            other = chance.random() < 0.3
            copy = replace(order, amount=Decimal(951), ts=order.ts - chance.randrange(5_000)) if other else order
            near = chance.random() < 0.5
            at = number + (chance.random() * 3 if near else chance.expovariate(1 / 80))
            arrivals.append((at, copy, chance.randrange(orders.PARTITIONS)))
    offsets = [0] * orders.PARTITIONS
    records = []
    for _, order, partition in sorted(arrivals, key=lambda arrival: arrival[0]):
        records.append(record(partition, offsets[partition], order))
        offsets[partition] += 1
    cuts, start = [], 0
    while start < len(records):
        size = chance.choice([2, 40, 80, 150])
        cuts.append(records[start : start + size])
        start += size
    last = [record(p, offsets[p], replace(tick, id=10_000 + p)) for p, tick in orders.ticks(CLOCK_MS)]
    return [*cuts, last]


def record(partition: int, offset: int, order: Order) -> RawRecord:
    return RawRecord(0, partition, offset, order.value)


def without_copies(cuts: Cuts) -> tuple[Cuts, EventsOnce]:
    """Return the cuts without the events that are not used: an app without deduplication gets these."""
    once, watermark_ms = EventsOnce(HORIZON_MS), -(2**62)
    latest: dict[int, int] = {}
    kept: Cuts = []
    for cut in cuts:
        ordered = sorted(cut, key=lambda r: (r.partition, r.offset))
        events = [orjson.loads(r.value or b"") for r in ordered]
        use = [once.use(event, event["id"], event["ts"], watermark_ms) for event in events]
        kept.append([r for r, used in zip(ordered, use, strict=True) if used])
        for one, event in zip(ordered, events, strict=True):
            latest[one.partition] = max(latest.get(one.partition, 0), event["ts"])
        if len(latest) == orders.PARTITIONS:
            watermark_ms = max(watermark_ms, min(latest.values()) - orders.DISORDER_MS)
    return kept, once


# --- the app ----------------------------------------------------------------------------------------------------------


def new_app(folder: Path, deduplicate: str | None, shards: int = 2, **settings: object) -> App:
    document = {
        "app": "duplicates",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(orders.write_streams(folder, deduplicate)[0]), "topic": "orders"}],
        "checkpoint": str(folder),
        "jars": str(folder),
        "shards": shards,
        "max_out_of_orderness_ms": orders.DISORDER_MS,
        **settings,
    }
    return build_app(RulesSettings.model_validate(document))


@dataclass
class Run:
    """``restart``: a new process runs each cut."""

    app: App
    restart: bool = False
    tasks: int = 1
    counters: Counter[str] = field(default_factory=Counter)
    clock_ms: int = CLOCK_MS

    def __post_init__(self) -> None:
        self.process = InProcessApp(self.app, partitions=range(orders.PARTITIONS))

    def all(self, cuts: Cuts) -> list[Record]:
        """Return the output of the cuts, after one with the rules."""
        control = [control_record(n, rule.id, rule.value) for n, rule in enumerate(rules.all_kinds())]
        self.cut(control)
        return self.rest(cuts)

    def rest(self, cuts: Cuts) -> list[Record]:
        """Return the output of further cuts."""
        return [one for cut in cuts for one in self.cut(cut)]

    def restored(self, app: App, folder: Path) -> Run:
        """Go on as another app, from a savepoint."""
        saved = save(self.app, self.process.blobs, folder / "savepoints", moment())
        offsets = self.process.next_offsets
        self.app = app
        self.process = InProcessApp(
            app, restore(saved, app, folder / "checkpoint"), partitions=range(orders.PARTITIONS)
        )
        self.process.next_offsets = offsets
        return self

    def cut(self, records: Sequence[RawRecord]) -> list[Record]:
        if self.restart:
            offsets = self.process.next_offsets
            self.process = InProcessApp(self.app, self.process.blobs, partitions=range(orders.PARTITIONS))
            self.process.next_offsets = offsets
        self.clock_ms += 1
        output = self.process.cut(records, self.clock_ms, self.tasks)
        counted: Counter[str] = Counter()
        for one in self.process.outputs:
            counted.update(one.metrics.counters)
        gauges = [name for name in self.counters if name.endswith((".ids", ".bytes"))]
        for name in gauges:
            del self.counters[name]
        self.counters.update(counted)
        return output


def is_too_late(one: Record) -> bool:
    return one.lane == LATE and "may be forgotten" in orjson.loads(one.value or b"")["reason"]


def event_id(one: RawRecord) -> object:
    return orjson.loads(one.value or b"")["id"]


def alerts(records: Sequence[Record]) -> list[bytes]:
    return [one.value or b"" for one in records if one.lane == ALERTS]
