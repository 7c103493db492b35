"""The output of a run of the rules app, computed again in this process: from the topics, cut by cut as the run has read
them, by the code of the app without Spark and without Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.app import CONTROL, App
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kafka.readers import Record, read_topic
from streamcore.offsets import source_partitions
from streamcore.wire.lanes import Record as Output
from tests.harness.apps import orders
from tests.harness.apps.rules_app import Cut
from tests.harness.apps.rules_scene import Scene


def replay(scene: Scene) -> list[Output]:
    """Return the records of all lanes of all cuts."""
    app = build_app(RulesSettings.model_validate({**scene.app.settings, "iceberg": None, "parquet": None}))
    partitions = [source_partitions(n)[p] for n, count in enumerate((orders.PARTITIONS, 1)) for p in range(count)]
    running = InProcessApp(app, partitions=partitions)
    records = {topic: read_topic(scene.kafka, topic) for topic in (*app.topics, app.control_topic)}
    output: list[Output] = []
    before: Mapping[str, Mapping[str, int]] = {}
    for _, cut in sorted({cut.batch: cut for cut in scene.app.reported_cuts}.items()):
        output += running.cut([*_between(app, records, before, cut)], cut.clock_ms)
        before = cut.offsets
    return output


def _between(
    app: App, records: Mapping[str, Sequence[Record]], before: Mapping[str, Mapping[str, int]], cut: Cut
) -> Iterator[RawRecord]:
    """Yield the records that a cut has read."""
    for topic, found in records.items():
        first, end = before.get(topic, {}), cut.offsets[topic]
        source = CONTROL if topic == app.control_topic else app.topics.index(topic)
        for one in found:
            partition = str(one.partition)
            if first.get(partition, 0) <= one.offset < end.get(partition, 0):
                yield RawRecord(source, one.partition, one.offset, one.value, one.key, one.timestamp_ms)
