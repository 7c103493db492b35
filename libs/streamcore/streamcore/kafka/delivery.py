"""The values of the exactly-once writer: its input, its results, its limits and the hooks of the app.

The protocol is in ``exactly_once``. This module imports no Kafka client.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from streamcore.cuts.cut_id import CutId
from streamcore.errors import ConfigError, Permanent
from streamcore.kafka.settings import Option
from streamcore.outages import OUTAGES, Outages

#: Bytes of a record beside its key, value and headers: batch and record framing, the writer's headers, and a reserve.
RECORD_OVERHEAD_BYTES = 512

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to write. A record without a key goes to any partition. The writer adds the headers app, epoch and
    batch."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class OutRecords:
    """Many records of one topic, in order, without headers of their own, as two columns of equal length: building an
    object for each record would be slow."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[OutRecord]:
        """Yield each record as an object."""
        return map(OutRecord, repeat(self.topic), self.keys, self.values)

    @property
    def bytes(self) -> int:
        """The size of all records together, in bytes, as ``record_bytes`` counts it."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    @property
    def max_record_bytes(self) -> int:
        """An upper bound of the size of each record, in bytes: the longest key plus the longest value."""
        return sum(max(map(len, filter(None, column)), default=0) for column in (self.keys, self.values))


class CheckpointingMode(enum.StrEnum):
    """How often a record of a lane may appear if a cut runs again, by Flink's names."""

    EXACTLY_ONCE = "exactly-once"  # one transaction a cut
    AT_LEAST_ONCE = "at-least-once"  # without a transaction: visible sooner, and perhaps twice


#: What ``AT_LEAST_ONCE`` means, for the people who read a plan or a log.
AT_LEAST_ONCE_TEXT = (
    "records are visible before their batch is committed; after a crash some appear twice, none is lost"
)


class CommitOutcome(enum.StrEnum):
    """The result of ``commit``."""

    COMMITTED = "committed"
    SKIPPED = "skipped"  # the marker shows that the batch was written before
    EMPTY = "empty"  # no records: nothing to write


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """The result of a commit. ``records`` and ``bytes`` count the transaction without the marker. The hook replaced or
    dropped ``oversized`` of the given records. ``attempts`` is above 1 after an unknown outcome."""

    batch: int
    outcome: CommitOutcome
    records: int
    bytes: int
    seconds: float
    oversized: int = 0
    attempts: int = 1


class CommitStep(enum.StrEnum):
    """Points of the protocol of ``exactly_once`` that are reported to ``WriterHooks.on_step``; tests crash the process
    there."""

    FENCED = "fenced"
    MARKER_READ = "marker_read"
    BEGUN = "begun"
    PRODUCED = "produced"
    BEFORE_COMMIT = "before_commit"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Limits of an exactly-once writer."""

    #: Age in milliseconds at which the broker aborts a transaction.
    transaction_timeout_ms: int = 60_000
    #: Most milliseconds of one commit request, or until records without a transaction are delivered.
    commit_timeout_ms: int = 30_000
    #: Most milliseconds of all attempts after a failure together.
    recovery_ms: int = 120_000
    #: Milliseconds before the second attempt; the pause doubles with each further one.
    backoff_ms: int = 100
    #: Most milliseconds of a pause.
    backoff_max_ms: int = 3_000
    #: Most bytes of an output record.
    max_record_bytes: int = 1_000_000
    #: Most records in the client's send queue.
    queue_records: int = 500_000
    #: Most bytes in the client's send queue.
    queue_bytes: int = 256 * 1024 * 1024
    #: Milliseconds that the client waits for further records of a batch.
    linger_ms: int = 5

    def __post_init__(self) -> None:
        if min(self.transaction_timeout_ms, self.commit_timeout_ms, self.backoff_ms, self.queue_records) <= 0:
            raise ConfigError("kafka delivery: time-outs, pauses and queue sizes must be above zero")
        if self.max_record_bytes < 1_000 or self.queue_bytes < 2 * self.max_record_bytes:
            raise ConfigError("kafka delivery: max_record_bytes is at least 1000, queue_bytes at least twice that")

    @property
    def options(self) -> dict[str, Option]:
        """The limits as librdkafka options. ``linger.ms`` adds no latency, because the commit flushes the queue, and
        saves requests of large batches (measured: the broker's CPU falls to a ninth)."""
        return {
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "message.max.bytes": self.max_record_bytes + RECORD_OVERHEAD_BYTES,
            "queue.buffering.max.messages": self.queue_records,
            "queue.buffering.max.kbytes": max(1, self.queue_bytes // 1024),
            "linger.ms": self.linger_ms,
        }

    @property
    def options_without_transactions(self) -> dict[str, Option]:
        """The limits of a producer without transactions, whose records are sent at once and given up when a commit
        would be."""
        options = {name: value for name, value in self.options.items() if name != "transaction.timeout.ms"}
        return options | {"linger.ms": 0, "message.timeout.ms": self.commit_timeout_ms}


def reject_oversized(record: OutRecord, limit_bytes: int) -> OutRecord | None:
    """Raise ``Permanent``. This is the default of ``WriterHooks.replace_oversized``: records must not be dropped
    silently."""
    raise Permanent(
        f"topic {record.topic}: a record of {record_bytes(record)} bytes, limit {limit_bytes}; "
        "raise max_record_bytes and the topic's max.message.bytes, or replace such records"
    )


def _ignore(_: CommitStep) -> None:
    return None


def _always_owner() -> None:
    return None


def _any_history(_: CutId) -> None:
    return None


@dataclass(frozen=True, slots=True)
class WriterHooks:
    """Callbacks of the app.

    ``still_owner`` raises ``Fenced`` if another process owns the app (the lease's ``check``). The writer calls it
    before every fencing but the first, and again after that fencing, before it writes.
    ``check_history`` raises ``StreamError`` unless this app planned the cut that the marker shows. The writer calls it
    before and after each fencing.
    ``replace_oversized(record, limit_bytes)`` returns a smaller record, or None to drop the record; it must be a pure
    function. ``on_step`` is called after each step of the protocol. ``outages`` gets the outcome of each attempt.
    """

    still_owner: Callable[[], None] = _always_owner
    check_history: Callable[[CutId], None] = _any_history
    replace_oversized: Callable[[OutRecord, int], OutRecord | None] = reject_oversized
    on_step: Callable[[CommitStep], None] = _ignore
    outages: Outages = OUTAGES


def record_bytes(record: OutRecord) -> int:
    """Return the size of a record as ``max_record_bytes`` counts it, without the headers that the writer adds."""
    plain = len(record.key or b"") + len(record.value or b"")
    return plain + sum(len(name) + len(value) for name, value in record.headers) if record.headers else plain
