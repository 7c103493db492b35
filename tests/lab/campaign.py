"""Runs rounds one after the other, and stores their results in a folder, so that a campaign can be resumed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

from headgate.console.messages import silent, to_stderr
from headgate.local import jars
from headgate.local import java as java_runtime
from headgate.local.servers.base import Lifetime
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from tests.harness.servers import class_archive
from tests.lab.judge import Verdict
from tests.lab.report import render
from tests.lab.result import RoundResult
from tests.lab.rules_round import RulesRound, Size
from tests.lab.service_round import ServiceRound

#: What the rounds are about, by their number.
_SUBJECTS = ("etl", "rules", "rules", "sessions", "rules", "rules", "search", "rules")


@dataclass(frozen=True, slots=True)
class Campaign:
    """The rounds of a seed. ``folder`` keeps a file for each, and a folder with settings and messages of the app."""

    folder: Path
    seed: int
    size: Size

    def run(self, minutes: float, *, resume: bool, only: int | None = None) -> int:
        """Run rounds until the time is over, or only one; return 1 if any failed."""
        done = {result.round: result for result in self.results()} if resume else {}
        number = only if only is not None else max(done, default=0) + 1
        end = time.monotonic() + 60 * minutes
        new = []
        while True:
            result = self._round(number)
            new.append(result)
            self._keep(result)
            print(_line(result), flush=True)
            number += 1
            if only is not None or time.monotonic() > end:
                break
        print(render([*(r for n, r in sorted(done.items())), *new]))
        return int(any(result.differences for result in new))

    def report(self) -> None:
        """Print the figures of all rounds in the folder."""
        print(render(self.results()))

    def results(self) -> list[RoundResult]:
        """Return the results of this seed that the folder has."""
        files = self.folder.glob(f"{self.seed}-*.json")
        return sorted((RoundResult.from_json(json.loads(f.read_text())) for f in files), key=lambda r: r.round)

    def _keep(self, result: RoundResult) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.seed}-{result.round}.json"
        file.write_text(json.dumps(result.to_json(), indent=1) + "\n")

    def _round(self, number: int) -> RoundResult:
        """Run a round on a broker of its own."""
        result = RoundResult(self.seed, number, _SUBJECTS[number % len(_SUBJECTS)], events=self.size.events)
        began = time.monotonic()
        folder = Path(tempfile.gettempdir()) / f"lab-{self.seed}-{number}-{secrets.token_hex(3)}"  # the app's name too
        folder.mkdir(mode=0o755)
        try:
            with ExitStack() as stack:
                _take(result, self._prepare(folder, result, stack).run())
        except Exception as error:  # any error fails the round, and the next one begins
            result.differences.append(f"{type(error).__name__}: {error}")
        result.seconds = round(time.monotonic() - began, 1)
        result.load = round(os.getloadavg()[1], 1)
        shutil.copytree(folder, self.folder / f"{self.seed}-{number}", dirs_exist_ok=True, ignore=_large)
        shutil.rmtree(folder, ignore_errors=True)
        return result

    def _prepare(self, folder: Path, result: RoundResult, stack: ExitStack) -> RulesRound | ServiceRound:
        class_archive.use()
        java = java_runtime.ensure(to_stderr)
        java_runtime.activate(java)
        settings = BrokerSettings(folder / "broker", lifetime=Lifetime.WITH_PARENT, short_lived=True)
        broker = EmbeddedBroker(settings, java, silent)
        stack.callback(broker.kill)
        broker.start()
        library = jars.ensure(jars.JarSet.SPARK, java, to_stderr)
        if result.subject == "rules":
            return RulesRound(folder, broker, library, result, self.size)
        return ServiceRound(folder, broker, library, result, self.size.events / self.size.per_second)


def _take(result: RoundResult, verdict: Verdict) -> None:
    for one in fields(verdict):
        setattr(result, one.name, getattr(verdict, one.name))


def _large(_: str, names: Iterable[str]) -> set[str]:
    """Return what of a round's folder is not kept: a repeat of the round makes it again."""
    return {*names} & {"broker", "checkpoint", "spark", "store", "tmp"}


def _line(result: RoundResult) -> str:
    faults = f"{len(result.faults)} faults, {len(result.starts)} starts in {result.seconds:.0f} s"
    counts = f"{result.events} events of {result.subject}, {result.seen} of {result.expected} alerts"
    if not result.differences:
        return f"round {result.round}: passed; {faults}; {counts}"
    texts = "\n  ".join(difference[:1_000] for difference in result.differences)
    return f"round {result.round}: FAILED; {faults}; {counts}; repeat: {result.command}\n  {texts}"
