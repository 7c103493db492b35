"""What tests of the console share: rules, events and lists with hostile texts, an app that ran once with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics
from headgate.web.server import ConsoleServer
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.status import as_reply, status_record
from rulecore.lists.records import ListHead, list_records
from rulecore.lists.routing import is_list
from rulecore.lists.store import ListStore
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import replay_stream
from streamcore.engine.publication import is_stream
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import Follower
from streamcore.kafka.settings import KafkaSettings
from streamcore.kernel import ControlRecord
from tests.harness.apps.explained_app import START, Event, ExplainedApp, run_app
from tests.harness.servers.console import ConsoleClient

HOSTILE = "<img src=x onerror=alert(1)>\"'`{{7*7}}</script><script>alert(1)</script>"
LARGE = "type = 'payment' and amount > 100"


def rule(rule_id: str, version: int = 1, **entries: object) -> Rule:
    then = {"severity": "high", "message": "{user_id} paid {amount}", "outcome": "review", "score": 40}
    document = {"id": rule_id, "version": version, "owner": HOSTILE, "on": "shop", "then": then, "where": LARGE}
    test = {"name": HOSTILE, "events": [{"type": "payment", "user_id": "u1", "amount": 101}], "expect": [{}]}
    return Rule.model_validate({**document, "description": HOSTILE, "tags": [HOSTILE], "tests": [test], **entries})


def decision_policy(name: str, version: int = 1, **entries: object) -> DecisionPolicy:
    decide = {"order": ["block", "review", "allow"], "default": "allow", "bands": {"review": 30, "block": 80}}
    document = {"decision_policy": name, "version": version, "owner": HOSTILE, "description": HOSTILE, "on": "shop"}
    return DecisionPolicy.model_validate({**document, "decide": decide, **entries})


def published_feature(name: str, version: int = 1, **entries: object) -> PublishedFeature:
    document = {"feature": name, "version": version, "owner": HOSTILE, "description": HOSTILE, "on": "shop"}
    value = {"by": ["user_id"], "of": "sum(amount)", "within": {"sliding": "30d", "every": "1h"}}
    return PublishedFeature.model_validate({**document, **value, **entries})


def event(number: int, user: str = "u1", amount: float = 150) -> dict[str, object]:
    time_ms = START + number * 1000
    return {"event_id": f"e{number}", "ts": time_ms, "type": "payment", "user_id": user, "amount": amount}


def write_rule(one: Rule) -> str:
    """Return a rule as YAML that a person might write."""
    return canonical_json(one).decode()


@dataclass(frozen=True)
class Shown:
    """An app, its console, and clients of it."""

    app: ExplainedApp
    server: ConsoleServer
    program: ConsoleClient
    browser: ConsoleClient

    @property
    def api(self) -> str:
        """Where the API has the app."""
        return f"/api/v1/apps/{self.app.name}"

    @property
    def pages(self) -> str:
        """Where the pages of the app are."""
        return f"/apps/{self.app.name}"


def send_alert(kafka: KafkaSettings, app: str, body: bytes, key: bytes) -> None:
    """Write a record to the alerts of an app."""
    producer = clients.producer(kafka)
    producer.produce(f"{app}.alerts", body, key)
    producer.flush(10)


def run_hostile_app(kafka: KafkaSettings, name: str) -> ExplainedApp:
    """Run an app: three alerts and decisions, one of a hostile user, a dead letter, a list, a rejected rule."""
    head = ListHead.model_validate(
        {"list": "denied", "version": 1, "owner": HOSTILE, "of": "string", "description": HOSTILE}
    )
    controls = [
        *list_records(head, [[HOSTILE]]),
        ("feature/usual", encode_feature(published_feature("usual"))),
        ("decision-policy/guard", encode_policy(decision_policy("guard"))),
        ("seen", canonical_json(rule("seen"))),
        ("past", canonical_json(rule("past", group_by=["user_id"], features=["usual"], where="usual > 1e9", tests=[]))),
        ("wrong", b'{"id": "wrong", "version": 1, "owner": "<b>x</b>"}'),
    ]
    events: list[Event] = [event(0), event(1, HOSTILE), event(2, "u2"), b"{" + HOSTILE.encode()]
    return run_app(kafka, name, controls, events)


@contextmanager
def answering(kafka: KafkaSettings, app: str) -> Iterator[None]:
    """Answer control records as the kernel does."""
    topics, stop = AppTopics(app), threading.Event()

    def answer() -> None:
        rules, lists, producer = RuleSet.empty(load_streams()), ListStore.empty(), clients.producer(kafka)
        with Follower(kafka, [topics.control]) as follower:
            while not stop.is_set():
                for r in follower.poll(20):
                    record = ControlRecord(r.partition, r.offset, r.key, r.value)
                    if is_list(record):
                        lists, one = lists.apply((r.key or b"").decode(), r.value, rules.rules_using_list)
                        rules, statuses = rules.with_lists(lists.types()), [as_reply(one, record, rules.epoch)]
                    elif is_stream(record):
                        rules, one = replay_stream(rules, record, len(r.value or b""))
                        statuses = [one]
                    else:
                        rules, answers = rules.apply([record], r.timestamp_ms)
                        statuses = [*answers]
                    for status in statuses:
                        producer.produce(topics.status, status_record(status).value, status.name.encode())
                producer.flush(10)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
