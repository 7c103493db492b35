"""The app of a program: its topology, bound to topics by the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamcore.app import App, Source
from streamcore.engine.report import Listeners
from streamcore.errors import ConfigError
from streamcore.files.listing import FileInput
from streamcore.service.build_runner import build_runner
from streamcore.service.config.sinks import sink_factories
from streamcore.service.program.reference import Program
from streamcore.service.program.settings import ProgramSettings, ProgramStream
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class ProgramApp:
    """The ``AppFactory`` of a program."""

    program: Program

    def build_app(self, settings: ProgramSettings) -> App:
        """See ``AppFactory``."""
        return bind_topics(self.program.topology(settings), settings)

    def create_runner(self, settings: ProgramSettings, runtime: Runtime, listeners: Listeners) -> Runner:
        """See ``AppFactory``."""
        topology = self.program.topology(settings)
        sinks = sink_factories(settings, topology.table_columns)
        return build_runner(bind_topics(topology, settings), settings, runtime, listeners, sinks)


def bind_topics(topology: Topology, settings: ProgramSettings) -> App:
    """Make an app of the topology, with a topic for each of its streams and lanes. The settings name the app."""
    names = [source.stream.name for source in topology.sources]
    if unknown := sorted(settings.streams.keys() - set(names)):
        raise ConfigError(f"streams: topology {topology.name} has no stream {unknown[0]!r}; it has {', '.join(names)}")
    app = topology.app(
        topics={name: settings.topic(name) for name in names},
        lanes={lane: settings.lane_topic(lane) for lane in topology.lanes},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
    )
    sources = tuple(_bind_source(source, settings.stream(source.schema.name)) for source in app.sources)
    return replace(app, name=settings.app, sources=sources)


def _bind_source(source: Source, stream: ProgramStream) -> Source:
    files = None if stream.files is None else FileInput(stream.files, stream.header)
    live = files is None or stream.then_topic
    return replace(
        source,
        reject_extra_fields=stream.reject_extra_fields,
        reject_other_records=stream.reject_other_records,
        files=files,
        live=live,
    )
