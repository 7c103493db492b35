"""The contract of an operator: one stateful step of a topology, on one shard of the key space.

An operator takes frames and returns frames. Like a kernel it reads no clock, no random number and no environment: its
output is a pure function of the rows, the time of the cut and its tables. Topologies chain operators
(``streamcore.topology``); the same operator runs under Spark, in-process and in a back-test.

Rows are Polars frames. Columns of a row are the user's (text, numbers, booleans, decimals, UTC datetimes of millisecond
precision) and ``EVENT_MS``, the row's event time in epoch milliseconds (int64, never null). The order of the rows is
their order of arrival, which is the same whenever the cut runs again.

Within a cut, an operator performs three steps, in this order: the clock becomes ``clock_ms``; the rows are processed at
``watermark_ms``; the watermark becomes ``next_watermark_ms``. A watermark of ``END_OF_TIME_MS``
means that the stream has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamcore.wire.lanes import DeadLetterCode

if TYPE_CHECKING:
    import polars as pl

    from streamcore.state.table import StateTable

#: The port of an operator's main output; other ports are side outputs.
MAIN = "main"
#: The port of rows that came too late, with the columns ``LATE_REASON`` (text) and ``LATENESS_MS`` (int64).
LATE = DeadLetterCode.LATE.value
LATE_REASON = "late_reason"
LATENESS_MS = "lateness_ms"

#: Rows by port: one frame for every port, also without rows.
Ports = Mapping[str, "pl.DataFrame"]


@dataclass(frozen=True, slots=True)
class CutTime:
    """The time of a cut as one operator sees it: the watermark before its rows and after them, and the clock.

    ``shard``: the shard's number; shard 0 emits the rows that all shards together must emit once.
    """

    watermark_ms: int
    next_watermark_ms: int
    clock_ms: int
    shard: int = 0


class Operator(Protocol):
    """One operator with its tables in memory."""

    @property
    def output_delay_ms(self) -> int:
        """Return how many milliseconds an output row can be behind the watermark, if its input row was not late."""
        ...

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process one frame per input, and return one frame per port. A frame without rows has all its columns too."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables with all state, by name. A name has a-z, 0-9, _ and -."""
        ...

    def on_state_loaded(self) -> None:
        """Prepare for the first step; called once, after the stored rows have been loaded."""
        ...

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call by name, such as late or rejected rows, and reset them."""
        ...
