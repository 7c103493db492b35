"""Adds the stage of the deduplication to an app. Imports little: the driver has no frames."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamcore.app import App
from streamcore.engine.deduplication.stream import ID_HASH, DeduplicatedStream, WriteLate
from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, StatelessStageFactory, StreamKey

if TYPE_CHECKING:
    from streamcore.engine.deduplication.kernel import (
        DeduplicationKernel,
        DuplicateFilter,
        EventRouter,
        IdKernel,
        IdRouter,
    )
    from streamcore.engine.ingest import KeyRouter


def add_deduplication(app: App, write_late: WriteLate) -> App:
    """Return the app with a stage for its streams with ``deduplicate``, or the app itself if it has none.

    Raise ``ConfigError`` if a step assigns times to the events of such a stream. ``write_late`` can be pickled.
    """
    indexes = [n for n, schema in enumerate(app.schemas) if schema.deduplicate_ms is not None]
    if not indexes:
        return app
    if derived := [one.source for one in app.derived_sources if one.source in indexes]:
        raise ConfigError(
            f"stream {app.schemas[derived[0]].name}: deduplicate: a step assigns times to its events; it runs before "
            "the first key, and this is one; leave deduplicate out, or let another app assign the times"
        )
    streams = tuple(
        DeduplicatedStream(
            n,
            app.schemas[n],
            tuple(number for number, group in enumerate(app.watermark_groups) if n in group),
            app.routes[n],
        )
        for n in indexes
    )
    routes_by_key = app.stateless_stage is None and all(exchange.stage == 0 for exchange in app.exchanges)
    if routes_by_key and all(stream.keys for stream in streams):
        return _send_ids(app, streams, write_late)
    return _send_events(app, streams, write_late)


def _send_ids(app: App, streams: tuple[DeduplicatedStream, ...], write_late: WriteLate) -> App:
    """Send hashes of the events to the deduplication, and the events around it to the stages of the app."""
    ids = [Exchange(stream.rows, (ID_HASH,), as_table=True, hashed=True) for stream in streams]
    verdicts = [Exchange(stream.verdicts, (), stage=1, broadcast=True, as_table=True) for stream in streams]
    own = [replace(exchange, stage=exchange.stage + 1, direct=exchange.stage == 0) for exchange in app.exchanges]
    return replace(
        app,
        stages=(IdStage(streams, app.limits.max_event_ids), *app.stages),
        stateless_stage=IdHead(app.routes, streams),
        exchanges=(*ids, *verdicts, *own),
        event_filter=DuplicateFilterFactory(streams, write_late),
    )


def _send_events(app: App, streams: tuple[DeduplicatedStream, ...], write_late: WriteLate) -> App:
    """Send the events through the deduplication, and run the app's own stateless stage behind it: what this writes
    without a key must not see an event twice."""
    head = app.stateless_stage or KeyRouting(app.routes)
    exchanges = [Exchange(stream.rows, stream.key, as_table=True) for stream in streams]
    return replace(
        app,
        stages=(DeduplicationStage(streams, app.limits.max_event_ids, head, write_late), *app.stages),
        stateless_stage=DeduplicationHead(streams, head),
        exchanges=(
            *exchanges,
            *(replace(exchange, stage=exchange.stage + 1, direct=False) for exchange in app.exchanges),
        ),
        reads_of_all_stages=False,
    )


@dataclass(frozen=True, slots=True)
class IdHead:
    """Makes the stateless stage of such an app: it routes events, and hashes of those of these streams."""

    routes: tuple[tuple[StreamKey, ...], ...]
    streams: tuple[DeduplicatedStream, ...]

    def __call__(self) -> IdRouter:
        from streamcore.engine.deduplication.kernel import IdRouter

        return IdRouter(self.routes, self.streams)


@dataclass(frozen=True, slots=True)
class IdStage:
    """Makes the kernel of the stage on a worker."""

    streams: tuple[DeduplicatedStream, ...]
    max_ids: int

    def __call__(self) -> IdKernel:
        from streamcore.engine.deduplication.kernel import IdKernel

        return IdKernel(self.streams, self.max_ids)


@dataclass(frozen=True, slots=True)
class DuplicateFilterFactory:
    """Makes the event filter behind the stage on a worker."""

    streams: tuple[DeduplicatedStream, ...]
    write_late: WriteLate

    def __call__(self) -> DuplicateFilter:
        from streamcore.engine.deduplication.kernel import DuplicateFilter

        return DuplicateFilter(self.streams, self.write_late)


@dataclass(frozen=True, slots=True)
class DeduplicationHead:
    """Makes the stateless stage of such an app: it sends the events of these streams to the deduplication as they are,
    and does with others what the app does."""

    streams: tuple[DeduplicatedStream, ...]
    head: StatelessStageFactory

    def __call__(self) -> EventRouter:
        from streamcore.engine.deduplication.kernel import EventRouter

        return EventRouter({stream.source: stream.rows for stream in self.streams}, self.head())


@dataclass(frozen=True, slots=True)
class DeduplicationStage:
    """Makes the kernel of the stage on a worker."""

    streams: tuple[DeduplicatedStream, ...]
    max_ids: int
    head: StatelessStageFactory
    write_late: WriteLate

    def __call__(self) -> DeduplicationKernel:
        from streamcore.engine.deduplication.kernel import DeduplicationKernel

        return DeduplicationKernel(self.streams, self.max_ids, self.head(), self.write_late)


@dataclass(frozen=True, slots=True)
class KeyRouting:
    """Makes the stateless stage of an app that has none of its own."""

    routes: tuple[tuple[StreamKey, ...], ...]

    def __call__(self) -> KeyRouter:
        from streamcore.engine.ingest import KeyRouter

        return KeyRouter(self.routes)
