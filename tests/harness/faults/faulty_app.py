"""A service with faults, for tests that need it to die at a certain step or to lack a protection.

``--capture DIR`` stores the records of each attempt at each batch. ``--die STEP --when LANE`` ends the driver
with SIGKILL at that step of the first batch that has records on that lane and was not written before.
``--unprotected`` switches the protection off: no batch counts as written before. ``--module``: that of the service;
the rules app without it.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.at_least_once import AtLeastOnceWriter
from streamcore.kafka.delivery import CommitReceipt, CommitStep, OutRecord, OutRecords, WriterHooks
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.settings import KafkaSettings
from streamcore.service.main import run_service
from streamcore.spark import runner


@dataclasses.dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the app."""

    capture: Path | None
    die: CommitStep | None
    when: str
    unprotected: bool
    module: str


class FaultyWriter(ExactlyOnceWriter):
    """The writer of the app, with ``faults``. Also the part of a writer in another mode that has them."""

    faults: ClassVar[Faults]

    def __init__(
        self, settings: KafkaSettings, writer: WriterId, markers_topic: str, *, hooks: WriterHooks, **more: Any
    ) -> None:
        self._armed = False
        wired = dataclasses.replace(hooks, on_step=self._on_step)
        super().__init__(settings, writer, markers_topic, hooks=wired, **more)
        self._lane_topic = f"{writer.app}.{self.faults.when}"

    def commit(self, cut: CutId, records: Iterable[OutRecord | OutRecords]) -> CommitReceipt:
        rows = list(records)
        if rows and self.faults.capture is not None:
            write_attempt(self.faults.capture, cut.batch, [one for some in rows for one in _to_records(some)])
        self._armed = any(row.topic == self._lane_topic for row in rows)
        return super().commit(cut, rows)

    def _is_done(self, cut: CutId) -> bool:
        return False if self.faults.unprotected else super()._is_done(cut)

    def _on_step(self, step: CommitStep) -> None:
        if self._armed and step is self.faults.die:
            time.sleep(0.3)  # what was produced is at the broker by now
            os.kill(os.getpid(), signal.SIGKILL)


class FaultyAtLeastOnceWriter(FaultyWriter, AtLeastOnceWriter):
    """The same without transactions."""


def _to_records(some: OutRecord | OutRecords) -> Iterable[OutRecord]:
    return some if isinstance(some, OutRecords) else [some]


def write_attempt(folder: Path, batch: int, rows: list[OutRecord]) -> None:
    """Write the records of an attempt to a file, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{batch}.{os.getpid()}.partial"
    lines = [repr((r.topic, r.key, r.value, r.headers)) for r in rows]
    partial.write_text("\n".join(lines))
    partial.rename(folder / f"{batch}.{os.getpid()}.attempt")


def read_attempts(folder: Path) -> dict[int, list[str]]:
    """Return the records of each attempt at each batch, a line a record."""
    found: dict[int, list[str]] = {}
    for file in sorted(folder.glob("*.attempt")):
        found.setdefault(int(file.name.partition(".")[0]), []).append(file.read_text())
    return found


def _faults() -> Faults:
    """Parse the arguments of this module; leave those of the app."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--capture", type=Path)
    parser.add_argument("--die", type=CommitStep)
    parser.add_argument("--when", default="alerts")
    parser.add_argument("--unprotected", action="store_true")
    parser.add_argument("--module", default="headgate_rules.service")
    ours, theirs = parser.parse_known_args()
    sys.argv = [sys.argv[0], *theirs]
    return Faults(ours.capture, ours.die, ours.when, ours.unprotected, ours.module)


if __name__ == "__main__":
    FaultyWriter.faults = _faults()
    # The only names by which the runner knows them.
    vars(runner).update(ExactlyOnceWriter=FaultyWriter, AtLeastOnceWriter=FaultyAtLeastOnceWriter)
    sys.exit(run_service(importlib.import_module(FaultyWriter.faults.module).SERVICE))
