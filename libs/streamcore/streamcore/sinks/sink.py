"""The contract of a sink: its input, its answer and its promise.

An app's cut goes to its sinks one after the other, and then to Kafka (``streamcore.engine.output``). After a crash the
same cut comes again with the same rows, whatever of it had been written; a sink makes that harmless by a ledger, a
transaction's version or a document's. It is one owner's at a time, and an owner of an earlier epoch must not get
through once a later one has opened the sink.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import pyarrow as pa
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.writer_id import WriterId

#: Settings take known names only, and an error does not repeat what was written: it may be a secret.
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Guarantee(enum.StrEnum):
    """The view that a reader of the system has of a cut that was written again after a crash."""

    EXACTLY_ONCE = "exactly-once"  # the cut's rows appear together and once; a repeated cut is refused by the system
    IDEMPOTENT = "idempotent"  # writing it again ends in the same contents; a reader may see part of a cut for a while
    AT_LEAST_ONCE = "at-least-once"


class WriteOutcome(enum.StrEnum):
    """The result of ``write`` for a cut."""

    COMMITTED = "committed"
    SKIPPED = "skipped"  # the system shows that the cut was written before
    EMPTY = "empty"  # no rows: nothing was asked of the system


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that the system will never take. ``row``: its place in the lane's table. ``code``: the system's own code
    or name of the error, for machines; ``reason``: its words, for people."""

    lane: str
    row: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """``rows``: those that are there now because of this cut. ``refused`` is the same when the cut is written again."""

    outcome: WriteOutcome
    rows: int = 0
    rejected: Sequence[RejectedRow] = ()


def _always_owner() -> None:
    return None


def _ignore(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class SinkHooks:
    """The parts that the app supplies. ``still_owner`` raises ``Fenced`` when another process owns the app; a sink
    calls it before it tries again. ``reached``: called with the name of each step of the sink's protocol; tests crash
    there."""

    still_owner: Callable[[], None] = _always_owner
    on_step: Callable[[str], None] = _ignore


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class RetryPolicy:
    """How long a sink tries when its system is away: all attempts together, with growing pauses; then ``Retryable``."""

    recovery_ms: Annotated[
        PositiveInt,
        Field(description="Time for which writing is retried when the server is unreachable, in milliseconds."),
    ] = 120_000
    pause_ms: Annotated[
        PositiveInt,
        Field(description="Pause after the first failure, in milliseconds; it doubles with each further one."),
    ] = 100
    pause_max_ms: Annotated[PositiveInt, Field(description="Longest pause between two attempts, in milliseconds.")] = (
        3_000
    )


class Sink(Protocol):
    """One system's tables for some lanes of an app. One thread at a time."""

    @property
    def name(self) -> str:
        """Unique in the app: part of the ledger's key, and in metrics and errors."""
        ...

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that it takes."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The promise that the sink makes with its settings."""
        ...

    def open(self, owner: WriterId) -> int | None:
        """Connect, refuse data that it cannot hold (``ConfigError``: the missing part and how to make it), and fence
        owners of earlier epochs. Returns the last batch that is known to be written in this epoch, or None. Called
        again after ``close`` for a new attempt."""
        ...

    def write(self, batch: int, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Write the rows of a cut, by lane, in order. Lanes without rows are absent. Durable on return.

        Columns have the logical types of a topology: decimal128, timestamp(ms, UTC), large_string, int64, double, bool.
        Raises ``Retryable`` when the system was away for longer than its patience: a later ``open`` and ``write`` of
        the same batch settle it. ``Fenced``: a later owner is there. Data never raises: rows that the system refuses
        for their values are ``Written.refused``.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; committed rows stay. May be called twice."""
        ...


class SinkFactory(Protocol):
    """Makes the sink: settings, without a connection."""

    def __call__(self, hooks: SinkHooks) -> Sink: ...
