"""The ETL app: event topics in; clean rows out, to Kafka lanes and to tables.

::

    <topic 1> ─▶ map, validate ─┐
    <topic 2> ─▶ map, validate ─┼─▶ look up ─▶ deduplicate ─▶ derive ─▶ mask, route ─┬─▶ <app>.<route>   (Kafka)
    ...              │          ┘      │            │           ▲ │           │      └─▶ rows of a table (a sink)
                     ▼                 ▼            ▼           │ ▼           ▼
                     <app>.deadletters: reason, and the record's own bytes    │
    <app>.control: lists ───────────────────────────────────────┘ replies ─▶ <app>.status
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate_etl.live_documents import documents_at_start
from headgate_etl.settings import EtlSettings
from headgate_etl.topology import build_topology
from streamcore.app import App, Source
from streamcore.schema.published_document import PublishedDocument
from streamcore.service.config.sinks import sink_factories

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime


def build_app(settings: EtlSettings) -> App:
    """Build the app, without sinks or runtime."""
    in_files = tuple(
        each.apply_to(Source(each.stream_schema(), each.topic, format=each.input_format())) for each in settings.inputs
    )
    return _build(settings, in_files, ())


def _build(settings: EtlSettings, in_files: tuple[Source, ...], published: Sequence[PublishedDocument]) -> App:
    """Build the app with the documents that were published while it ran. The files are read once: later changes of
    them are for the next start."""
    documents = documents_at_start(settings, in_files, published)
    return replace(documents.app(), rebuild=partial(_build, settings, in_files))


def create_runner(settings: EtlSettings, runtime: Runtime, listeners: Listeners) -> Runner:
    """Create the runner of the app and its sinks."""
    from streamcore.service.build_runner import (
        build_runner,
    )  # loads Spark, which an app that is only built does not need

    sinks = sink_factories(settings, build_topology(settings).table_columns)
    return build_runner(build_app(settings), settings, runtime, listeners, sinks)


__all__: Sequence[str] = ("build_app", "build_topology", "create_runner")
