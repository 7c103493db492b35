"""The signals of all keys of a group of score rules. A stored row is one signal, or its deletion.

The module knows neither rules nor sums.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from rulecore.groups.scores.running_sum import ActiveSignal
from rulecore.language.types import Value
from rulecore.state_size import KEY_BYTES, StateSize, characters
from streamcore.columnar.timer_queue import TimerQueue
from streamcore.hashing import bucket_for, hash_columns
from streamcore.state import StateTable
from streamcore.state.table import HASH

Key = tuple[Value, ...]

GONE: Final = "__gone"
#: A signal, with its place in the running sums.
SIGNAL_BYTES: Final = 700
_HELD: Final[Mapping[str, pl.DataType]] = {
    "__time_ms": pl.Int64(),
    "__rule": pl.String(),
    "__identity": pl.String(),
    "__weight": pl.Int64(),
    "__partition": pl.Int64(),
    "__offset": pl.Int64(),
}


class SignalTable(StateTable):
    """A ``StateTable`` of signals by key, in order. ``dtypes``: the types of the key columns."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(dtypes)
        self.held: dict[Key, list[ActiveSignal]] = {}
        self._oldest: TimerQueue[tuple[int, int, Key]] = TimerQueue()  # time, number, key; also of removed signals
        self._number = 0
        self._hashes: dict[Key, int] = {}
        self._buckets: dict[int, dict[Key, None]] = {}
        self._count = 0  # of buckets
        self._changed: dict[tuple[Key, ActiveSignal], bool] = {}
        self._key_characters = 0

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.held)

    @property
    def state_size(self) -> StateSize:
        """The size of all signals, or more; removed ones count until their time has passed."""
        signals = len(self._oldest)
        return StateSize(signals, signals * SIGNAL_BYTES + len(self.held) * KEY_BYTES + self._key_characters)

    def state_sizes(self, rules: Mapping[str, Collection[str]]) -> Mapping[str, StateSize]:
        """Return by name the size of the signals of these rules, and of their keys."""
        sizes = dict.fromkeys(rules, StateSize())
        for key, signals in self.held.items():
            own = Counter(signal.rule for signal in signals)
            for name, wanted in rules.items():
                if number := sum(own[rule] for rule in wanted):
                    key_size = KEY_BYTES + characters(key)
                    sizes[name] += StateSize(number, number * SIGNAL_BYTES + key_size)
        return sizes

    def admit(self, keys: Sequence[Key], limit: int) -> int:
        """Add new keys in order, up to ``limit`` keys in all; return how many were not added."""
        new = [key for key in dict.fromkeys(keys) if key not in self.held]
        fits = new[: max(0, limit - len(self.held))]
        for key, number in zip(fits, self._hash(fits), strict=True):
            self.held[key], self._hashes[key] = [], number
            self._key_characters += characters(key)
            if self._count:
                self._buckets.setdefault(_bucket(number, self._count), {})[key] = None
        return len(new) - len(fits)

    def add(self, key: Key, signal: ActiveSignal) -> bool:
        """Add a signal of a known key; return False if the key has it already."""
        signals = self.held[key]
        index = bisect.bisect_left(signals, signal[:3])
        if index < len(signals) and signals[index][:3] == signal[:3]:
            return False
        signals.insert(index, signal)
        self._number += 1
        self._oldest.put((signal.time_ms, self._number, key))
        self._changed[key, signal] = True
        return True

    def remove(self, key: Key, signals: Iterable[ActiveSignal]) -> None:
        """Remove signals of a key."""
        gone = set(signals)
        for signal in gone:
            self._changed[key, signal] = False
        self.held[key] = [signal for signal in self.held[key] if signal not in gone]

    def remove_first(self, key: Key) -> ActiveSignal:
        """Remove and return the oldest signal of a key."""
        signal = self.held[key].pop(0)
        self._changed[key, signal] = False
        return signal

    def expire(self, before_ms: int) -> list[Key]:
        """Remove the signals up to this time; return the keys that lost signals."""
        touched: dict[Key, None] = {}
        while (oldest := self._oldest.pop_due(before_ms)) is not None:
            touched[oldest[2]] = None
        for key in touched:
            while self.held.get(key) and self.held[key][0].time_ms <= before_ms:
                self.remove_first(key)
        return [*touched]

    def release(self, keys: Iterable[Key]) -> None:
        """Remove those of the keys that have no signals."""
        for key in keys:
            if key in self.held and not self.held[key]:
                del self.held[key]
                self._key_characters -= characters(key)
                if self._count:
                    del self._buckets[_bucket(self._hashes[key], self._count)][key]

    def _hash(self, keys: Sequence[Key]) -> list[int]:
        return hash_columns(self._columns(keys), len(keys)).tolist() if keys else []

    def _columns(self, keys: Sequence[Key]) -> list[pl.Series]:
        columns = zip(*keys, strict=True) if keys else [()] * len(self.dtypes)
        pairs = zip(self.dtypes.items(), columns, strict=True)
        return [pl.Series(name, list(values), dtype=dtype) for (name, dtype), values in pairs]

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        changed, self._changed = self._changed, {}
        frame = self._frame([*changed], [not there for there in changed.values()])
        self._hashes = (
            {key: self._hashes[key] for key in self.held} if len(self._hashes) > 2 * len(self) else self._hashes
        )
        return frame

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if buckets != self._count:
            self._count, self._buckets = buckets, {}
            for key in self.held:
                self._buckets.setdefault(_bucket(self._hashes[key], buckets), {})[key] = None
        pairs = [(key, signal) for key in self._buckets.get(bucket, ()) for signal in self.held[key]]
        return self._frame(pairs, [False] * len(pairs))

    def load(self, rows: pl.DataFrame) -> None:
        keys = list(rows.select(list(self.dtypes)).iter_rows())
        self.admit(keys, 2**62)
        for key, values, gone in zip(keys, rows.select(list(_HELD)).iter_rows(), rows[GONE].to_list(), strict=True):
            if gone:
                self.remove(key, [ActiveSignal(*values)])
            else:
                self.add(key, ActiveSignal(*values))
        self.release(dict.fromkeys(keys))
        self._changed.clear()

    def _frame(self, pairs: Sequence[tuple[Key, ActiveSignal]], gone: Sequence[bool]) -> pl.DataFrame:
        keys = [key for key, _ in pairs]
        columns: Iterator[Sequence[object]] = (
            zip(*(signal for _, signal in pairs), strict=True) if pairs else iter([()] * len(_HELD))
        )
        return pl.DataFrame(
            [
                pl.Series(HASH, [self._hashes[key] for key in keys], dtype=pl.UInt64),
                *self._columns(keys),
                *(pl.Series(n, list(v), dtype=t) for (n, t), v in zip(_HELD.items(), columns, strict=True)),
                pl.Series(GONE, list(gone), dtype=pl.Boolean),
            ]
        )


def _bucket(number: int, buckets: int) -> int:
    return int(bucket_for(np.array([number], np.uint64), buckets)[0])
