"""Batches begin at 0 after a restore: with a raised epoch the lanes are complete, without it the writer is fenced."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from conftest import NewTopic
from streamcore.app import App
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.kafka.delivery import CommitOutcome, OutRecord
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import ensure_topics
from streamcore.spark.launch import own_topics
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.versioned_shop import LANES, Version, moment, restore, rows, save
from tests.harness.cut_ids import cut_id

pytestmark = pytest.mark.kafka
CUTS, SAVED_AT = 6, 3


def write(simulation: Simulation, writer: ExactlyOnceWriter, batch: int) -> CommitOutcome:
    """Write the output of the last cut of all shards as one batch."""
    app = simulation.local.app
    every = [record for output in simulation.local.outputs for record in output.all_records()]
    return writer.commit(
        cut_id(batch), [OutRecord(app.lanes[r.lane], r.key, r.value, r.headers) for r in every]
    ).outcome


def run_and_restore(app: App, kafka: KafkaSettings, folder: Path, epoch: int) -> list[CommitOutcome]:
    """Run an app, then the app from its savepoint in this epoch; at the end the first one tries to write again."""
    ensure_topics(kafka, own_topics(app, f"{app.name}.markers"))
    first = Simulation(Version().topology(app.name), shards=app.shards, app=app)
    with ExactlyOnceWriter(kafka, WriterId(app.name, 1, "driver"), f"{app.name}.markers") as old:
        old.open()
        for cut in range(SAVED_AT):
            first.cut(rows(cut), clock_ms=cut)
            assert write(first, old, cut) is CommitOutcome.COMMITTED
        saved = save(app, first.blobs, folder, moment(SAVED_AT - 1))
        second = Simulation(Version().topology(app.name), app=app, blobs=restore(saved, app, folder / "new"))
        second.offsets = first.offsets
        outcomes = []
        with ExactlyOnceWriter(kafka, WriterId(app.name, epoch, "driver"), f"{app.name}.markers") as new:
            new.open()
            for cut in range(SAVED_AT, CUTS):
                second.cut(rows(cut), clock_ms=cut)
                outcomes.append(write(second, new, cut - SAVED_AT))
        first.cut(rows(SAVED_AT), clock_ms=SAVED_AT)
        with pytest.raises(Fenced):
            write(first, old, SAVED_AT)
    return outcomes


def uninterrupted(app: App) -> SimulationResult:
    simulation, result = Simulation(Version().topology(app.name), shards=app.shards), SimulationResult()
    for cut in range(CUTS):
        result.add(simulation.cut(rows(cut), clock_ms=cut))
    return result


def lane(kafka: KafkaSettings, topic: str) -> list[str]:
    return sorted(json.dumps(json.loads(record.value or b""), sort_keys=True) for record in read_topic(kafka, topic))


def expected(frame: pl.DataFrame) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in frame.write_ndjson().splitlines())


@pytest.fixture
def app(new_topic: NewTopic) -> App:
    return Version().topology(new_topic("lives").replace(".", "-").lower()[:40].rstrip("-")).app(shards=2)


def test_with_a_raised_epoch_the_lanes_equal_those_of_an_uninterrupted_run(
    app: App, kafka: KafkaSettings, tmp_path: Path
) -> None:
    assert run_and_restore(app, kafka, tmp_path, epoch=2) == [CommitOutcome.COMMITTED] * (CUTS - SAVED_AT)
    wanted = uninterrupted(app)
    for name in (*LANES, "pairs"):
        assert lane(kafka, app.lanes[name]) == expected(wanted[name]), name


def test_without_a_raised_epoch_the_first_batch_after_the_restore_is_fenced(
    app: App, kafka: KafkaSettings, tmp_path: Path
) -> None:
    with pytest.raises(Fenced, match="batch 0 is to be written, and the marker shows batch 2 with output"):
        run_and_restore(app, kafka, tmp_path, epoch=1)
