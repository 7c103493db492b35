"""The specification of an enrichment, which is sent to the workers, and the protocols of a store's client."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

import polars as pl

from streamcore.enrich.type_check import is_supported
from streamcore.errors import ConfigError, Retryable

#: The value of the key column; a tuple in column order if there are several.
Key = Hashable
#: The fields that the store has under a key, by name; None if it has nothing.
Answer = Mapping[str, object] | None

#: The columns added to a failed row: the reason as text, and the number of calls that were attempted.
REASON: Final = "reason"
ATTEMPTS: Final = "attempts"


@runtime_checkable
class LookupClient(Protocol):
    """A store's client for one key per call. All calls are made on one event loop; calls of ``get`` are concurrent.

    A call that takes too long is cancelled, so it must let ``CancelledError`` through, and it must not block: a
    blocking client belongs behind ``asyncio.to_thread``.
    """

    async def open(self) -> None:
        """Connect. Called once, first. After a failure the client is closed and a new one is created."""
        ...

    async def get(self, key: Key) -> Answer:
        """Return the fields under the key. A field that is missing is null; undeclared fields are ignored."""
        ...

    async def close(self) -> None:
        """Close connections and end tasks. It is the last call."""
        ...


@runtime_checkable
class BatchLookupClient(Protocol):
    """A store's client for many keys per call. A key that is missing in the answer was not found.

    An exception in place of an answer fails the lookup of its key, for good.
    """

    async def open(self) -> None:
        """See ``LookupClient``."""
        ...

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer | Exception]:
        """Return the fields under each key. An exception fails the lookup of all of them."""
        ...

    async def close(self) -> None:
        """See ``LookupClient``."""
        ...


class ResultOrder(StrEnum):
    """The order of enriched rows. ORDERED: that of the input. UNORDERED: that of completed lookups, cached first."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


class OnFailure(StrEnum):
    """What happens to rows whose lookup failed. LANE: they go to a separate lane, with the reason.

    NULL_COLUMNS: they get nulls, like keys that were not found, and are counted.
    """

    LANE = "lane"
    NULL_COLUMNS = "null_columns"


@dataclass(frozen=True, slots=True)
class LookupRetries:
    """When and how often a failed call to the store is repeated.

    A pause does not count as a call in flight. There is no jitter: calls that failed together are retried together,
    within the limit of calls in flight.
    """

    #: Most attempts, with the first call.
    attempts: int = 3
    #: Milliseconds before the second attempt.
    pause_ms: int = 100
    #: Factor by which each pause is longer than the one before it.
    growth: float = 2.0
    #: Most milliseconds of a pause.
    longest_pause_ms: int = 10_000
    #: Types of the errors that are retried; timeouts always are.
    on: tuple[type[Exception], ...] = (Retryable, OSError, EOFError)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.pause_ms < 0 or self.growth < 1 or self.longest_pause_ms < self.pause_ms:
            raise ConfigError(
                f"{self}: needs attempts >= 1, pause_ms >= 0, growth >= 1 and longest_pause_ms >= pause_ms"
            )

    def pause_s(self, attempts: int) -> float:
        """Return the pause after this number of attempts, in seconds."""
        try:
            pause_ms = self.pause_ms * self.growth ** (attempts - 1)
        except OverflowError:
            pause_ms = self.longest_pause_ms
        return min(pause_ms, self.longest_pause_ms) / 1000


@dataclass(frozen=True, slots=True)
class Caching:
    """The size of the cache of a lookup, and how long answers are cached. Failures are never cached."""

    #: Most keys in the cache, 0 for no cache; a full cache evicts the least recently used key.
    max_entries: int = 100_000
    #: Milliseconds that an answer is cached; 0 caches none.
    found_ttl_ms: int = 60_000
    #: Milliseconds that the absence of a key is cached; 0 caches none.
    missing_ttl_ms: int = 10_000

    def __post_init__(self) -> None:
        if min(self.max_entries, self.found_ttl_ms, self.missing_ttl_ms) < 0:
            raise ConfigError(f"{self}: no value may be below 0")


@dataclass(frozen=True, slots=True)
class Enrichment:
    """Columns that are added to rows from a store outside the app, by a key of the row.

    ``create_client`` is called in the worker. It must be picklable, and equal to its unpickled copy. ``key``: the names
    of the key columns. ``columns``: the added columns and their types (text, Int64, Float64, booleans, decimals, UTC
    datetimes of milliseconds). ``concurrency``: the maximum of calls in flight. ``timeout_ms``: of one call.
    ``rows_in_flight``: the maximum of rows that wait for calls or pauses; a key with more rows waits alone.
    ``failure_budget_ms``: the most time of a frame that calls may take which fail for now; then its keys without an
    answer fail without a call. If no call was answered, the next frame begins with one call, and fails with it.
    ``batch_keys``: the maximum of keys per call of a ``BatchLookupClient``.
    """

    name: str
    create_client: Callable[[], LookupClient | BatchLookupClient]
    key: tuple[str, ...]
    columns: Mapping[str, pl.DataType]
    concurrency: int = 32
    timeout_ms: int = 1_000
    retries: LookupRetries = field(default_factory=LookupRetries)
    cache: Caching = field(default_factory=Caching)
    order: ResultOrder = ResultOrder.ORDERED
    on_failure: OnFailure = OnFailure.LANE
    rows_in_flight: int = 10_000
    failure_budget_ms: int = 5_000
    batch_keys: int = 100

    def __post_init__(self) -> None:
        if not self.key or len(set(self.key)) < len(self.key):
            raise ConfigError(f"enrichment {self.name}: key {list(self.key)}: name at least one column, each once")
        if not self.columns:
            raise ConfigError(f"enrichment {self.name}: has no columns; list the fields to add with their types")
        for column, dtype in self.columns.items():
            if not is_supported(dtype):
                raise ConfigError(
                    f"enrichment {self.name}: column {column!r} cannot be {dtype}; use String, Int64, Float64, "
                    "Boolean, Decimal or Datetime('ms', 'UTC')"
                )
        for limit in ("concurrency", "timeout_ms", "rows_in_flight", "failure_budget_ms", "batch_keys"):
            if getattr(self, limit) < 1:
                raise ConfigError(f"enrichment {self.name}: {limit} must be at least 1")

    def check(self, schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns of the enriched rows; ``ConfigError`` if the columns of the input do not fit."""
        if missing := [name for name in self.key if name not in schema]:
            raise ConfigError(f"enrichment {self.name}: there is no key column {missing}; the rows have {[*schema]}")
        if existing := [name for name in (*self.columns, REASON, ATTEMPTS) if name in schema]:
            raise ConfigError(f"enrichment {self.name}: the rows already have {existing}; rename them beforehand")
        return {**schema, **self.columns}
