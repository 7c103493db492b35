"""The rules service: shipped or named rules are published before the first event, and alerts are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.local.services.service import Check, Ground, Screen, Server
from headgate.local.shop.feed import Feed, shop_feed
from headgate.local.shop.settings import ShopSettings
from headgate.local.workspace import Names
from headgate.talk import Say
from headgate_rules.settings import RulesSettings
from streamcore.kafka.control import ControlLog
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS
from streamcore.service.documents import KafkaDocument, StreamDocument

if TYPE_CHECKING:
    from headgate.local.app_process import Figures
    from headgate.local.java import Java
    from headgate.local.stack import Stack
    from headgate.rulebook import Book
    from headgate.timeline import Timeline
    from rulecore.audit import History
    from rulecore.model import Rule
    from streamcore.service.settings import ServiceSettings

_STREAM: Final = "shop"
_NAMES: Final = Names("shop", lanes=(ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS))


@dataclass
class RulesService:
    """``read_book`` reads the rules to publish; it is called while the app starts."""

    read_book: Callable[[], Book]
    name: str = "rules"
    module: str = "headgate_rules"
    names: Names = _NAMES
    _book: Book | None = field(default=None, init=False)

    @property
    def book(self) -> Book:
        """The rules to publish; there are some after ``load``."""
        assert self._book is not None, "load() comes first"
        return self._book

    def load(self) -> None:
        """What reads rules is slow to import."""
        self._book = self.read_book()

    def server(self, folder: Path, java: Java) -> Server | None:  # noqa: ARG002 - Kafka is all it needs
        """None."""
        return None

    def settings(self, ground: Ground) -> RulesSettings:
        """Of the app."""
        from headgate.local.stack import PARALLELISM, RETENTION_MS, SHARDS

        names, schema = ground.shop.names, ground.streams / f"{_STREAM}.yaml"
        return RulesSettings(
            app=names.app,
            kafka=KafkaDocument(bootstrap=ground.kafka.bootstrap),
            streams=(StreamDocument(schema_file=schema.absolute(), topic=names.events, reject_extra_fields=True),),
            checkpoint=ground.shop.checkpoint,
            jars=ground.jars,
            local_dir=ground.shop.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
        )

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """What the app writes, and its control topic."""
        from headgate_rules.topics import topics

        assert isinstance(settings, RulesSettings), "its own settings"
        return topics(settings)

    def forget(self, ground: Ground, say: Say) -> None:
        """All that it has is in Kafka."""

    def prepare(self, ground: Ground, say: Say) -> None:
        """Publish the rules that were never accepted, or only in an older version. One that was deleted stays so."""
        from rulecore.model import canonical_json

        rules, history = [r.rule for r in self.book.rules], _history(ground.kafka, ground.shop.names, ground.streams)
        missing = [rule for rule in rules if history.newest(rule.id) < rule.version]
        with ControlLog(ground.kafka, ground.shop.names.control) as log:
            for rule in missing:
                log.publish(rule.id, canonical_json(rule))
        say(f"rules: {len(rules) - len(missing)} were there, {len(missing)} published")

    def feed(self, names: Names, shop: ShopSettings) -> Feed:
        """The shop's events as they are."""
        return shop_feed(names.events, shop)

    def milestones(self, figures: Figures) -> Mapping[str, bool]:
        """Cut, events, alert."""
        return {
            "first cut": bool(figures.cuts),
            "first events": bool(figures.events),
            "first alert": bool(figures.lanes[ALERTS]),
        }

    def screen(self, stack: Stack, timeline: Timeline) -> Screen:
        """Rules with their matches, and the latest alerts."""
        from headgate.watch import Watch

        return Watch(stack, self.book, timeline)

    def check(self, stack: Stack) -> Check:
        """Alerts by what they are about."""
        from headgate.verify import AlertCheck

        return AlertCheck(stack.kafka, stack.shop, self.book, stack.settings.streams)


def published(kafka: KafkaSettings, names: Names, streams: Path | None = None) -> Mapping[str, Rule]:
    """By id, the newest version that the app has now in any slot."""
    from headgate.history import newest_rules

    return newest_rules(_history(kafka, names, streams))


def _history(kafka: KafkaSettings, names: Names, streams: Path | None) -> History:
    from headgate.history import read_history
    from headgate.publishing import AppTopics

    return read_history(kafka, AppTopics(names.app), streams, int(time.time() * 1000))
