"""An app with its topics and input: sends records, waits for the app, and compares its output with the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from streamcore.kafka.control_topic import ControlLog, RecordOffset
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps import orders
from tests.harness.apps.orders import Order, Sent
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.oracles.lane_reader import Outputs, repeated_alerts
from tests.harness.oracles.rule_alerts import Alert, Oracle, RuleUnderTest, rows

FAULTY_APP = ("-m", "tests.harness.faults.faulty_app")


@dataclass(slots=True)
class Scene:
    """``sent``: the orders; ``count``: the number of input records, with ticks and invalid ones. ``encode``: makes the
    record of an order for topic ``orders``; JSON without it."""

    kafka: KafkaSettings
    app: AppUnderTest
    sent: list[Sent] = field(default_factory=list)
    count: int = 0
    published: int = 0
    encode: Callable[[Order], bytes] | None = None
    _days: int = 0

    def next_day(self) -> int:
        """Return the start of a day that no other test of this scene uses, in epoch milliseconds."""
        self._days += 1
        return orders.START_MS + self._days * orders.DAY_MS

    @property
    def orders_topic(self) -> str:
        """Return the topic of stream ``orders``."""
        return f"{self.app.name}.orders"

    @property
    def probe_topic(self) -> str:
        """Return the topic of stream ``probe``."""
        return f"{self.app.name}.probe"

    @property
    def capture(self) -> Path:
        """Return the folder in which the faulty app stores its attempts."""
        return self.app.folder / "attempts"

    @property
    def outputs(self) -> Outputs:
        """Return the output topics."""
        return Outputs(self.kafka, self.app.name)

    def send(self, new_orders: Sequence[Order]) -> list[Sent]:
        """Send orders to ``orders``."""
        new = orders.send(self.kafka, self.orders_topic, new_orders, self.encode)
        self.sent += new
        self.count += len(new)
        return new

    def tick(self, at_ms: int) -> None:
        """Advance the watermark to ``at_ms`` less the disorder."""
        self.count += orders.send_ticks(self.kafka, self.orders_topic, at_ms, self.encode)

    def send_raw(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> list[int]:
        """Send keys and values unchanged; return their offsets in partition 0."""
        self.count += len(records)
        return orders.send_raw(self.kafka, topic, records)

    def publish(self, *rules: RuleUnderTest) -> list[RecordOffset]:
        """Publish rules, one control record each."""
        return self.control(*((rule.id, rule.value) for rule in rules))

    def control(self, *records: tuple[str, bytes | None]) -> list[RecordOffset]:
        """Publish control records unchanged."""
        with ControlLog(self.kafka, f"{self.app.name}.control") as log:
            positions = [log.publish(key, value) for key, value in records]
        self.published += len(positions)
        return positions

    @contextmanager
    def live_rules(self, *rules: RuleUnderTest) -> Iterator[None]:
        """Publish rules on a running app, wait until they are live, and delete them afterwards."""
        self.publish(*rules)
        self.settle()
        yield
        self.control(*((rule_id, None) for rule_id in sorted({rule.id for rule in rules})))
        self.settle()

    def settle(self) -> None:
        """Wait until every input and control record is processed."""
        self.app.wait_for_input(self.count)
        self.app.wait_for_lane("status", self.published)

    def start_faulty(self, *faults: str) -> None:
        """Start the app with faults; it stores what it tries to write."""
        self.app.start([*FAULTY_APP, "--capture", str(self.capture), *faults])

    def alerts_of(self, rules: Sequence[RuleUnderTest]) -> list[Alert]:
        """Return the alerts of these rules."""
        ids = {rule.id for rule in rules}
        return [alert for alert in self.outputs.alerts() if alert["rule"] in ids]

    def check_against(self, rules: Sequence[RuleUnderTest], sent: Sequence[Sent] | None = None) -> None:
        """Check that the alerts of these rules equal the oracle's row for row, and that each rule has some."""
        found, expected = self.alerts_of(rules), Oracle(rules).run(self.sent if sent is None else sent)
        assert repeated_alerts(found) == []
        check_same(found, expected)
        assert {str(a["rule"]) for a in found} == {rule.id for rule in rules}, "every rule fired"

    def check_counts(self) -> None:
        """Check input = processed + dead letters + late, by the topics and by the reports of the app."""
        dead, late = len(self.outputs.read("deadletters")), len(self.outputs.read("late"))
        processed = self.app.events - self.app.lane("late")
        assert (dead, late) == (self.app.lane("deadletters"), self.app.lane("late"))
        assert self.count == processed + dead + late


def new_scene(
    folder: Path,
    kafka: KafkaSettings,
    jars: Path,
    name: str,
    *,
    deduplicate: str | None = None,
    **settings: object,
) -> Scene:
    """Create an app and its topics; it is not started. One event keeps ``probe`` from holding the watermark back.

    ``deduplicate``: of stream ``orders``. ``settings`` are those of the rules app.
    """
    files = orders.write_streams(folder / "streams", deduplicate)
    document: dict[str, object] = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "streams": [
            {"schema_file": str(files[0]), "topic": f"{name}.orders", "reject_extra_fields": True},
            {"schema_file": str(files[1]), "topic": f"{name}.probe"},
        ],
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "spark"),
        "max_out_of_orderness_ms": orders.DISORDER_MS,
        # No partition is ever taken for idle: then late and final depend on the events alone.
        "idle_timeout_ms": 24 * orders.HOUR_MS,
    }
    document |= settings
    inputs = [TopicSpec(f"{name}.orders", orders.PARTITIONS), TopicSpec(f"{name}.probe", 1)]
    ensure_topics(kafka, [*inputs, *SERVICE.topics(RulesSettings.model_validate(document))])
    scene = Scene(kafka, AppUnderTest(folder, document))
    scene.send_raw(scene.probe_topic, [(None, Order(0, orders.LAST_MS, orders.TICK, orders.TICK).value)])
    return scene


def check_same(found: Sequence[Alert], expected: Sequence[Alert]) -> None:
    """Check that both hold the same alerts, each as often; the message shows some of the differences."""
    missing, extra = Counter(rows(expected)) - Counter(rows(found)), Counter(rows(found)) - Counter(rows(expected))
    some = "\n".join([*(f"- {row}" for row in sorted(missing)[:5]), *(f"+ {row}" for row in sorted(extra)[:5])])
    count = f"of {len(expected)} alerts {missing.total()} are missing and {extra.total()} are too many"
    assert not missing | extra, f"{count}:\n{some}"
