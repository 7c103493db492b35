"""A stream whose repeated events an app removes. Imports little: the driver has no frames."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.kernel import DEDUPLICATION, StreamKey
from streamcore.schema import StreamSchema

#: The route of the rows that the stage gets. The routes of an app's own exchanges are from 0.
_ROUTE = -1


@dataclass(frozen=True, slots=True)
class DeduplicatedStream:
    """A stream of the stage. ``source``: its index. ``groups``: the watermark groups of the app that it is in."""

    source: int
    schema: StreamSchema
    groups: tuple[int, ...]

    @property
    def rows(self) -> StreamKey:
        """The name of the exchange that brings its events to the stage."""
        return StreamKey(self.schema.name, _ROUTE)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the id."""
        assert self.schema.event_id is not None, "the schema requires it"
        return (self.schema.event_id,)

    @property
    def operator(self) -> str:
        """The name of its operator, to which the state belongs."""
        return f"{DEDUPLICATION}-{self.schema.name}"
