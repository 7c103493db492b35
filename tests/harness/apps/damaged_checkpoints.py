"""Starts an app on damaged copies of its checkpoint, one after the other in one Spark session.

python -m tests.harness.apps.damaged_checkpoints FILE     FILE: a pickled ``Campaign``
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from streamcore.errors import StreamError
from streamcore.kafka.readers import read_topic
from tests.harness.apps.scripted_cuts import Script, run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Damage:
    """What happens to one file: one of its bits is flipped at ``at`` (a share of its length), the rest from there on
    is cut off, or the file is removed. With ``checksum`` its checksum files go as well."""

    file: str
    kind: str
    at: float
    checksum: bool

    def apply(self, root: Path) -> None:
        """Damage the file in this checkpoint."""
        path = root / self.file
        if self.checksum:
            for file in (path.with_name(f".{path.name}.crc"), path.with_name(f"{path.name}.crc")):
                file.unlink(missing_ok=True)
        content = bytearray(path.read_bytes())
        place = int(len(content) * self.at)
        if self.kind == "remove":
            path.unlink()
        elif self.kind == "cut":
            path.write_bytes(content[:place])
        else:
            content[place] ^= 1 << place % 8
            path.write_bytes(content)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run: the error with which the app ended, or the records that it wrote."""

    damage: Damage
    error: str
    records: Sequence[str]


@dataclass(frozen=True, slots=True)
class Campaign:
    """An app whose last cut runs on ``count`` copies of its checkpoint, each with another file of the state damaged."""

    script: Script
    count: int
    seed: int
    lane: str

    def run(self, folder: Path, *, limit_s: float) -> list[Outcome]:
        """Run it in a process of its own; return the outcome without damage, then one for each damage."""
        from pyspark import cloudpickle

        file = folder / "campaign"
        file.write_bytes(cloudpickle.dumps(self))  # type: ignore[no-untyped-call]
        command = [sys.executable, "-m", "tests.harness.apps.damaged_checkpoints", str(file)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        assert completed.returncode == 0, completed.stderr[-6000:]
        lines = [orjson.loads(line) for line in file.with_suffix(".outcomes").read_bytes().splitlines()]
        return [Outcome(Damage(**line["damage"]), line["error"], line["records"]) for line in lines]

    def damages(self, root: Path) -> list[Damage]:
        """Choose them by the seed: every file of Spark and of the stages before any a second time."""
        chance = random.Random(self.seed)
        paths = [path for folder in ("spark", "stages") for path in (root / folder).rglob("*") if path.is_file()]
        names = sorted(str(path.relative_to(root)) for path in paths)
        files = [name for name in names if not name.endswith(".crc.crc")]
        chance.shuffle(files)
        kinds = ("flip", "flip", "cut", "remove")
        return [
            Damage(file, chance.choice(kinds), chance.random(), chance.random() < 0.3 and not file.endswith(".crc"))
            for file in (files * (1 + self.count // len(files)))[: self.count]
        ]


def _run_copy(session: SparkSession, campaign: Campaign, number: int, damage: Damage | None) -> Outcome:
    """Run the last cut on a copy of the checkpoint. In a topic of markers of its own the cut is not written yet."""
    script = campaign.script
    copy = script.checkpoint.with_name(f"copy{number}")
    shutil.copytree(script.checkpoint, copy)
    if damage is not None:
        damage.apply(copy)
    lane = script.app.lanes[campaign.lane]
    before, error = len(read_topic(script.kafka, lane)), ""
    try:
        run_script(session, replace(script, checkpoint=copy, markers=f"{script.app.name}.markers{number}", saved=""))
    except StreamError as failure:
        error = f"{type(failure).__name__}: {failure}"
    shutil.rmtree(copy)
    records = sorted((record.value or b"").decode() for record in read_topic(script.kafka, lane)[before:])
    return Outcome(damage or Damage("", "", 0, checksum=False), error, records)


def main() -> None:
    """Run the campaign of the file that is named."""
    from pyspark import cloudpickle

    from streamcore.spark.runtime import Runtime

    file = Path(sys.argv[1])
    campaign: Campaign = cloudpickle.loads(file.read_bytes())
    script = campaign.script
    with Runtime("damaged", file.parent / "session", script.spark) as start:
        run_script(start.session(), replace(script, steps=script.steps[:-1]))
        for number, damage in enumerate([None, *campaign.damages(script.checkpoint)]):
            outcome = _run_copy(start.session(), campaign, number, damage)
            with file.with_suffix(".outcomes").open("ab") as outcomes:
                outcomes.write(orjson.dumps(asdict(outcome)) + b"\n")


if __name__ == "__main__":
    main()
