"""The size of the state that rules keep, in entries and bytes, which budgets limit and metrics show.

Sizes are counted, never measured in the process: equal states have equal sizes in every process, so a rule may be put
into quarantine because of its size. An entry counts with a constant number of bytes for its kind, a number of eight
bytes for each column, and the length of its text. The constants are from 400,000 entries in a process of its own
(``bench.kernels.state_size``), rounded up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.key_slots import KeySlots

Ints = npt.NDArray[np.int64]

NUMBER_BYTES: Final = 8
#: A key in ``KeySlots``: its row, hash and place in the hash table, without its text.
KEY_BYTES: Final = 120
#: A set of distinct values, and a value in it, without its text.
SET_BYTES: Final = 300
VALUE_BYTES: Final = 80


@dataclass(frozen=True, slots=True)
class StateSize:
    """A number of entries, and their bytes."""

    entries: int = 0
    bytes: int = 0

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(self.entries + other.entries, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class StateUse:
    """The size of a piece of state, and the part of it that each rule keeps alive, by ``id@version``.

    State that several rules share counts for each of them, and once in ``total``.
    """

    total: StateSize
    by_rule: Mapping[str, StateSize]


class StateHolder(Protocol):
    """State of rules that counts for budgets."""

    def state_size(self) -> StateSize:
        """Return at least ``state_use().total``, in constant time."""
        ...

    def state_use(self, watermark_ms: int) -> StateUse:
        """Return the exact size at the end of a cut, a pure function of the state. It may read all of the state.

        ``watermark_ms``: the watermark at the end of the cut.
        """
        ...


@dataclass(slots=True)
class ValueCount:
    """The number of sets of distinct values, of values in them, and of characters in these."""

    sets: int = 0
    values: int = 0
    characters: int = 0

    def add(self, value: object) -> None:
        """Count a value more."""
        self.values += 1
        if type(value) is str:
            self.characters += len(value)

    def add_values(self, values: Collection[object]) -> None:
        """Count these values more."""
        self.values += len(values)
        self.characters += characters(values)

    def remove_set(self, values: Collection[object]) -> None:
        """Count a set with these values less."""
        self.sets -= 1
        self.values -= len(values)
        self.characters -= characters(values)

    @property
    def size(self) -> StateSize:
        """The size of the sets; each value is an entry."""
        return StateSize(self.values, self.sets * SET_BYTES + self.values * VALUE_BYTES + self.characters)


def key_bytes(keys: KeySlots, key_slots: Ints) -> Ints:
    """Return the bytes of the keys in these key slots."""
    return text_bytes(keys.frame(key_slots), len(key_slots)) + KEY_BYTES


def key_bytes_at_most(keys: KeySlots) -> int:
    """Return at least the bytes of all keys, in constant time."""
    return len(keys) * KEY_BYTES + keys.frame_bytes


def size_by_group(
    group: Ints, entry_bytes: Ints, keys: KeySlots, key_slots: Ints
) -> tuple[StateSize, Mapping[int, StateSize]]:
    """Return the size of all entries, each key counted once, and that of each group of entries with its keys.

    ``group``, ``entry_bytes`` (without the key) and ``key_slots``: by entry. A key has at most one entry in a group.
    """
    own_key_bytes = key_bytes(keys, key_slots)
    groups, inverse = np.unique(group, return_inverse=True)
    by_group = np.zeros(len(groups), np.int64)
    np.add.at(by_group, inverse, entry_bytes + own_key_bytes)
    columns = (groups.tolist(), np.bincount(inverse, minlength=len(groups)).tolist(), by_group.tolist())
    distinct_keys = np.unique(key_slots, return_index=True)[1]
    total = int(entry_bytes.sum()) + int(own_key_bytes[distinct_keys].sum())
    return StateSize(len(group), total), {g: StateSize(n, size) for g, n, size in zip(*columns, strict=True)}


def text_bytes(frame: pl.DataFrame, rows: int) -> Ints:
    """Return the bytes of the text in each of the rows of a frame."""
    result = np.zeros(rows, np.int64)
    for column in frame.get_columns():
        if column.dtype == pl.String:
            result += column.str.len_bytes().fill_null(0).to_numpy().astype(np.int64)
    return result


def characters(values: Iterable[object]) -> int:
    """Return the number of characters of the texts among the values."""
    return sum(len(value) for value in values if type(value) is str)
