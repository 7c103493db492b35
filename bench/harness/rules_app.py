"""Runs the rules app for a measurement: writes its settings, creates its topics, starts its process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.harness.child import Child
from bench.harness.environment import APPEND_TIME, Environment, publish_rules
from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics
from streamcore.wire.lanes import ALERTS, STATUS


@dataclass(frozen=True, slots=True)
class AppUnderTest:
    """A rules app with topics and a checkpoint of its own."""

    environment: Environment
    name: str
    folder: Path
    settings: RulesSettings

    @classmethod
    def prepare(
        cls,
        environment: Environment,
        workload: str,
        topic: str,
        rules: Iterable[tuple[str, bytes]],
        options: Mapping[str, object],
        stream: Mapping[str, object] | None = None,
    ) -> AppUnderTest:
        """Create the topics, write the settings and publish the rules. The broker sets the timestamps of the alerts.

        ``topic``: the events; ``rules``: ids and control records; ``options``: further entries of the settings;
        ``stream``: further entries of the stream file.
        """
        name = environment.new_name(workload)
        folder = environment.run_folder(name)
        document = {
            "app": name,
            "kafka": {"bootstrap": environment.kafka.bootstrap},
            "streams": [{"schema_file": str(environment.schema_file(stream)), "topic": topic}],
            "checkpoint": str(folder / "checkpoint"),
            "jars": str(environment.jars),
            **options,
        }
        path = folder / "settings.json"
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        app = cls(environment, name, folder, SERVICE.load_settings(path))
        alerts = app.settings.lane_topic(ALERTS)
        specs = [
            TopicSpec(
                s.name, s.partitions, s.compacted, s.retention_ms, s.config + (APPEND_TIME if s.name == alerts else ())
            )
            for s in SERVICE.topics(app.settings)
        ]
        ensure_topics(environment.kafka, specs)
        publish_rules(environment.kafka, app.settings.control_topic, rules)
        return app

    def start(self) -> Child:
        """Start the process of the app."""
        return Child(
            "headgate_rules",
            ["--settings", str(self.folder / "settings.json"), "--reports"],
            self.folder / "stderr.log",
        )

    def alerts(self) -> list[Record]:
        """Return all committed alerts. The client that reads shares no code with the client that wrote them."""
        return read_topic(self.environment.kafka, self.settings.lane_topic(ALERTS), limit_ms=600_000)

    def raise_if_rejected(self) -> None:
        """Raise ``RuntimeError`` with the first reason if the app did not accept every rule."""
        answers = [
            orjson.loads(r.value or b"{}") for r in read_topic(self.environment.kafka, self.settings.lane_topic(STATUS))
        ]
        if bad := [a for a in answers if a["status"] != "accepted"]:
            raise RuntimeError(f"{len(bad)} of {len(answers)} rules were not accepted, the first: {bad[0]}")

    def remove(self) -> None:
        """Delete the topics of the app."""
        delete_topics(self.environment.kafka, [s.name for s in SERVICE.topics(self.settings)])
