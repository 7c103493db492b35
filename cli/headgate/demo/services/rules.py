"""The rules service: shipped or named rules are published before the first event, and alerts are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.console.messages import Print
from headgate.demo.service import LiveView, Server, ServiceContext, ServiceRun, Verifier
from headgate.demo.shop.feed import Feed, shop_feed
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.workspace import AppNames
from headgate_rules.settings import RulesSettings
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.service.config.documents import StreamDocument
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

if TYPE_CHECKING:
    from headgate.console.timeline import Timeline
    from headgate.demo.app_process import AppMetrics
    from headgate.local.java import Java
    from headgate.rules.bundle import RuleBundle
    from rulecore.ruleset.history import RuleHistory
    from streamcore.service.config.settings import ServiceSettings

_STREAM: Final = "shop"
_NAMES: Final = AppNames("shop", lanes=(ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS))


@dataclass
class RulesService:
    """``read_bundle`` reads the rules to publish; it is called while the app starts."""

    read_bundle: Callable[[], RuleBundle]
    name: str = "rules"
    module: str = "headgate_rules"
    app_names: AppNames = _NAMES
    _bundle: RuleBundle | None = field(default=None, init=False)

    @property
    def bundle(self) -> RuleBundle:
        """The rules to publish, after ``preload``."""
        assert self._bundle is not None, "call preload() first"
        return self._bundle

    def preload(self) -> None:
        """Read the rules; the modules that do so are slow to import."""
        self._bundle = self.read_bundle()

    def server(self, folder: Path, java: Java) -> Server | None:  # noqa: ARG002 - Kafka is all it needs
        """Return None: Kafka is enough."""
        return None

    def settings(self, context: ServiceContext) -> RulesSettings:
        """Return the app's settings."""
        from headgate.demo.stack import PARALLELISM, RETENTION_MS, SHARDS

        names, schema = context.workspace.names, context.streams / f"{_STREAM}.yaml"
        return RulesSettings(
            app=names.app,
            kafka=KafkaSettings(context.kafka.bootstrap),
            streams=(StreamDocument(schema_file=schema.absolute(), topic=names.events, reject_extra_fields=True),),
            checkpoint=context.workspace.checkpoint,
            jars=context.jars,
            local_dir=context.workspace.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
        )

    def app_topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from headgate_rules.service import SERVICE

        assert isinstance(settings, RulesSettings), "the settings of this service"
        return SERVICE.topics(settings)

    def delete_leftovers(self, context: ServiceContext, print_message: Print) -> None:
        """Do nothing: all data of the service is in Kafka."""

    def prepare(self, context: ServiceContext, print_message: Print) -> None:
        """Publish the rules that were never accepted, or only in an older version. Deleted rules stay deleted."""
        from rulecore.documents.rule import canonical_json

        rules, history = (
            [r.whole for r in self.bundle.rules],
            _history(context.kafka, context.workspace.names, context.streams),
        )
        missing = [rule for rule in rules if history.newest(rule.id) < rule.version]
        with ControlLog(context.kafka, context.workspace.names.control) as log:
            for rule in missing:
                log.publish(rule.id, canonical_json(rule))
        print_message(f"rules: {len(rules) - len(missing)} were there, {len(missing)} published")

    def event_feed(self, names: AppNames, shop: ShopSettings) -> Feed:
        """Return the shop's events unchanged."""
        return shop_feed(names.events, shop)

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return the milestones: cut, events, alert."""
        return {
            "first cut": bool(metrics.cuts),
            "first events": bool(metrics.events),
            "first alert": bool(metrics.lanes[ALERTS]),
        }

    def live_view(self, run: ServiceRun, timeline: Timeline) -> LiveView:
        """Return a view of the rules with their matches, and the latest alerts."""
        from headgate.demo.views.rules_watch import RulesLiveView

        return RulesLiveView(run, self.bundle, timeline)

    def verifier(self, run: ServiceRun) -> Verifier:
        """Return the verifier of the alerts."""
        from headgate.demo.verify.alerts import AlertVerifier

        return AlertVerifier(run.kafka, run.workspace, self.bundle, run.user_streams)


def _history(kafka: KafkaSettings, names: AppNames, streams: Path | None) -> RuleHistory:
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics

    return read_history(kafka, AppTopics(names.app), streams, int(time.time() * 1000))
