"""An app with one sink under test: its input, its start and stop, and the comparison with what must be there."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streamcore.kafka import clients
from streamcore.kafka.readers import end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.app import AppUnderTest
from tests.harness.changes import Change, changes, every, latest

ENTRY = ("-m", "tests.harness.sink_app")
PER_CUT = 500
_PARTITIONS = 1  # the order of changes is the order of one partition

Row = tuple[object, ...]


class Target(Protocol):
    """A system that a sink writes to, as a test sees it."""

    #: Whether a row replaces the one of the same id.
    keyed: bool

    @property
    def entry(self) -> dict[str, object]:
        """Its part of the app's settings."""
        ...

    def rows(self) -> Sequence[Row]:
        """What is there: id, n, amount and text of each row, read by a client that shares nothing with the sink."""
        ...


@dataclass(slots=True)
class SinkScene:
    """``sent``: all changes, in order."""

    kafka: KafkaSettings
    app: AppUnderTest
    topic: str
    target: Target
    sent: list[Change] = field(default_factory=list)

    def send(self, count: int) -> None:
        """So many more changes, acknowledged."""
        new = changes(count, seed=len(self.sent), first=len(self.sent))
        client = clients.producer(self.kafka)
        for change in new:
            client.produce(self.topic, change.value, change.id.encode())
        assert client.flush(60) == 0
        self.sent += new

    def settle(self, limit_s: float = 240) -> None:
        """Wait until the app has committed all that was sent."""
        ends = {str(p): end for (_, p), end in end_offsets(self.kafka, [self.topic]).items()}

        def done() -> bool:
            cuts = self.app.this_start
            return bool(cuts) and dict(cuts[-1].offsets.get(self.topic, {})) == ends

        self.app.wait_for(done, "the end of the input", limit_s)

    def check(self) -> None:
        """What is there is what must be there: nothing lost, nothing twice, nothing that was deleted."""
        found = self.target.rows()
        if self.target.keyed:
            assert len(found) == len(set(found))
            assert set(found) == latest(self.sent)
        else:
            assert sorted(found, key=lambda row: int(str(row[1]))) == every(self.sent)
        assert [*read_topic(self.kafka, f"{self.app.name}.deadletters", limit_ms=30_000)] == []


def new_sink_scene(folder: Path, kafka: KafkaSettings, jars: Path, name: str, target: Target) -> SinkScene:
    """An app that is not started yet, and its topic."""
    settings = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "topic": f"{name}.changes",
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "tmp"),
        "shards": 1,
        "parallelism": 1,
        "events_per_cut": PER_CUT,
        "future_ms": 10 * 365 * 86_400_000,
        **target.entry,
    }
    ensure_topics(kafka, [TopicSpec(f"{name}.changes", _PARTITIONS)])
    return SinkScene(kafka, AppUnderTest(folder, settings), f"{name}.changes", target)


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of its own on ``folder``."""

    folder: Path

    def fill(self) -> Path:
        """To the last block; the file to delete."""
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4_096))
        return filler


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk | None]:
    """A small disk on ``folder``; None, and no disk, where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
