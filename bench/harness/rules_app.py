"""The rules app as the measurements run it: its settings file, its topics, its process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.harness.child import Child
from bench.harness.environment import APPEND_TIME, Place, publish_rules
from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics
from streamcore.wire.lanes import ALERTS, STATUS


@dataclass(frozen=True, slots=True)
class AppUnderTest:
    """One app with a history of its own. ``options`` are further entries of its settings."""

    place: Place
    name: str
    folder: Path
    settings: RulesSettings

    @classmethod
    def prepare(
        cls,
        place: Place,
        workload: str,
        topic: str,
        rules: Iterable[tuple[str, bytes]],
        options: Mapping[str, object],
    ) -> AppUnderTest:
        """Topics, settings and rules; alerts carry the broker's append time."""
        name = place.new_name(workload)
        folder = place.run_folder(name)
        document = {
            "app": name,
            "kafka": {"bootstrap": place.kafka.bootstrap},
            "streams": [{"schema_file": str(place.schema_file()), "topic": topic}],
            "checkpoint": str(folder / "checkpoint"),
            "jars": str(place.jars),
            **options,
        }
        path = folder / "settings.json"
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        app = cls(place, name, folder, SERVICE.load_settings(path))
        alerts = app.settings.lane_topic(ALERTS)
        specs = [
            TopicSpec(
                s.name, s.partitions, s.compacted, s.retention_ms, s.config + (APPEND_TIME if s.name == alerts else ())
            )
            for s in SERVICE.topics(app.settings)
        ]
        ensure_topics(place.kafka, specs)
        publish_rules(place.kafka, app.settings.control_topic, rules)
        return app

    def start(self) -> Child:
        """Its process."""
        return Child("headgate_rules", ["--settings", str(self.folder / "settings.json")], self.folder / "stderr.log")

    def alerts(self) -> list[Record]:
        """All committed alerts, read by a client that shares no code with the one that wrote them."""
        return read_topic(self.place.kafka, self.settings.lane_topic(ALERTS), limit_ms=600_000)

    def raise_if_rejected(self) -> None:
        """``RuntimeError`` with the reasons, should the app not have taken each of the rules."""
        answers = [
            orjson.loads(r.value or b"{}") for r in read_topic(self.place.kafka, self.settings.lane_topic(STATUS))
        ]
        if bad := [a for a in answers if a["status"] != "accepted"]:
            raise RuntimeError(f"{len(bad)} of {len(answers)} rules were not accepted, the first: {bad[0]}")

    def remove(self) -> None:
        """Delete its topics."""
        delete_topics(self.place.kafka, [s.name for s in SERVICE.topics(self.settings)])
