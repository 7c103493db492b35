"""One app with its topics and its input: what a test needs to send, to wait, and to compare with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamcore.kafka.control import ControlLog, Position, control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness import orders
from tests.harness.app import AppUnderTest
from tests.harness.oracle import Oracle, RuleUnderTest, rows
from tests.harness.orders import Order, Sent
from tests.harness.outputs import Outputs, repeated

FAULTY_APP = ("-m", "tests.harness.faulty_app")


@dataclass(slots=True)
class Scene:
    """``sent`` are the orders; ``count`` all input records, ticks and bad ones too."""

    kafka: KafkaSettings
    app: AppUnderTest
    sent: list[Sent] = field(default_factory=list)
    count: int = 0
    published: int = 0

    @property
    def orders_topic(self) -> str:
        """Input of stream ``orders``."""
        return f"{self.app.name}.orders"

    @property
    def probe_topic(self) -> str:
        """Input of stream ``probe``."""
        return f"{self.app.name}.probe"

    @property
    def capture(self) -> Path:
        """Where the faulty app keeps its attempts."""
        return self.app.folder / "attempts"

    @property
    def outputs(self) -> Outputs:
        """The output topics."""
        return Outputs(self.kafka, self.app.name)

    def send(self, wanted: Sequence[Order]) -> list[Sent]:
        """Orders into ``orders``."""
        new = orders.send(self.kafka, self.orders_topic, wanted)
        self.sent += new
        self.count += len(new)
        return new

    def tick(self, at_ms: int) -> None:
        """Take the watermark to ``at_ms``, less the disorder."""
        self.count += orders.send_ticks(self.kafka, self.orders_topic, at_ms)

    def send_raw(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> list[int]:
        """Keys and values as they are; their offsets in partition 0."""
        self.count += len(records)
        return orders.send_raw(self.kafka, topic, records)

    def publish(self, *rules: RuleUnderTest) -> list[Position]:
        """Rules, one control record each."""
        return self.control(*((rule.id, rule.value) for rule in rules))

    def control(self, *records: tuple[str, bytes | None]) -> list[Position]:
        """Control records as they are."""
        with ControlLog(self.kafka, f"{self.app.name}.control") as log:
            positions = [log.publish(key, value) for key, value in records]
        self.published += len(positions)
        return positions

    def settle(self) -> None:
        """Wait until every input and control record has been taken in."""
        self.app.wait_until_taken(self.count)
        self.app.wait_for_lane("status", self.published)

    def start_faulty(self, *faults: str) -> None:
        """Start the app with faults; what it tries to write is kept."""
        self.app.start([*FAULTY_APP, "--capture", str(self.capture), *faults])

    def check_against(self, rules: Sequence[RuleUnderTest]) -> None:
        """The alerts are those of the oracle, row for row; at least some."""
        found, wanted = self.outputs.alerts(), Oracle(rules).run(self.sent)
        assert repeated(found) == []
        missing, extra = Counter(rows(wanted)) - Counter(rows(found)), Counter(rows(found)) - Counter(rows(wanted))
        assert not missing and not extra, _difference(missing, extra, len(wanted))
        assert {str(a["rule"]) for a in found} == {rule.id for rule in rules}, "every rule fired"

    def check_counts(self) -> None:
        """In = processed + dead letters + late, counted from the topics and from what the app reported."""
        dead, late = len(self.outputs.read("deadletters")), len(self.outputs.read("late"))
        processed = self.app.events - self.app.lane("late")
        assert (dead, late) == (self.app.lane("deadletters"), self.app.lane("late"))
        assert self.count == processed + dead + late


def new_scene(folder: Path, kafka: KafkaSettings, jars: Path, name: str, **settings: object) -> Scene:
    """An app, not started, with empty topics. ``settings`` are those of the rules app."""
    files = orders.write_streams(folder / "streams")
    topics = [TopicSpec(f"{name}.orders", orders.PARTITIONS), TopicSpec(f"{name}.probe", 1)]
    ensure_topics(kafka, [*topics, control_topic(f"{name}.control")])
    document: dict[str, object] = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "streams": [
            {"schema_file": str(files[0]), "topic": f"{name}.orders"},
            {"schema_file": str(files[1]), "topic": f"{name}.probe", "reject_extra_fields": True},
        ],
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "spark"),
        "disorder_ms": orders.DISORDER_MS,
        # No partition is ever taken for idle: then late and final depend on the events alone.
        "idle_ms": 24 * orders.HOUR_MS,
    }
    return Scene(kafka, AppUnderTest(folder, document | settings))


def _difference(missing: Counter[str], extra: Counter[str], wanted: int) -> str:
    some = "\n".join([*(f"- {row}" for row in sorted(missing)[:5]), *(f"+ {row}" for row in sorted(extra)[:5])])
    return f"of {wanted} alerts {missing.total()} are missing and {extra.total()} are too many:\n{some}"
