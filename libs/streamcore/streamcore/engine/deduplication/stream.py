"""A stream whose repeated events an app removes. Imports little: the driver has no frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamcore.kernel import DEDUPLICATION, StreamKey
from streamcore.schema import StreamSchema

if TYPE_CHECKING:
    import polars as pl

    from streamcore.wire.lanes import Record

#: The routes of the rows that the stage gets, and of its verdicts. The routes of an app's own exchanges are from 0.
_ROUTE, _VERDICTS = -1, -2
#: The column with the hash of an id: ``streamcore.state.table.HASH``, whose module the driver does not load.
ID_HASH = "__hash"
#: Turns late events into records. Arguments: the index of the source; the events, with ``LATE_REASON`` and
#: ``LATENESS_MS``; the watermark in milliseconds.
WriteLate = Callable[[int, "pl.DataFrame", int], "Sequence[Record]"]


@dataclass(frozen=True, slots=True)
class DeduplicatedStream:
    """A stream of the stage. ``source``: its index. ``groups``: the watermark groups of the app that it is in.
    ``keys``: the exchanges that bring its events to an app without a stateless stage."""

    source: int
    schema: StreamSchema
    groups: tuple[int, ...]
    keys: tuple[StreamKey, ...]

    @property
    def rows(self) -> StreamKey:
        """The name of the exchange that brings its events, or their hashes, to the stage."""
        return StreamKey(self.schema.name, _ROUTE)

    @property
    def verdicts(self) -> StreamKey:
        """The name of the exchange that brings the verdicts to all shards behind the stage."""
        return StreamKey(self.schema.name, _VERDICTS)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the id."""
        assert self.schema.event_id is not None, "the schema requires it"
        return (self.schema.event_id,)

    @property
    def operator(self) -> str:
        """The name of its operator, to which the state belongs."""
        return f"{DEDUPLICATION}-{self.schema.name}"
