"""A shop with a running rules app and its console: what a person sees in a browser, on a real broker and real Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import yaml

from headgate.local.servers.base import free_port
from headgate.rules.publish import AppTopics, ChangeNote, ControlChange, publish, release_changes, rule_change
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.rule import Rule
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.servers.console import ConsoleClient, program

_REPOSITORY = Path(__file__).parents[3]
_WAIT_MS = 120_000
SOURCE_PARTITIONS = 2

#: The decision policy of the shop; a stream has one.
POLICY = DecisionPolicy.model_validate(
    {
        "decision_policy": "payments",
        "version": 1,
        "owner": "payments-risk",
        "description": "Blocks a payment at 60 points or on the word of one rule, and sends it to review at 20.",
        "on": "shop",
        "decide": {
            "order": ["block", "review", "allow"],
            "default": "allow",
            "bands": {"review": 20, "block": 60},
        },
        "share": "5%",
    }
)
#: What a rule may do with a payment.
BLOCK = {"severity": "high", "outcome": "block", "score": 30, "message": "{user_id} paid {amount} {currency} at once"}


def payment_rule(rule_id: str, amount: int = 500, version: int = 1, **entries: object) -> Rule:
    """Return a rule that fires for payments from an amount on."""
    document: dict[str, object] = {
        "id": rule_id,
        "version": version,
        "owner": "payments-risk",
        "description": f"A payment of {amount} or more: staff look at it before the goods leave.",
        "tags": ["payments"],
        "on": "shop",
        "where": f"type = 'payment' and status = 'ok' and amount >= {amount}",
        "then": {"severity": "high", "message": "{user_id} paid {amount} {currency} at once"},
        "tests": [
            {
                "name": f"a payment of exactly {amount} fires",
                "events": [{"type": "payment", "user_id": "u1", "currency": "EUR", "status": "ok", "amount": amount}],
                "expect": [{"user_id": "u1"}],
            }
        ],
    }
    return Rule.model_validate({**document, **entries})


@dataclass
class ConsoleShop:
    """``app``: the process; ``server``: the console; ``topic``: the shop's events. ``sent``: the records sent."""

    kafka: KafkaSettings
    app: AppUnderTest
    server: ConsoleServer
    topic: str
    sent: int = 0
    _program: list[ConsoleClient] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the app."""
        return self.app.name

    @property
    def home(self) -> str:
        """Where the console has the app."""
        return f"/apps/{self.name}"

    @property
    def client(self) -> ConsoleClient:
        """A client with a token."""
        if not self._program:
            self._program.append(program(self.server))
        return self._program[0]

    def publish(self, *rules: Rule, why: str = "made by a test") -> None:
        """Publish rules, and wait until the app has accepted them."""
        self._change([rule_change(one) for one in rules], why)

    def publish_others(self, *changes: ControlChange) -> None:
        """Publish decision policies and features, and wait until the app has accepted them."""
        self._change([*changes], "made by a test")

    def release(self, name: str, *rules: Rule) -> None:
        """Publish rules as a release, and wait until the app has accepted it."""
        self._change(release_changes(name, rules, ()), f"release {name}")

    def _change(self, changes: list[ControlChange], why: str) -> None:
        note = ChangeNote("ada@example.org", why)
        done = publish(self.kafka, AppTopics(self.name), changes, note, _WAIT_MS)
        refused = [one for one in done if one.response is None or not one.response.accepted]
        assert not refused, refused

    def pay(self, user: str, amount: object, **entries: object) -> None:
        """Send a payment of a user."""
        self.send(user, {"type": "payment", "user_id": user, "amount": amount, "currency": "EUR", **entries})

    def send(self, user: str, values: Mapping[str, object]) -> None:
        """Send an event of the present moment."""
        self.sent += 1
        now_ms = int(time.time() * 1000)
        event = {"event_id": f"{self.name}-{self.sent}", "ts": now_ms, "status": "ok", "country": "DE", **values}
        producer = clients.producer(self.kafka)
        producer.produce(self.topic, orjson.dumps(event), user.encode())
        producer.flush(10)

    def replayed(self) -> list[bytes]:
        """Return the values of the events that were sent again from dead letters."""
        records = read_topic(self.kafka, self.topic)
        return [one.value or b"" for one in records if one.header("replayed_from") is not None]

    def wait_for(self, condition: object, what: str) -> None:
        """Wait until a condition holds while the app runs."""
        assert callable(condition)
        self.app.wait_for(condition, what)

    def alerts(self, rule: str) -> list[dict[str, object]]:
        """Return the newest live alerts of a rule, as the console's API has them."""
        found: list[dict[str, object]] = self.client.get(f"/api/v1{self.home}/alerts?rule={rule}").json["alerts"]
        return found


@contextmanager
def run_shop(folder: Path, kafka: KafkaSettings, jars: Path, name: str) -> Iterator[ConsoleShop]:
    """Run a rules app on an empty shop, and its console."""
    topic, schema = f"{name}.shop", _REPOSITORY / "streams" / "shop.yaml"
    document: dict[str, object] = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "streams": [{"schema_file": str(schema), "topic": topic, "reject_extra_fields": True}],
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "spark"),
        "shards": 2,
        "parallelism": 1,
        "max_out_of_orderness_ms": 1000,
        "idle_timeout_ms": 2000,
        "telemetry": {"prometheus_port": free_port()},
    }
    lanes = SERVICE.topics(RulesSettings.model_validate(document))
    ensure_topics(kafka, [TopicSpec(topic, SOURCE_PARTITIONS), *lanes])
    file = folder / "app.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(json.loads(json.dumps(document))))
    console = ConsoleSettings(kafka=kafka, apps=(ConsoleApp(name=name, settings=file),), port=0)
    with AppUnderTest(folder, document) as app, running(ConsoleServer(console)) as server:
        app.start()
        shop = ConsoleShop(kafka, app, server, topic)
        shop.pay("u0", 1)
        app.wait_for_cuts(1)
        yield shop
