"""The values of the exactly-once writer: its input, its results, its limits and the hooks of the app.

No client is used here; ``exactly_once`` is the protocol.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from streamcore.errors import ConfigError, Permanent
from streamcore.kafka.settings import Option

#: What a record costs beside its key, value and headers: batch and record framing, our headers, room to spare.
RECORD_OVERHEAD_BYTES = 512

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to write. A null key goes to any partition; the writer appends the headers app, epoch, batch."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class OutRecords:
    """Many records of one topic, in order, without headers of their own: columns, so that none of them has to be an
    object on its way. ``keys`` and ``values`` have one length."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[OutRecord]:
        """One by one, where that is needed."""
        return map(OutRecord, repeat(self.topic), self.keys, self.values)

    @property
    def bytes(self) -> int:
        """The size of all of them together, as ``record_bytes`` counts."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    @property
    def most_bytes(self) -> int:
        """An upper bound of the size of each."""
        return sum(max(map(len, filter(None, one)), default=0) for one in (self.keys, self.values))


class CommitOutcome(enum.StrEnum):
    """The result of ``commit``."""

    COMMITTED = "committed"
    SKIPPED = "skipped"  # the marker shows that the batch was written before
    EMPTY = "empty"  # no records: nothing to write


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """``records`` and ``bytes`` of the transaction without the marker; ``oversized`` of the records given were replaced
    or dropped by the hook; ``attempts`` is above 1 after an unknown outcome."""

    batch: int
    outcome: CommitOutcome
    records: int
    bytes: int
    seconds: float
    oversized: int = 0
    attempts: int = 1


class CommitStep(enum.StrEnum):
    """Points of the protocol at which a test may crash the process (see the module's text)."""

    FENCED = "fenced"
    MARKER_READ = "marker_read"
    BEGUN = "begun"
    PRODUCED = "produced"
    BEFORE_COMMIT = "before_commit"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Limits. ``transaction_timeout_ms``: after it the broker aborts; ``commit_timeout_ms``: one call to the broker;
    ``recovery_ms``: all attempts after a failure together, with pauses from ``backoff_ms`` to ``backoff_max_ms``."""

    transaction_timeout_ms: int = 60_000
    commit_timeout_ms: int = 30_000
    recovery_ms: int = 120_000
    backoff_ms: int = 100
    backoff_max_ms: int = 3_000
    max_record_bytes: int = 1_000_000
    queue_records: int = 500_000
    queue_bytes: int = 256 * 1024 * 1024
    linger_ms: int = 5

    def __post_init__(self) -> None:
        if min(self.transaction_timeout_ms, self.commit_timeout_ms, self.backoff_ms, self.queue_records) <= 0:
            raise ConfigError("kafka delivery: time-outs, pauses and queue sizes must be above zero")
        if self.max_record_bytes < 1_000 or self.queue_bytes < 2 * self.max_record_bytes:
            raise ConfigError("kafka delivery: max_record_bytes is at least 1000, queue_bytes at least twice that")

    @property
    def options(self) -> dict[str, Option]:
        """librdkafka's names for them. Flushing at the commit overrides ``linger.ms``, so it costs no latency; it
        saves requests when a batch is large (broker CPU measured: a ninth)."""
        return {
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "message.max.bytes": self.max_record_bytes + RECORD_OVERHEAD_BYTES,
            "queue.buffering.max.messages": self.queue_records,
            "queue.buffering.max.kbytes": max(1, self.queue_bytes // 1024),
            "linger.ms": self.linger_ms,
        }


def refuse_oversized(record: OutRecord, limit_bytes: int) -> OutRecord | None:
    """Raise ``Permanent``: the default of ``WriterHooks.replace_oversized``, because dropping silently is no
    default."""
    raise Permanent(
        f"topic {record.topic}: a record of {record_bytes(record)} bytes, limit {limit_bytes}; "
        "raise max_record_bytes and the topic's max.message.bytes, or replace such records"
    )


def _ignore(_: CommitStep) -> None:
    return None


def _always_owner() -> None:
    return None


@dataclass(frozen=True, slots=True)
class WriterHooks:
    """Callbacks of the app.

    ``still_owner`` raises ``Fenced`` when another process owns the app (the lease's ``check``); called before every
    fencing after the first, and after it before anything is written. ``replace_oversized(record, limit_bytes)`` returns
    a smaller record, or None to drop it; it must be a pure function. ``on_step`` is called at each step.
    """

    still_owner: Callable[[], None] = _always_owner
    replace_oversized: Callable[[OutRecord, int], OutRecord | None] = refuse_oversized
    on_step: Callable[[CommitStep], None] = _ignore


def record_bytes(record: OutRecord) -> int:
    """Size of a record as the limit counts it, without the headers that the writer adds."""
    plain = len(record.key or b"") + len(record.value or b"")
    return plain + sum(len(name) + len(value) for name, value in record.headers) if record.headers else plain
