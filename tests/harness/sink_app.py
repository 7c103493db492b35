"""An app that writes what it reads into a sink, for tests that harm both: ``-m tests.harness.sink_app --settings F``.

Its one lane, ``rows``, has the columns of ``tests.harness.changes``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamcore.service.delta import DeltaDocument
from streamcore.service.main import run_service
from streamcore.service.opensearch import OpenSearchDocument
from streamcore.service.postgres import PostgresDocument
from streamcore.service.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.sinks.sink import SinkFactory
    from streamcore.spark.runner import Listeners, Runner
    from streamcore.spark.start import Start
    from streamcore.topology.topology import Topology

LANE = "rows"


class SinkAppSettings(ServiceSettings):
    """``topic``: of the changes. One of the three sinks."""

    topic: str
    postgres: PostgresDocument | None = None
    delta: DeltaDocument | None = None
    opensearch: OpenSearchDocument | None = None


def topology(name: str) -> Topology:
    """From the topic to the lane."""
    from streamcore.schema import StreamSchema
    from streamcore.topology.stream import source
    from streamcore.topology.topology import Topology

    fields = {
        "id": "string not null",
        "n": "long not null",
        "amount": "decimal(12,2)",
        "text": "string",
        "deleted": "boolean",
        "ts": "timestamp not null",
    }
    schema = StreamSchema.parse({"name": "changes", "event_time": "ts", "keys": [["id"]], "fields": fields})
    return Topology(name, source(schema).table(LANE))


def build(settings: SinkAppSettings, start: Start, listeners: Listeners) -> Runner:
    """Put it together."""
    from streamcore.service.running import build_runner

    written = topology(settings.app)
    app = written.app(
        topics={"changes": settings.topic},
        lanes={lane: settings.lane_topic(lane) for lane in written.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    return build_runner(app, settings, start, listeners, [_sink(settings, written)])


def _sink(settings: SinkAppSettings, written: Topology) -> SinkFactory:
    documents = (settings.postgres, settings.delta, settings.opensearch)
    (document,) = (one for one in documents if one is not None)
    factory: SinkFactory = document.factory(written.table_columns)
    return factory


def _build() -> Callable[[SinkAppSettings, Start, Listeners], Runner]:
    return build


def main() -> int:
    """Run it."""
    return run_service("sink-app", SinkAppSettings, _build)


if __name__ == "__main__":
    sys.exit(main())
