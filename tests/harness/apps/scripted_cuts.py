"""Apps on Spark whose cuts a test plans: what each reads and its clock are written to the checkpoint before they run.

A process of its own runs the apps one after the other in one Spark session, each until its last cut is committed:

    python -m tests.harness.apps.scripted_cuts FILE     FILE: a pickled list of ``Script``
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.epoch import FIRST_EPOCH
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings
from streamcore.leases.acquire import Lease, lease_for
from streamcore.offsets import StreamOffsets, TopicPartition
from streamcore.savepoint import RestoreDecisions, Savepoint, SavepointRepository
from streamcore.spark.session import SparkSettings
from streamcore.storage import open_object_store
from tests.harness.servers.checkpoint_files import forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Step:
    """A cut: the offset at which it ends in each partition, and its clock."""

    ends: Mapping[TopicPartition, int]
    clock_ms: int


@dataclass(frozen=True)
class Script:
    """An app and its cuts. ``checkpoint``: its folder, beside that of the savepoints, unless ``place`` says otherwise.

    ``midway``: name of a savepoint after the first cut; ``saved``: of one after the last. ``restored``: the savepoint
    that the checkpoint is made from. ``forgets``: remove Spark's commit of the last batch first, as after a crash.
    ``rejected``: a part of the error that must stop the app before its first cut. ``markers``: another topic of
    markers. ``restarts``: the most restarts after a failure. ``starting``, ``ending``: where topics begin and end, of
    an app without ``steps`` that runs to the end of its inputs. ``prepare``: is called before the app starts.
    """

    app: App
    kafka: KafkaSettings
    checkpoint: Path
    spark: SparkSettings
    steps: Sequence[Step]
    midway: str = ""
    saved: str = ""
    restored: str = ""
    epoch: int = 0
    forgets: bool = False
    rejected: str = ""
    place: str = ""
    markers: str = ""
    restarts: int = 8
    starting: str = "earliest"
    ending: str | None = None
    prepare: Callable[[], None] | None = None
    decisions: RestoreDecisions = field(default_factory=RestoreDecisions)

    @property
    def savepoints(self) -> SavepointRepository:
        return SavepointRepository(
            open_object_store(self.place or self.checkpoint.parent / "savepoints"), self.app.name
        )

    @property
    def markers_topic(self) -> str:
        return self.markers or f"{self.app.name}.markers"

    @property
    def reports(self) -> Path:
        """Return the file with a ``CutReport`` a line, as JSON, which exists once the app has run."""
        return self.checkpoint / "reports"

    def total_counters(self) -> Counter[str]:
        """Add up the counters of the operators over all cuts."""
        total: Counter[str] = Counter()
        for line in self.reports.read_bytes().splitlines():
            total.update(orjson.loads(line)["counters"])
        return total


def run(folder: Path, scripts: Sequence[Script], *, limit_s: float = 280) -> None:
    """Run all scripts in a process; the error contains its output."""
    from pyspark import cloudpickle

    file = folder / "scripts"
    file.write_bytes(cloudpickle.dumps([*scripts]))  # type: ignore[no-untyped-call]
    command = [sys.executable, "-m", "tests.harness.apps.scripted_cuts", str(file)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert completed.returncode == 0, completed.stderr[-6000:]


def _write_plan(script: Script, batch: int) -> None:
    """Write the plan of a cut, as the planner does; none after the last."""
    log = CheckpointRoot(script.checkpoint).offsets
    before = log.read(batch - 1)
    begun = log.read_start() or StreamOffsets(CutClock(), {})
    if batch < len(script.steps) and log.read(batch) is None:
        start = begun if before is None else before.end
        step = script.steps[batch]
        previous = "" if before is None else before.id(batch - 1).digest
        log.write(
            batch, CutBounds(start, StreamOffsets(CutClock.at(step.clock_ms), {**start.offsets, **step.ends}), previous)
        )


class _SharedStart:
    """The start that a runner needs, with a session that several apps share."""

    def __init__(self, session: SparkSession, lease: Lease) -> None:
        self.lease = lease
        self.epoch = FIRST_EPOCH
        self._session = session

    def session(self) -> SparkSession:
        return self._session


def _restore(script: Script) -> None:
    from streamcore.savepoint.app_description import check_app_compatibility
    from streamcore.savepoint.restore import restore_checkpoint

    saved = script.savepoints.get(script.restored)
    planned = check_app_compatibility(saved.manifest, script.app, script.decisions)
    restore_checkpoint(
        saved, script.app, planned, CheckpointRoot(script.checkpoint), script.epoch or saved.manifest.epoch + 1
    )


def run_script(session: SparkSession, script: Script) -> None:
    """Run an app in this process until its last cut is committed."""
    from streamcore.engine.report import CutReport, Listeners
    from streamcore.kafka.topics import ensure_topics
    from streamcore.spark.launch import own_topics
    from streamcore.spark.runner import RestartPolicy, Runner, RunSettings

    if script.prepare is not None:
        script.prepare()
    ensure_topics(script.kafka, own_topics(script.app, script.markers_topic))
    place = script.savepoints.place.url
    settings = RunSettings(
        script.kafka,
        script.checkpoint,
        script.spark,
        script.markers_topic,
        starting_offsets=script.starting,
        ending_offsets=script.ending,
        restarts=RestartPolicy(script.restarts),
        savepoints=place,
    )
    script.checkpoint.mkdir(parents=True, exist_ok=True)
    session.conf.set("spark.sql.shuffle.partitions", str(script.spark.parallelism))
    if script.restored:
        _restore(script)
    if script.forgets:
        forget_last_commit(script.checkpoint)
    with lease_for(script.checkpoint) as lease:
        runner: Runner
        savepoints: list[Future[Savepoint]] = []

        def report(cut: CutReport) -> None:
            with script.reports.open("ab") as file:
                file.write(orjson.dumps(dataclasses.asdict(cut)) + b"\n")
            if cut.batch == 0 and script.midway:
                savepoints.append(runner.savepoint(script.midway))
                savepoints[0].add_done_callback(lambda _: _write_plan(script, 1))  # a batch that is planned has begun
            else:
                _write_plan(script, cut.batch + 1)
            if cut.batch + 1 == len(script.steps):
                if script.saved:
                    savepoints.append(runner.savepoint(script.saved))
                runner.drain()

        runner = Runner(script.app, settings, _SharedStart(session, lease), Listeners(report))  # type: ignore[arg-type]
        if not script.forgets:
            _write_plan(script, len(CheckpointRoot(script.checkpoint).offsets.batches()))
        try:
            runner.run()
        except ConfigError as error:
            if not script.rejected or script.rejected not in str(error):
                raise
        else:
            assert not script.rejected, "it ran"
        for one in savepoints:
            one.result()


def main() -> None:
    """Run the scripts of the file that is named."""
    from pyspark import cloudpickle

    from streamcore.spark.runtime import Runtime

    scripts: list[Script] = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
    with Runtime("scripted", Path(sys.argv[1]).parent / "session", scripts[0].spark) as start:
        for script in scripts:
            run_script(start.session(), script)


if __name__ == "__main__":
    main()
