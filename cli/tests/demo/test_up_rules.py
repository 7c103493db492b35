"""The rules that `headgate up` publishes, and those that it finds in the control topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.console.timeline import Timeline
from headgate.demo.services.rules import RulesService
from headgate.demo.stack import DemoStack, StackSettings
from headgate.rules.bundle import read_bundle, shipped_rules
from headgate.rules.history import published_rules
from headgate.rules.publish import AppTopics, ChangeNote, publish, release_changes
from rulecore.documents.rule import Rule
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics

pytestmark = pytest.mark.kafka


class Shop(DemoStack):
    """A stack that can prepare the start of its app several times."""

    def prepare(self) -> None:
        """Prepare topics and rules as ``start`` does."""
        self.service.preload()
        self._open_workspace()
        self._prepare()


@dataclass(slots=True)
class Prepared:
    """A workspace and the messages of its start."""

    shop: Shop
    messages: list[str]

    def start(self) -> str:
        """Start, and return the message about rules."""
        self.messages.clear()
        self.shop.prepare()
        return next(line for line in self.messages if line.startswith("rules: "))

    @property
    def rules(self) -> dict[str, Rule]:
        """Return the shipped rules."""
        assert isinstance(self.shop.service, RulesService)
        return {one.rule.id: one.rule for one in self.shop.service.bundle.rules}

    @property
    def published_rules(self) -> dict[str, Rule]:
        """Return the rules of the control topic."""
        return dict(published_rules(self.shop.kafka, self.shop.workspace.names.app))


@pytest.fixture
def prepared(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Prepared]:
    messages: list[str] = []
    service = RulesService(lambda: read_bundle([shipped_rules("shop")]))
    settings = StackSettings(tmp_path / "shop", tmp_path, 0, bootstrap=kafka.bootstrap, seed=1)
    settings.folder.mkdir()
    shop = Shop(service, settings, messages.append, Timeline(messages.append))
    yield Prepared(shop, messages)
    delete_topics(kafka, shop.workspace.names.all)


def test_a_rule_is_published_once(prepared: Prepared) -> None:
    assert prepared.start() == f"rules: 0 were there, {len(prepared.rules)} published"
    assert prepared.start() == f"rules: {len(prepared.rules)} were there, 0 published"
    assert prepared.published_rules == prepared.rules


def test_rules_of_a_release_are_published_and_are_not_published_again(kafka: KafkaSettings, prepared: Prepared) -> None:
    prepared.start()
    topics = AppTopics(prepared.shop.workspace.names.app)
    raised = [rule.model_copy(update={"version": 3}) for rule in prepared.rules.values()][:2]
    publish(kafka, topics, release_changes("raise", raised, ["large-refund"]), ChangeNote("t"), None)
    found = prepared.published_rules
    assert {name: rule.version for name, rule in found.items() if rule.version > 2} == {r.id: 3 for r in raised}
    assert "large-refund" not in found, "the release deleted it"
    assert prepared.start() == f"rules: {len(prepared.rules)} were there, 0 published"
    assert prepared.published_rules == found


def test_a_workspace_with_a_compacted_control_topic_keeps_its_rules(kafka: KafkaSettings, prepared: Prepared) -> None:
    """Earlier versions created the control topic as compacted."""
    prepared.start()
    control, values = prepared.shop.workspace.names.control, {}
    with ControlLog(kafka, control) as log:
        values = {record.key: record.value for record in log.read_log()}
    delete_topics(kafka, [control])
    ensure_topics(kafka, [TopicSpec(control, 1, compacted=True)])
    with ControlLog(kafka, control) as log:
        for key, value in values.items():
            log.publish((key or b"").decode(), value)
    assert prepared.start() == f"rules: {len(values)} were there, 0 published"
    assert any(f"{control} was compacted" in line for line in prepared.messages)
    assert describe(kafka, [control])[control].cleanup_policy == "delete"
    assert prepared.published_rules == prepared.rules
    prepared.start()
    assert not any("compacted" in line for line in prepared.messages)
