"""A topology: a stream program as one value, defined by its name and its sinks.

It can be printed (``text``, ``mermaid``), planned without running (``plan``), run in this process on tables
(``streamcore.topology.simulation``) and turned into an app for Spark (``app``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamcore.app import App, DerivedSource, Source
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.key_space import DEFAULT_KEY_GROUPS
from streamcore.limits import Limits, StateSettings
from streamcore.topology import render
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.plan import TopologyPlan, plan
from streamcore.wire.lanes import STATUS

if TYPE_CHECKING:
    from streamcore.engine.document_changes import AppDocuments


class Topology(TopologyGraph):
    """A stream program that ends in the ``sinks``. ``ConfigError`` if it cannot run."""

    def app(
        self,
        *,
        topics: Mapping[str, str] | None = None,
        lanes: Mapping[str, str] | None = None,
        control_topic: str | None = None,
        shards: int = 4,
        key_groups: int = DEFAULT_KEY_GROUPS,
        state: StateSettings | None = None,
        limits: Limits | None = None,
        documents: AppDocuments | None = None,
    ) -> App:
        """Return the app that runs the topology.

        ``topics``: Kafka topics by the name of the stream, which is the default. ``lanes``: Kafka topics by lane;
        ``<topology>.<lane>`` by default. ``control_topic``: ``<topology>.control`` by default. ``shards``: a savepoint
        can be restored with any number of them, up to ``key_groups`` (Flink: parallelism and max parallelism).
        ``documents``: decides about those that are published while the app runs, and answers on the status lane.
        """
        from streamcore.topology.dead_letters import LateEventLetters
        from streamcore.topology.kernel import TopologyStage, TopologyStatelessStage

        topics, lanes = topics or {}, lanes or {}
        control_topic = control_topic or f"{self.name}.control"
        names = (*self.lanes, *(() if documents is None or STATUS in self.lanes else (STATUS,)))
        last = max(2, self.levels.count) - 1
        source_topics = tuple(topics.get(node.name, node.name) for node in self.sources)
        app = App(
            name=self.name,
            sources=tuple(
                Source(node.stream, topic, watermark=node.watermark, time=node.time, format=node.format, raw=node.raw)
                for node, topic in zip(self.sources, source_topics, strict=True)
            ),
            control_topic=control_topic,
            lanes={lane: lanes.get(lane, f"{self.name}.{lane}") for lane in names},
            stages=tuple(
                TopologyStage(self, level, source_topics, control_topic, documents if level == last else None)
                for level in range(1, last + 1)
            ),
            stateless_stage=TopologyStatelessStage(self, source_topics, (limits or Limits()).max_future_ms),
            exchanges=tuple(planned.exchange for planned in self.levels.exchanges),
            watermark_groups=self.watermark_groups,
            derived_sources=tuple(DerivedSource(source, node.watermark) for node, source in self.levels.derived),
            lane_sources=self.lane_sources,
            tables=self.tables,
            shards=shards,
            key_groups=key_groups,
            state=state or StateSettings(),
            limits=limits or Limits(),
        )
        return add_deduplication(app, LateEventLetters(app.schemas, app.topics))

    def plan(self) -> TopologyPlan:
        """Return the plan of stages, exchanges and state. Nothing is run."""
        return plan(self)

    def text(self) -> str:
        """Return the graph as text: one line per node, by level, each after its inputs."""
        return render.text(self)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return render.mermaid(self)
