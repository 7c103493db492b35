"""Adds the stage of the deduplication to an app. Imports little: the driver has no frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamcore.app import App
from streamcore.engine.deduplication.stream import DeduplicatedStream
from streamcore.errors import ConfigError
from streamcore.kernel import Exchange, StatelessStageFactory

if TYPE_CHECKING:
    import polars as pl

    from streamcore.engine.deduplication.kernel import DeduplicationKernel, EventRouter
    from streamcore.engine.ingest import KeyRouter
    from streamcore.schema import StreamSchema
    from streamcore.wire.lanes import Record

#: Turns late events into records. Arguments: the index of the source; the events, with ``LATE_REASON`` and
#: ``LATENESS_MS``; the watermark in milliseconds.
WriteLate = Callable[[int, "pl.DataFrame", int], "Sequence[Record]"]


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
    head = app.stateless_stage or KeyRouting(app.schemas)
    streams = tuple(
        DeduplicatedStream(
            n, app.schemas[n], tuple(number for number, group in enumerate(app.watermark_groups) if n in group)
        )
        for n in indexes
    )
    exchanges = [Exchange(stream.rows, stream.key, as_table=True) for stream in streams]
    return replace(
        app,
        stages=(DeduplicationStage(streams, app.limits.max_event_ids, head, write_late), *app.stages),
        stateless_stage=DeduplicationHead(streams, head),
        exchanges=(*exchanges, *(replace(exchange, stage=exchange.stage + 1) for exchange in app.exchanges)),
    )


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

    schemas: tuple[StreamSchema, ...]

    def __call__(self) -> KeyRouter:
        from streamcore.engine.ingest import KeyRouter

        return KeyRouter(self.schemas)
