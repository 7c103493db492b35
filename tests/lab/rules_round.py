"""A round of the rules service: eight rules, events at a steady pace, rule changes all along, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headgate.local.servers.kafka import EmbeddedBroker
from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.faults.services.disk import small_disk
from tests.lab import events, rules, topics
from tests.lab.fault_injector import FaultInjector
from tests.lab.judge import Evidence, Verdict, judge
from tests.lab.result import RoundResult
from tests.lab.schedule import Step, schedule
from tests.lab.shifted_clock import write_offset
from tests.lab.topics import Sender, Work

LANES = ("alerts", "shadow", "status", "late", "deadletters")
_DISK_MB = 256
_LIMIT_S = 600.0
_PER_CUT = 5_000
#: Shorter than a silence of a partition at the usual pace.
_IDLE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Size:
    """The number of events, and their rate."""

    events: int = 36_000
    per_second: float = 200.0


@dataclass(frozen=True, slots=True)
class RulesRound:
    """The round of a seed, in a folder of its own, on a broker that it may kill. ``steps``: instead of the seed's."""

    folder: Path
    broker: EmbeddedBroker
    jars: Path
    result: RoundResult
    size: Size
    steps: Sequence[Step] = ()

    @property
    def name(self) -> str:
        """Return the name of the app, another one in each attempt at a round, because the broker keeps the topics."""
        return self.folder.name

    @property
    def topic(self) -> str:
        """Return the topic of the events."""
        return f"{self.name}.lab"

    def run(self) -> Verdict:
        """Run the round, and judge it."""
        settings = self._settings()
        app = AppUnderTest(self.folder, settings)
        clock = self.folder / "clock"
        write_offset(clock, 0)
        start = partial(app.start, ("-m", "tests.lab.shifted_clock", str(clock), "headgate_rules"))
        with small_disk(app.checkpoint, _DISK_MB) as disk, app:
            if disk is None:
                self.result.skipped.append("full disk: this user may not mount a file system")
            injector = FaultInjector(app, start, {"broker": self.broker}, disk, clock)
            self._live(injector)
        return judge(self._evidence())

    def _settings(self) -> dict[str, object]:
        file = self.folder / "lab.yaml"
        file.write_text(events.stream_file())
        document: dict[str, object] = {
            "app": self.name,
            "kafka": {"bootstrap": self.broker.bootstrap},
            "streams": [{"schema_file": str(file), "topic": self.topic}],
            "checkpoint": str(self.folder / "checkpoint"),
            "jars": str(self.jars),
            "local_dir": str(self.folder / "spark"),
            "shards": 2,
            "events_per_cut": _PER_CUT,
            "max_out_of_orderness_ms": events.DISORDER_MS,
            "idle_timeout_ms": _IDLE_MS,
        }
        inputs = TopicSpec(self.topic, events.PARTITIONS)
        kafka = KafkaSettings(self.broker.bootstrap)
        ensure_topics(kafka, [inputs, *SERVICE.topics(RulesSettings.model_validate(document))])
        return document

    def _live(self, injector: FaultInjector) -> None:
        """Publish rules, then send events and inject faults, then end the time and drain the app."""
        bootstrap = self.broker.bootstrap
        sender, control = Sender(bootstrap, self.topic), Sender(bootstrap, f"{self.name}.control")
        topics.publish(control, rules.first_records())
        injector.begin()
        injector.await_cut("the first start", 0)
        self._settle(injector, sender, control)
        arrivals = events.events(self._seed, self.size.events)
        feeding = topics.feed(sender, arrivals, self.size.per_second)
        changing = topics.change_rules(control)
        try:
            if self.steps:
                injector.run(self.steps, lambda: False)
            else:
                injector.run(schedule(self._seed, injector.possible()), lambda: not feeding.is_alive())
        finally:
            self._note(injector)
        _finish(feeding, changing)
        sender.send([(p, b"tick", event.value) for p, event in events.ticks(len(arrivals))])
        self._settle(injector, sender, control)
        code = injector.app.drain()
        assert code == 0, f"the drain ended with {code}"
        injector.check_orphans()
        self._note(injector)

    def _settle(self, injector: FaultInjector, sender: Sender, control: Sender) -> None:
        """Wait until everything that was sent is in a cut."""
        wanted = {(self.topic, p): end for p, end in sender.ends.items()}
        wanted |= {(f"{self.name}.control", p): end for p, end in control.ends.items()}

        def taken() -> bool:
            read = injector.app.reported_cuts[-1].offsets if injector.app.reported_cuts else {}
            return all(read.get(topic, {}).get(str(p)) == end for (topic, p), end in wanted.items())

        while not taken():
            injector.await_cut("the end of the input", len(injector.app.reported_cuts))

    def _note(self, injector: FaultInjector) -> None:
        self.result.faults, self.result.ends = injector.faults, injector.ends
        self.result.starts = [start.seconds for start in injector.starts]

    @property
    def _seed(self) -> str:
        return f"{self.result.seed}/{self.result.round}"

    def _evidence(self) -> Evidence:
        bootstrap = self.broker.bootstrap
        lanes = {lane: topics.read(bootstrap, f"{self.name}.{lane}") for lane in LANES}
        return Evidence(
            self.topic,
            range(self.size.events + events.PARTITIONS),
            topics.read(bootstrap, self.topic),
            topics.read(bootstrap, f"{self.name}.control"),
            lanes,
            topics.read(bootstrap, f"{self.name}.markers"),
        )


def _finish(feeding: Work, changing: Work) -> None:
    feeding.finish(_LIMIT_S)
    changing.stopping.set()
    changing.finish(_LIMIT_S)
