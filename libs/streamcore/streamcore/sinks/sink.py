"""The contract of a sink: a system outside Kafka that takes the rows of some lanes.

An app writes each cut to its sinks, one after the other, and then to Kafka (``streamcore.engine.output``). After a
crash it writes the last cut again, with equal rows. A sink must recognise this cut, by a ledger, by the version of a
transaction or by the version of each document, and must not store its rows twice. It stores the digest of the cut with
its number: a stored cut of the same number with another digest is not this one, and proves that another process writes
with another copy of the checkpoint (``check_same_cut``).

One process owns a sink at a time: once a later epoch has opened it, every write of an earlier epoch must fail with
``Fenced``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import pyarrow as pa
from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.outages import OUTAGES, Dependency, Outages
from streamcore.settings import STRICT


class Guarantee(enum.StrEnum):
    """What a reader of the system sees of a cut that was written again after a crash."""

    EXACTLY_ONCE = "exactly-once"  # the cut's rows appear together, and once
    IDEMPOTENT = "idempotent"  # the final contents are equal; a reader may see a part of the cut for a while
    AT_LEAST_ONCE = "at-least-once"  # rows may appear twice


class WriteOutcome(enum.StrEnum):
    """The result of ``write`` for a cut."""

    COMMITTED = "committed"
    SKIPPED = "skipped"  # the system shows that the cut was written before
    EMPTY = "empty"  # no rows: nothing was written


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that the system rejects for its values, now and on every retry.

    ``row``: index in the lane's table, from 0. ``code``: the system's error code or error name. ``reason``: its error
    message.
    """

    lane: str
    row: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of ``Sink.write``.

    ``rows``: number of rows that the cut added or changed. ``rejected`` must be equal when the cut is written again.
    """

    outcome: WriteOutcome
    rows: int = 0
    rejected: Sequence[RejectedRow] = ()


def check_same_cut(cut: CutId, stored: CutId, sink: str) -> None:
    """Raise ``Fenced``, naming the sink, if ``stored``, the sink's last cut, shows that another process wrote it.

    ``cut`` is to be written. An earlier stored cut is as it should be, and the same one is skipped.
    """
    if stored.batch >= cut.batch and stored != cut:
        seen = "with other input" if stored.batch == cut.batch else "as its last"
        raise Fenced(
            f"{sink}: {cut} is to be written, and the ledger shows {stored} {seen}: another process runs the app with "
            "another copy of the checkpoint; this one ends. Keep one of the two"
        )


def _always_owner() -> None:
    return None


def _ignore(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class SinkHooks:
    """Callbacks of the app.

    ``still_owner`` raises ``Fenced`` if another process owns the app; a sink calls it before each retry. ``on_step`` is
    called with the name of each step of the sink's protocol; tests crash the process there. ``outages``: a sink reports
    to it each call that fails because its system is away, and each answer.
    """

    still_owner: Callable[[], None] = _always_owner
    on_step: Callable[[str], None] = _ignore
    outages: Outages = OUTAGES


def sink_dependency(name: str) -> Dependency:
    """Return the system behind a sink; ``name``: its kind and address."""
    return Dependency(
        name,
        "Until it is back the app commits no cut that has rows for it, and loses nothing",
        "Start the server, or mend the network; the app goes on by itself",
    )


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class RetryPolicy:
    """How long a sink retries while its system is unreachable, before it raises ``Retryable``."""

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
    """Writes the rows of some lanes of an app to one system. One thread at a time."""

    @property
    def name(self) -> str:
        """The sink's name, unique in the app; part of the ledger's key, of metrics and of error messages."""
        ...

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes whose rows the sink takes."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that the sink gives with its settings."""
        ...

    def open(self, owner: WriterId) -> CutId | None:
        """Connect, check the tables and fence owners of earlier epochs.

        Returns the last cut that this epoch is known to have written, or None. Raises ``ConfigError`` if a table
        cannot hold the lane's rows, naming the missing part and how to create it. May be called again after ``close``.
        """
        ...

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Write the rows of a cut, by lane, in order. Lanes without rows are absent. The rows are durable on return.

        Columns have the logical types of a topology: decimal128, timestamp(ms, UTC), large_string, int64, double, bool.

        Raises ``Retryable`` if the system is unreachable for longer than ``RetryPolicy.recovery_ms``; a later ``open``
        and ``write`` of this cut then settle whether it is written. Raises ``Fenced`` if a later epoch owns the sink,
        or ``check_same_cut`` does. Rows that the system rejects for their values do not raise: they are in
        ``WriteResult.rejected``.
        """
        ...

    def close(self) -> None:
        """Close the connection; committed rows stay. May be called twice."""
        ...


class SinkFactory(Protocol):
    """Creates a sink from settings, without connecting."""

    def __call__(self, hooks: SinkHooks) -> Sink: ...
