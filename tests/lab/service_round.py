"""A round of a service that writes to a store: sessions and etl to PostgreSQL, search to OpenSearch, judged by SQL.

Input, settings and oracle are those of ``tests/faults/test_services_under_faults.py``; the faults are those of the
laboratory, with faults of the store. The clock is not shifted: the output of these services depends on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from headgate.console.messages import silent
from headgate.local.servers.base import Lifetime
from headgate.local.servers.kafka import EmbeddedBroker
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
from streamcore.kafka.settings import KafkaSettings
from tests.harness.faults.services.disk import small_disk
from tests.harness.faults.services.etl import plan_etl
from tests.harness.faults.services.search import plan_search
from tests.harness.faults.services.sessions import plan_sessions
from tests.harness.faults.services.trial import ServicePlan, ServiceScene, new_service_scene
from tests.harness.servers.webhook_receiver import WebhookReceiver, run_receiver
from tests.lab.fault_injector import FaultInjector
from tests.lab.judge import Verdict
from tests.lab.result import RoundResult
from tests.lab.schedule import schedule

_DISK_MB = 256


@dataclass(frozen=True, slots=True)
class ServiceRound:
    """The round of a seed; ``seconds`` of faults while half of the input comes."""

    folder: Path
    broker: EmbeddedBroker
    jars: Path
    result: RoundResult
    seconds: float

    def run(self) -> Verdict:
        """Run the round; ``AssertionError`` says what differs."""
        with run_receiver() as receiver:
            return self._run(self._new_store(), receiver)

    def _run(self, store: EmbeddedPostgres | EmbeddedOpenSearch, receiver: WebhookReceiver) -> Verdict:
        try:
            name = self.folder.name
            kafka = KafkaSettings(self.broker.bootstrap)
            scene = new_service_scene(self.folder, kafka, self.jars, name, self._plan(name, kafka, store, receiver))
            self.result.events = len(scene.plan.records)
            with small_disk(scene.app.checkpoint, _DISK_MB) as disk, scene.app:
                servers = {"broker": self.broker, "store": store}
                self._live(scene, FaultInjector(scene.app, scene.start, servers, disk))
            scene.check()
        finally:
            store.kill()
            if isinstance(store, EmbeddedPostgres):
                store.delete()
        return Verdict()

    def _new_store(self) -> EmbeddedPostgres | EmbeddedOpenSearch:
        folder = self.folder / "store"
        if self.result.subject != "search":
            return EmbeddedPostgres(PostgresServerSettings(folder, lifetime=Lifetime.WITH_PARENT), print_message=silent)
        settings = OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT, short_lived=True)
        return EmbeddedOpenSearch(settings, print_message=silent)

    def _plan(
        self, name: str, kafka: KafkaSettings, store: EmbeddedPostgres | EmbeddedOpenSearch, receiver: WebhookReceiver
    ) -> ServicePlan:
        if isinstance(store, EmbeddedOpenSearch):
            return plan_search(name, store)
        return (
            plan_sessions(self.folder, name, store)
            if self.result.subject == "sessions"
            else plan_etl(self.folder, kafka, name, store, receiver)[0]
        )

    def _live(self, scene: ServiceScene, injector: FaultInjector) -> None:
        injector.begin()
        injector.await_cut("the first start", 0)
        end = time.monotonic() + self.seconds
        steps = schedule(f"{self.result.seed}/{self.result.round}", injector.possible())
        try:
            with scene.feeder.send_at(len(scene.plan.records) / 2 / self.seconds):
                injector.run(steps, lambda: time.monotonic() > end)
        finally:
            self.result.faults, self.result.ends = injector.faults, injector.ends
            self.result.starts = [start.seconds for start in injector.starts]
        scene.feeder.finish()
        scene.settle()
        code = scene.app.drain()
        assert code == 0, f"the drain ended with {code}"
        injector.check_orphans()
