"""A topology as a value: a name and its sinks. Everything else is reached from them.

It can be printed (``text``, ``mermaid``), planned without starting anything (``plan``), run in this process on tables
(``streamcore.topology.simulation``) and made into an app for Spark (``app``).
"""

from __future__ import annotations

from collections.abc import Mapping

from streamcore.app import App, Source
from streamcore.limits import Limits, StateSettings
from streamcore.topology import render
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.plan import TopologyPlan, plan


class Topology(TopologyGraph):
    """``sinks``: where it ends. ``ConfigError`` for a topology that cannot run."""

    def app(
        self,
        *,
        topics: Mapping[str, str] | None = None,
        lanes: Mapping[str, str] | None = None,
        control_topic: str | None = None,
        shards: int = 4,
        state: StateSettings | None = None,
        limits: Limits | None = None,
    ) -> App:
        """Return the app that runs it. ``topics``: by stream, its own name by default; ``lanes``: by lane, the
        topology's name and the lane's by default."""
        from streamcore.topology.kernel import TopologyHead, TopologyStage

        topics, lanes = topics or {}, lanes or {}
        read = tuple(topics.get(node.name, node.name) for node in self.sources)
        return App(
            name=self.name,
            sources=tuple(
                Source(node.stream, topic, watermark=node.watermark, time=node.time, format=node.format, raw=node.raw)
                for node, topic in zip(self.sources, read, strict=True)
            ),
            control_topic=control_topic or f"{self.name}.control",
            lanes={lane: lanes.get(lane, f"{self.name}.{lane}") for lane in self.lanes},
            stages=tuple(TopologyStage(self, level, read) for level in range(1, max(2, self.levels.count))),
            stateless_stage=TopologyHead(self, read),
            exchanges=tuple(sending.exchange for sending in self.levels.exchanges),
            watermark_groups=self.domains,
            tables=self.tables,
            shards=shards,
            state=state or StateSettings(),
            limits=limits or Limits(),
        )

    def plan(self) -> TopologyPlan:
        """Plan stages, exchanges and state, without starting anything."""
        return plan(self)

    def text(self) -> str:
        """Return the graph, a line a node, each after its inputs, by the level on which it runs."""
        return render.text(self)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return render.mermaid(self)
