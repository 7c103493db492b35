"""The oracle agrees with the rules kernel over a small run, and finds faults that are planted into its output."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.savepoint.division import divide_state
from streamcore.wire.lanes import Record
from tests.lab import events, rules
from tests.lab.judge import Evidence, Read, judge

pytestmark = pytest.mark.slow

TOPIC = "lab.events"
LANES = ("alerts", "shadow", "status", "late", "deadletters")
COUNT = 3_000
PER_CUT = 250
CLOCK_MS = events.START_MS + 30 * 86_400_000


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """The evidence of a run with two shards."""
    return run_in_process(tmp_path_factory.mktemp("lab"), (2,))


def run_in_process(folder: Path, shards: Sequence[int]) -> Evidence:
    """Run cuts that end anywhere in a run of some minutes, a version of ``upd`` before each, in one process.

    ``shards``: numbers of shards, each for an equal number of cuts, with the state divided anew.
    """
    app = new_app(folder, shards[0])
    arrivals = events.events("in-process", COUNT)
    places = events.placed(arrivals)
    records = [RawRecord(0, p.partition, p.offset, p.event.value) for p in places]
    control = [*rules.first_records(), *rules.bad_records()]
    sent = list(control)
    output = [app.cut([control_record(n, key, value) for n, (key, value) in enumerate(control)], CLOCK_MS)]
    starts = range(0, len(records), PER_CUT)
    for number, first in enumerate(starts):
        app = with_shards(app, folder, shards[number * len(shards) // len(starts)])
        change = [rules.upd(number + 2), *([rules.bad_ips(number + 2)] if number % 3 == 0 else [])]
        cut = [control_record(len(sent) + n, key, value) for n, (key, value) in enumerate(change)]
        sent += change
        output.append(app.cut([*cut, *records[first : first + PER_CUT]], CLOCK_MS + number))
    lanes: dict[str, list[Read]] = {lane: [] for lane in LANES}
    for batch, written in enumerate(output):
        for record in written:
            lanes[record.lane].append(read(record, batch, len(lanes[record.lane])))
    return Evidence(
        TOPIC,
        [p.event.id for p in places],
        [Read(p.partition, p.offset, p.event.value) for p in places],
        [Read(0, offset, value) for offset, (_, value) in enumerate(sent)],
        lanes,
        [Read(0, 2 * batch, b"%d digest" % batch) for batch in range(len(output))],
    )


def read(record: Record, batch: int, before: int) -> Read:
    """Return the records as a topic of one partition does: with a control record between two batches."""
    return Read(0, before + batch, record.value, 1, batch)


def with_shards(app: InProcessApp, folder: Path, shards: int) -> InProcessApp:
    """Return the app with this number of shards."""
    if app.app.shards == shards:
        return app
    new = new_app(folder, shards)
    new.blobs = divide_state(app.blobs, app.app, new.app)
    new.next_offsets = app.next_offsets
    return new


def new_app(folder: Path, shards: int) -> InProcessApp:
    file = folder / "lab.yaml"
    file.write_text(events.stream_file())
    document = {
        "app": "lab",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(file), "topic": TOPIC}],
        "checkpoint": str(folder),
        "jars": str(folder),
        "shards": shards,
        "max_out_of_orderness_ms": events.DISORDER_MS,
    }
    app = InProcessApp(build_app(RulesSettings.model_validate(document)))
    app.partitions = range(events.PARTITIONS)
    return app


def test_the_oracle_and_the_kernel_agree_and_every_rule_has_alerts(evidence: Evidence) -> None:
    verdict = judge(evidence)
    assert verdict.differences == []
    assert verdict.expected == verdict.seen > 400
    assert {alert.body["rule"] for alert in evidence.lanes["alerts"]} == {d["id"] for d in rules.documents()} | {"upd"}
    assert verdict.versions > 10


@pytest.mark.slow
def test_changes_of_the_number_of_shards_change_no_alert(tmp_path: Path) -> None:
    verdict = judge(run_in_process(tmp_path, (2, 5, 16, 3, 1, 40)))
    assert verdict.differences == []
    assert verdict.expected == verdict.seen > 400


Plant = Callable[[list[Read], int], list[Read]]


def without_one(lane: list[Read], place: int) -> list[Read]:
    return [*lane[:place], *lane[place + 1 :]]


def twice(lane: list[Read], place: int) -> list[Read]:
    """Repeat a record in a batch of its own, like a cut that was written again."""
    return [*lane, dataclasses.replace(lane[place], offset=lane[-1].offset + 5, batch=lane[-1].batch + 1)]


def changed(name: str, value: object) -> Plant:
    def change(lane: list[Read], place: int) -> list[Read]:
        body = lane[place].body | {name: value}
        return [*lane[:place], dataclasses.replace(lane[place], value=json.dumps(body).encode()), *lane[place + 1 :]]

    return change


@pytest.mark.parametrize(
    ("plant", "lost", "extra", "doubled"),
    [
        (without_one, 1, 0, 0),
        (twice, 0, 1, 1),
        (changed("event_time_ms", 5), 1, 1, 0),
        (changed("values", {"count(*)": 99}), 1, 1, 0),
    ],
)
def test_the_judge_finds_a_lost_a_duplicate_and_a_wrong_alert_of_each_rule(
    evidence: Evidence, plant: Plant, lost: int, extra: int, doubled: int
) -> None:
    lane = list(evidence.lanes["alerts"])
    ids = sorted({str(alert.body["rule"]) for alert in lane})
    for rule in ids:
        lane = plant(lane, [alert.body["rule"] for alert in lane].index(rule))
    verdict = judge(dataclasses.replace(evidence, lanes={**evidence.lanes, "alerts": lane}))
    assert (verdict.lost, verdict.extra, verdict.doubled) == (lost * 8, extra * 8, doubled * 8)
    assert verdict.differences


@pytest.mark.parametrize(
    ("lane", "plant", "says"),
    [
        ("status", without_one, "answers: of"),
        ("status", twice, "answers: of"),
        ("alerts", changed("mode", "shadow"), "are missing"),
        ("late", lambda _, __: [Read(0, 0, b"{}", 1, 3)], "1 records on late"),
        ("alerts", lambda lane, _: [dataclasses.replace(r, offset=n) for n, r in enumerate(lane)], "one transaction"),
        ("alerts", lambda lane, p: [*lane[:p], dataclasses.replace(lane[p], batch=0), *lane[p + 1 :]], "comes after"),
    ],
)
def test_the_judge_finds_a_broken_invariant(evidence: Evidence, lane: str, plant: Plant, says: str) -> None:
    broken = plant(list(evidence.lanes[lane]), len(evidence.lanes[lane]) // 2)
    verdict = judge(dataclasses.replace(evidence, lanes={**evidence.lanes, lane: broken}))
    assert says in "\n".join(verdict.differences)


def test_the_judge_finds_a_version_that_was_not_live_in_its_batch(evidence: Evidence) -> None:
    lane = list(evidence.lanes["alerts"])
    place = max(n for n, alert in enumerate(lane) if alert.body["rule"] == "upd")
    old = changed("version", 2)(lane, place)
    verdict = judge(dataclasses.replace(evidence, lanes={**evidence.lanes, "alerts": old}))
    assert "another version" in "\n".join(verdict.differences)


def test_the_judge_finds_a_duplicate_and_a_missing_marker(evidence: Evidence) -> None:
    doubled = judge(dataclasses.replace(evidence, markers=[*evidence.markers, evidence.markers[5]]))
    assert "marker 5 is there 2 times" in "\n".join(doubled.differences)
    missing = judge(dataclasses.replace(evidence, markers=evidence.markers[:-1]))
    assert "has no marker" in "\n".join(missing.differences)


def test_a_round_is_a_function_of_its_seed() -> None:
    assert events.events("17/3", 500) == events.events("17/3", 500) != events.events("17/4", 500)
