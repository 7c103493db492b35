"""The description of an enrichment: values that travel to the workers, and the protocol of a store's client.

Refuses to know event loops and frames of data.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

import polars as pl

from streamcore.enrich.type_check import is_supported
from streamcore.errors import ConfigError, Retryable

#: A key column's value; a tuple of them, in order, when there are several.
Key = Hashable
#: The fields of what was found, by name; None when the store has nothing under the key.
Answer = Mapping[str, object] | None

#: The columns of a failed row beside its own: text, and how many times the store was asked.
REASON: Final = "reason"
ATTEMPTS: Final = "attempts"


@runtime_checkable
class LookupClient(Protocol):
    """A store's client. All calls come from one event loop; ``get`` is called many times at once.

    A call that takes too long is cancelled, so it must let ``CancelledError`` through, and it must not block: a
    blocking client belongs behind ``asyncio.to_thread``.
    """

    async def open(self) -> None:
        """Connect; called once before anything else. After a failure the client is closed and a new one is made."""
        ...

    async def get(self, key: Key) -> Answer:
        """Return the fields under the key. A field that is missing is null; undeclared fields are ignored."""
        ...

    async def close(self) -> None:
        """Give back connections and tasks. Nothing is called after it."""
        ...


@runtime_checkable
class BatchLookupClient(Protocol):
    """The client of a store that answers for many keys in one call. A key without an answer was not found."""

    async def open(self) -> None:
        """Do as ``LookupClient`` does."""
        ...

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        """Return the fields under each of the keys. An exception is the failure of all of them."""
        ...

    async def close(self) -> None:
        """Do as ``LookupClient`` does."""
        ...


class ResultOrder(StrEnum):
    """ORDERED: rows leave in the order in which they came. UNORDERED: as their look-ups end, cached ones first."""

    ORDERED = "ordered"
    UNORDERED = "unordered"


class OnFailure(StrEnum):
    """The treatment of rows whose look-up failed. LANE: they leave by a lane of their own, with the reason.

    NULL_COLUMNS: they go on with nulls, as if nothing had been found, and are counted.
    """

    LANE = "lane"
    NULL_COLUMNS = "null_columns"


@dataclass(frozen=True, slots=True)
class LookupRetries:
    """``attempts``: how often the store is asked for a key, the first time included.

    Between attempts there is a pause, ``growth`` times as long each time, up to ``longest_pause_ms``; it does not count
    towards the calls in flight. Only time-outs and errors of the types ``on`` are tried again. No randomness: keys that
    failed together are tried again together, as many at once as there may be calls in flight.
    """

    attempts: int = 3
    pause_ms: int = 100
    growth: float = 2.0
    longest_pause_ms: int = 10_000
    on: tuple[type[Exception], ...] = (Retryable, OSError, EOFError)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.pause_ms < 0 or self.growth < 1 or self.longest_pause_ms < self.pause_ms:
            raise ConfigError(
                f"{self}: needs attempts >= 1, pause_ms >= 0, growth >= 1 and longest_pause_ms >= pause_ms"
            )

    def pause_s(self, attempts: int) -> float:
        """Return the pause after so many attempts, in seconds."""
        try:
            grown = self.pause_ms * self.growth ** (attempts - 1)
        except OverflowError:
            grown = self.longest_pause_ms
        return min(grown, self.longest_pause_ms) / 1000


@dataclass(frozen=True, slots=True)
class Caching:
    """How many keys are kept (the longest unused goes first), and for how long: 0 keeps nothing of that kind.

    Failures are never kept.
    """

    max_entries: int = 100_000
    found_ttl_ms: int = 60_000
    missing_ttl_ms: int = 10_000

    def __post_init__(self) -> None:
        if min(self.max_entries, self.found_ttl_ms, self.missing_ttl_ms) < 0:
            raise ConfigError(f"{self}: no number may be below 0")


@dataclass(frozen=True, slots=True)
class Enrichment:
    """``look_up`` makes the client, in the worker; it must be picklable, and equal to itself when it comes again.

    ``columns``: the new columns and their types (text, Int64, Float64, booleans, decimals, UTC datetimes of
    milliseconds).
    ``concurrency``: calls in flight at once. ``timeout_ms``: of one call. ``rows_in_flight``: rows that wait for calls
    or pauses at once; a key with more rows than that waits alone. ``batch_keys``: the most keys of one call, where the
    client is a ``BatchLookupClient``.
    """

    name: str
    look_up: Callable[[], LookupClient | BatchLookupClient]
    key: tuple[str, ...]
    columns: Mapping[str, pl.DataType]
    concurrency: int = 32
    timeout_ms: int = 1_000
    retries: LookupRetries = field(default_factory=LookupRetries)
    cache: Caching = field(default_factory=Caching)
    order: ResultOrder = ResultOrder.ORDERED
    on_failure: OnFailure = OnFailure.LANE
    rows_in_flight: int = 10_000
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
        for limit in ("concurrency", "timeout_ms", "rows_in_flight", "batch_keys"):
            if getattr(self, limit) < 1:
                raise ConfigError(f"enrichment {self.name}: {limit} must be at least 1")

    def check(self, schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns of the enriched rows; ``ConfigError`` where those of the input do not fit."""
        if missing := [name for name in self.key if name not in schema]:
            raise ConfigError(f"enrichment {self.name}: there is no key column {missing}; the rows have {[*schema]}")
        if taken := [name for name in (*self.columns, REASON, ATTEMPTS) if name in schema]:
            raise ConfigError(f"enrichment {self.name}: the rows already have {taken}; rename them beforehand")
        return {**schema, **self.columns}
