"""The content of a list at one moment, ready to be asked for whole columns of events.

The entries are one Python dictionary, made once per process and version of a list and shared by all shards, behind a
sieve: Arrow and Polars build their hash table anew with every call, which with half a million entries costs thirty
times as much as all lookups of a batch. Expiry is a comparison while asking, so nothing is scanned when time passes.

Promises: immutable; keys and values are physical (see ``streamcore.schema``); never raises on data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.language import ListType
from rulecore.language.columnar.operators import DTYPES
from rulecore.language.types import Value
from rulecore.lists.keys import NEVER_MS, Key
from rulecore.lists.prefilter import BloomFilter
from streamcore.schema import MAX_DECIMAL_DIGITS, Kind, Type

Ints = npt.NDArray[np.int64]
_NO_ENTRY = -1


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ListEntries:
    """All entries of one version of a list, those too that have expired.

    ``place`` counts the entries; ``looked_up`` and ``expires_ms`` are by place, None where no entry has one.
    """

    type: ListType
    place: Mapping[Key, int]
    looked_up: pl.Series | None = None
    expires_ms: Ints | None = None
    _ends: list[Ints] = field(default_factory=list, repr=False)
    _sieve: list[BloomFilter] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        kind: ListType,
        keys: Sequence[Key],
        values: Sequence[Value] | None = None,
        expires_ms: Sequence[int] | None = None,
    ) -> ListEntries:
        """Build the content from entries of columns of one length; of two entries with one key the last holds."""
        place = {key: number for number, key in enumerate(keys)}
        looked_up = None
        if kind.value is not None and values is not None:
            looked_up = pl.Series("value", values, DTYPES[kind.value.kind])
        ends = None
        if expires_ms is not None and any(end != NEVER_MS for end in expires_ms):
            ends = np.asarray(expires_ms, np.int64)
        return cls(kind, place, looked_up, ends)

    @property
    def sieve(self) -> BloomFilter:
        """For these entries, made on first use."""
        if not self._sieve:
            self._sieve.append(BloomFilter.of(self.place.keys(), DTYPES[self.type.of.kind]))
        return self._sieve[0]

    def next_end_ms(self, clock_ms: int) -> int:
        """Return the time at which the next entry expires after ``clock_ms``; ``NEVER_MS`` when none does."""
        if self.expires_ms is None:
            return NEVER_MS
        if not self._ends:
            self._ends.append(np.unique(self.expires_ms))
        ends = self._ends[0]
        at = int(np.searchsorted(ends, clock_ms, side="right"))
        return int(ends[at]) if at < len(ends) else NEVER_MS


@dataclass(frozen=True, slots=True, eq=False)
class ListContent:
    """The entries that hold at ``clock_ms``: those that expire later, or never."""

    entries: ListEntries
    clock_ms: int

    @property
    def type(self) -> ListType:
        """Types of the entries and of their values."""
        return self.entries.type

    @property
    def until_ms(self) -> int:
        """The content is this until then: when the next entry expires. ``NEVER_MS`` when none does."""
        return self.entries.next_end_ms(self.clock_ms)

    def __contains__(self, key: Value) -> bool:
        """Return whether a physical value of the list's type is an entry."""
        return self._place(key) != _NO_ENTRY

    def get(self, key: Value) -> Value:
        """Return the physical value of an entry; None where there is no such entry, and in a list without values."""
        place, values = self._place(key), self.entries.looked_up
        if place == _NO_ENTRY or values is None:
            return None
        found: Value = values[place]
        return found

    def _place(self, key: Value) -> int:
        if not isinstance(key, str | int):
            return _NO_ENTRY
        place = self.entries.place.get(key, _NO_ENTRY)
        ends = self.entries.expires_ms
        return place if place == _NO_ENTRY or ends is None or ends[place] > self.clock_ms else _NO_ENTRY

    @property
    def values(self) -> Collection[Key]:
        """All entries, physical, set-like. With entries that expire each call looks at all of them."""
        ends = self.entries.expires_ms
        if ends is None:
            return self.entries.place.keys()
        held = ends > self.clock_ms
        return {key for key, place in self.entries.place.items() if held[place]}

    def holds(self, keys: pl.Series, kind: Type) -> pl.Series:
        """Boolean column: whether each of the physical ``keys`` of type ``kind`` is an entry; NULL for NULL."""
        found = self._places(_rescale_keys(keys, kind, self.type.of)) != _NO_ENTRY
        return _where(keys.is_null(), pl.Series(found))

    def look_up(self, keys: pl.Series, kind: Type) -> pl.Series:
        """Return the column of the values of the entries ``keys``; NULL where there is none."""
        assert self.type.value is not None, "the checker refuses lookup in a list without values"
        values = self.entries.looked_up
        if values is None or not len(values):
            return pl.repeat(None, len(keys), dtype=DTYPES[self.type.value.kind], eager=True)
        places = self._places(_rescale_keys(keys, kind, self.type.of))
        return _where(pl.Series(places == _NO_ENTRY), values.gather(np.maximum(places, 0)))

    def _places(self, keys: pl.Series) -> Ints:
        """Return the place of each row's entry; the dictionary is asked only for values that pass the sieve."""
        get, places = self.entries.place.get, np.full(len(keys), _NO_ENTRY, np.int64)
        rows = self.entries.sieve.rows(keys)
        places[rows] = np.fromiter(map(get, keys.gather(rows).to_list(), repeat(_NO_ENTRY)), np.int64, len(rows))
        ends = self.entries.expires_ms
        if ends is not None and len(ends):
            places[ends[np.maximum(places, 0)] <= self.clock_ms] = _NO_ENTRY
        return places


def _where(null: pl.Series, values: pl.Series) -> pl.Series:
    """Return ``values``, NULL where ``null``."""
    if not null.any():
        return values
    return values.to_frame("v").select(pl.when(~null).then(pl.col("v")))["v"]


def _rescale_keys(keys: pl.Series, kind: Type, of: Type) -> pl.Series:
    """Rescale whole numbers and decimals to the list's scale; NULL, which no list holds, where that is not exact.

    No entry has more than 18 digits (19 for a long), so a value outside 64 bits equals none.
    """
    if kind.scale == of.scale or of.kind not in (Kind.LONG, Kind.DECIMAL):
        return keys
    column = keys.to_frame("v")
    if kind.scale < of.scale:
        factor = 10 ** (of.scale - kind.scale)
        fits = pl.col("v").is_between(-(_MOST // factor), _MOST // factor)
        return column.select(pl.when(fits).then(pl.col("v") * factor))["v"]
    factor = 10 ** (kind.scale - of.scale)
    return column.select(pl.when(pl.col("v") % factor == 0).then(pl.col("v") // factor))["v"]


_MOST = 10**MAX_DECIMAL_DIGITS - 1
