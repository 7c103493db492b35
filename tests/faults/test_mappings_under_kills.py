"""SIGKILL around the cut that accepts the mapping of an etl app: the app has it in the same cut as without the kill."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.main import run
from headgate_etl.live_documents import to_document
from headgate_etl.settings import EtlSettings
from streamcore.engine.publication import AppPublication
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps import orders
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.faults.faulty_app import read_attempts
from tests.harness.oracles.lane_reader import Outputs, as_object, batch_of

PER_CUT = 300
NOW_MS = 1_790_000_000_000
STREAM: dict[str, Any] = {
    "name": "orders",
    "event_time": "at",
    "keys": [["id"]],
    "fields": {"id": "string not null", "at": "timestamp not null"},
}
#: The document of each version: which value its rows have. From version 2 on the stream has a field more.
MAPS: dict[int, str] = {1: "'one'", 2: "coalesce(coupon, 'two')", 3: "concat('three-', coupon)"}

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]


@dataclass(slots=True)
class EtlScene:
    """An etl app with its topic. ``sent``: how many records."""

    folder: Path
    kafka: KafkaSettings
    app: AppUnderTest
    sent: int = 0

    @property
    def topic(self) -> str:
        """The topic of its orders."""
        return f"{self.app.name}.orders"

    def write(self, version: int, **more: object) -> Path:
        """Write the settings of a version with its stream, and return the file."""
        fields = {**STREAM["fields"], "coupon": "string"} if version > 1 else STREAM["fields"]
        stream, file = self.folder / f"orders-{min(version, 2)}.yaml", self.folder / f"etl-{version}.yaml"
        stream.write_text(yaml.safe_dump({**STREAM, "version": min(version, 2), "fields": fields}, sort_keys=False))
        inputs = [{"schema_file": str(stream), "topic": self.topic, "map": {"id": "id", "value": MAPS[version]}}]
        document = {**self.app.settings, "version": version, "inputs": inputs, **more}
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return file

    def send(self, numbers: Sequence[int]) -> None:
        """Send orders to one partition; those with an even number have a coupon."""
        values = [
            json.dumps({"id": str(n), "at": NOW_MS + n} | ({} if n % 2 else {"coupon": "c"})).encode() for n in numbers
        ]
        orders.send_raw(self.kafka, self.topic, [(None, value) for value in values])
        self.sent += len(values)

    def start(self, *faults: str) -> None:
        """Start the app with faults; it stores what it tries to write."""
        more = ("--module", "headgate_etl.service", "--capture", str(self.folder / "attempts"), *faults)
        self.app.start(["-m", "tests.harness.faults.faulty_app", *more])

    def publish(self, file: Path) -> None:
        """Publish a settings file, as the command does."""
        settings = EtlSettings.model_validate(yaml.safe_load(file.read_text()))
        streams = [yaml.safe_load(each.schema_file.read_text()) for each in settings.inputs]
        record = AppPublication(self.app.name, to_document(settings, streams))
        with ControlLog(self.kafka, f"{self.app.name}.control") as log:
            log.publish(record.key, record.encode())


@pytest.fixture
def scene(tmp_path: Path, kafka: KafkaSettings, spark_jars: Path) -> Iterator[EtlScene]:
    name = "live-mapping"
    settings: dict[str, object] = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "checkpoint": str(tmp_path / "checkpoint"),
        "jars": str(spark_jars),
        "local_dir": str(tmp_path / "tmp"),
        "shards": 2,
        "parallelism": 1,
        "events_per_cut": PER_CUT,
        "model": {"id": "string not null", "value": "string"},
        "id": ["id"],
        "deduplicate": {"horizon_ms": 86_400_000},
        "routes": [{"name": "clean"}],
    }
    made = EtlScene(tmp_path, kafka, AppUnderTest(tmp_path / "app", settings))
    made.app.settings = yaml.safe_load(made.write(1).read_text())
    ensure_topics(kafka, [TopicSpec(made.topic, 1), control_topic(f"{name}.control")])
    with made.app:
        yield made


def test_a_mapping_is_in_force_from_one_cut_on_whatever_is_killed(
    scene: EtlScene, capsys: pytest.CaptureFixture[str]
) -> None:
    app = scene.app
    # 1. The app dies in the cut that accepts the mapping, after it is in the checkpoint, before the output.
    scene.publish(scene.write(2))
    scene.send(range(5 * PER_CUT))
    scene.start("--die", "before_commit", "--when", "clean")
    assert app.wait_for_end() < 0, "it died by the signal"
    # 2. It goes on, and earlier orders come again. (A death between Kafka's commit and Spark's is in
    # test_streams_under_kills.py: what keeps a published document is the same.)
    scene.start()
    scene.send([*range(0, 5 * PER_CUT, 7), *range(5 * PER_CUT, 6 * PER_CUT)])
    app.wait_for_lane("clean", 6 * PER_CUT)
    # 3. The command gets its answers from the running app.
    target = ["--bootstrap", scene.kafka.bootstrap]
    other = scene.write(3, id=["value"])
    assert run(["etl", "publish", str(other), *target]) == 1
    assert run(["etl", "publish", str(scene.write(3)), *target]) == 0
    scene.send(range(6 * PER_CUT, 7 * PER_CUT))
    app.wait_for_lane("clean", 7 * PER_CUT)
    assert app.drain() == 0
    outputs = Outputs(scene.kafka, app.name)
    answers = [(as_object(record), batch_of(record)[1]) for record in outputs.read("status")]
    assert [(one["version"], one["status"]) for one, _ in answers] == [
        (2, "accepted"),
        (None, "rejected"),
        (3, "accepted"),
    ]
    shown = capsys.readouterr().out
    assert "id would be another" in shown
    assert f"accepted   {app.name} version 3 from batch {answers[2][1]} on\n" in shown
    check_rows(outputs, answers[0][1], answers[2][1])
    attempts = read_attempts(scene.folder / "attempts")
    repeated = [texts for texts in attempts.values() if len(texts) > 1]
    assert repeated, "the cut ran again"
    assert all(len(set(texts)) == 1 for texts in repeated), "with the same bytes, in the same order"


def check_rows(outputs: Outputs, second: int, third: int) -> None:
    """Check that each order is there once, by the mapping that its cut has. ``second``, ``third``: the first batches
    with these versions."""
    found = [(as_object(record), batch_of(record)[1]) for record in outputs.read("clean")]
    versions: Counter[int] = Counter()
    for row, batch in found:
        version = 1 + (batch >= second) + (batch >= third)
        has_coupon = int(str(row["id"])) % 2 == 0
        expected = {1: "one", 2: "c" if has_coupon else "two", 3: "three-c" if has_coupon else None}[version]
        assert row["value"] == expected, f"of batch {batch}"
        versions[version] += 1
    assert sorted(int(str(row["id"])) for row, _ in found) == list(range(7 * PER_CUT)), "each order once"
    assert not outputs.read("deadletters")
    assert versions[1] >= PER_CUT, "those of the cut that accepts the mapping, too"
    assert versions[2] >= PER_CUT
    assert versions[3] > 0
