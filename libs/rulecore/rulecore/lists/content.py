"""The content of a list at one moment, with lookups for whole columns of events.

The entries are one Python dictionary per process and version of a list, which all shards share, behind a Bloom filter.
Arrow and Polars would build their hash table again with every call, which with half a million entries costs thirty
times as much as all lookups of a cut. Expiry is checked at each lookup, so nothing is scanned when time passes.

Contents are immutable, and their keys and values are physical (see ``streamcore.schema``). No data raises an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.language import ListType
from rulecore.language.types import Value
from rulecore.lists.keys import NEVER_MS, Key
from rulecore.lists.networks import NetworkIndex
from rulecore.lists.prefilter import BloomFilter
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import MAX_DECIMAL_DIGITS, Kind, Type

Ints = npt.NDArray[np.int64]
_NO_ENTRY = -1


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ListEntries:
    """All entries of one version of a list, including expired ones.

    ``numbers``: the number of each entry, from 0. By this number: ``lookup_values``, the values that the entries map
    to, and ``expires_ms``, their expiry times; None if no entry has one. ``networks``: of a list of networks.
    """

    type: ListType
    numbers: Mapping[Key, int]
    lookup_values: pl.Series | None = None
    expires_ms: Ints | None = None
    networks: NetworkIndex | None = None
    _ends: list[Ints] = field(default_factory=list, repr=False)
    _filter: list[BloomFilter] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        kind: ListType,
        keys: Sequence[Key],
        values: Sequence[Value] | None = None,
        expires_ms: Sequence[int] | None = None,
        *,
        of_networks: bool = False,
    ) -> ListEntries:
        """Build the entries from columns of one length. Of two entries with the same key the last one is kept.

        ``of_networks``: whether the keys are networks, in which addresses are found; ``ListError`` if one is none.
        """
        numbers = {key: number for number, key in enumerate(keys)}
        lookup_values = None
        if kind.value is not None and values is not None:
            lookup_values = pl.Series("value", values, polars_type(kind.value))
        ends = None
        if expires_ms is not None and any(end != NEVER_MS for end in expires_ms):
            ends = np.asarray(expires_ms, np.int64)
        return cls(kind, numbers, lookup_values, ends, NetworkIndex.of(keys) if of_networks else None)

    @property
    def filter(self) -> BloomFilter:
        """The Bloom filter of these entries, built at the first use."""
        if not self._filter:
            self._filter.append(BloomFilter.of(self.numbers.keys(), polars_type(self.type.of)))
        return self._filter[0]

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
    """The entries that are valid at ``clock_ms``: those that expire later, or never."""

    entries: ListEntries
    clock_ms: int

    @property
    def type(self) -> ListType:
        """The name of the list, and the types of its entries and of their values."""
        return self.entries.type

    @property
    def until_ms(self) -> int:
        """The time until which the content does not change: the next expiry, or ``NEVER_MS``."""
        return self.entries.next_end_ms(self.clock_ms)

    def __contains__(self, key: Value) -> bool:
        """Return whether a physical value of the list's type is an entry."""
        return self._number(key) != _NO_ENTRY

    def get(self, key: Value) -> Value:
        """Return the physical value of an entry; None if there is no such entry, and in a list without values."""
        number, values = self._number(key), self.entries.lookup_values
        if number == _NO_ENTRY or values is None:
            return None
        value: Value = values[number]
        return value

    def _number(self, key: Value) -> int:
        """Return the number of a valid entry, else ``_NO_ENTRY``."""
        if not isinstance(key, str | int):
            return _NO_ENTRY
        if self.entries.networks is not None:
            return self._number_of_address(str(key))
        number = self.entries.numbers.get(key, _NO_ENTRY)
        ends = self.entries.expires_ms
        return number if number == _NO_ENTRY or ends is None or ends[number] > self.clock_ms else _NO_ENTRY

    @property
    def values(self) -> Collection[Key]:
        """The valid entries, as physical values. If some entries expire, each call goes through all entries."""
        ends = self.entries.expires_ms
        if ends is None:
            return self.entries.numbers.keys()
        valid = ends > self.clock_ms
        return {key for key, number in self.entries.numbers.items() if valid[number]}

    def holds(self, keys: pl.Series, kind: Type) -> pl.Series:
        """Return whether each of the physical ``keys`` of type ``kind`` is an entry; NULL for NULL."""
        is_entry = self._numbers(_rescale_keys(keys, kind, self.type.of)) != _NO_ENTRY
        return _null_where(keys.is_null(), pl.Series(is_entry))

    def look_up(self, keys: pl.Series, kind: Type) -> pl.Series:
        """Return the value of the entry of each of the physical ``keys`` of type ``kind``; NULL if there is none."""
        assert self.type.value is not None, "the type checker rejects lookup in a list without values"
        values = self.entries.lookup_values
        if values is None or not len(values):
            return pl.repeat(None, len(keys), dtype=polars_type(self.type.value), eager=True)
        numbers = self._numbers(_rescale_keys(keys, kind, self.type.of))
        return _null_where(pl.Series(numbers == _NO_ENTRY), values.gather(np.maximum(numbers, 0)))

    def _number_of_address(self, text: str) -> int:
        networks, ends = self.entries.networks, self.entries.expires_ms
        assert networks is not None, "of a list of networks"
        found = networks.find(text, lambda number: ends is None or bool(ends[number] > self.clock_ms))
        return _NO_ENTRY if found is None else found

    def _numbers(self, keys: pl.Series) -> Ints:
        """Return the number of each row's entry, or ``_NO_ENTRY``. Only values that pass the filter are looked up."""
        if self.entries.networks is not None:
            known = {text: self._number_of_address(text) for text in keys.drop_nulls().unique().to_list()}
            return np.fromiter((known.get(text, _NO_ENTRY) for text in keys.to_list()), np.int64, len(keys))
        get, numbers = self.entries.numbers.get, np.full(len(keys), _NO_ENTRY, np.int64)
        rows = self.entries.filter.rows(keys)
        numbers[rows] = np.fromiter(map(get, keys.gather(rows).to_list(), repeat(_NO_ENTRY)), np.int64, len(rows))
        ends = self.entries.expires_ms
        if ends is not None and len(ends):
            numbers[ends[np.maximum(numbers, 0)] <= self.clock_ms] = _NO_ENTRY
        return numbers


def _null_where(null: pl.Series, values: pl.Series) -> pl.Series:
    """Return ``values``, NULL where ``null``."""
    if not null.any():
        return values
    return values.to_frame("v").select(pl.when(~null).then(pl.col("v")))["v"]


def _rescale_keys(keys: pl.Series, kind: Type, of: Type) -> pl.Series:
    """Rescale whole numbers and decimals to the list's scale; NULL, which is in no list, where that is not exact.

    No entry has more than 18 digits (19 for a long), so a value outside 64 bits is in no list.
    """
    if kind.scale == of.scale or of.kind not in (Kind.LONG, Kind.DECIMAL):
        return keys
    column = keys.to_frame("v")
    if kind.scale < of.scale:
        factor = 10 ** (of.scale - kind.scale)
        fits = pl.col("v").is_between(-(_MAX_DIGITS_VALUE // factor), _MAX_DIGITS_VALUE // factor)
        return column.select(pl.when(fits).then(pl.col("v") * factor))["v"]
    factor = 10 ** (kind.scale - of.scale)
    return column.select(pl.when(pl.col("v") % factor == 0).then(pl.col("v") // factor))["v"]


_MAX_DIGITS_VALUE = 10**MAX_DECIMAL_DIGITS - 1
