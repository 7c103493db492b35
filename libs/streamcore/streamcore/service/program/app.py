"""The app of a program: its topology, bound to topics by the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from streamcore.app import App, Source
from streamcore.engine.report import Listeners
from streamcore.errors import ConfigError
from streamcore.files.listing import FileInput
from streamcore.service.build_runner import build_runner
from streamcore.service.config.sinks import sink_factories
from streamcore.service.live_documents import StreamDocuments, build_with_streams
from streamcore.service.program.reference import Program, takes_documents
from streamcore.service.program.settings import ProgramSettings, ProgramStream
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.topology.stream import use_schemas
from streamcore.topology.topology import Topology
from streamcore.wire.lanes import STATUS


@dataclass(frozen=True, slots=True)
class ProgramApp:
    """The ``AppFactory`` of a program."""

    program: Program

    def build_app(self, settings: ProgramSettings) -> App:
        """See ``AppFactory``."""
        topology = self.program.topology(settings)
        app = bind_topics(topology, settings)
        if not takes_documents(self.program, topology):
            return app
        return build_with_streams(app.sources, partial(_build_with, self.program, settings))

    def create_runner(self, settings: ProgramSettings, runtime: Runtime, listeners: Listeners) -> Runner:
        """See ``AppFactory``."""
        topology = self.program.topology(settings)
        sinks = sink_factories(settings, topology.table_columns)
        return build_runner(self.build_app(settings), settings, runtime, listeners, sinks)


def _build_with(program: Program, settings: ProgramSettings, documents: StreamDocuments) -> App:
    with use_schemas(source.schema for source in documents.sources):
        topology = program.topology(settings)
    return bind_topics(topology, settings, documents)


def bind_topics(topology: Topology, settings: ProgramSettings, documents: StreamDocuments | None = None) -> App:
    """Make an app of the topology, with a topic for each of its streams and lanes. The settings name the app.

    ``documents``: decides about those that are published while it runs.
    """
    names = [source.stream.name for source in topology.sources]
    if unknown := sorted(settings.streams.keys() - set(names)):
        raise ConfigError(f"streams: topology {topology.name} has no stream {unknown[0]!r}; it has {', '.join(names)}")
    app = topology.app(
        topics={name: settings.topic(name) for name in names},
        lanes={lane: settings.lane_topic(lane) for lane in (*topology.lanes, STATUS)},
        control_topic=settings.control_topic,
        shards=settings.shards,
        limits=settings.limits,
        documents=documents,
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
