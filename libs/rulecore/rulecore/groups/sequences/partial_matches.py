"""The partial matches of a group: one row per sequence and key that has partials.

A row holds the bytes of a ``MatchSet`` (``to_bytes``), the time at which it must be advanced even without an event
(``wake_ms``), and the number of its partials. Between cuts nothing else is kept of a key: a hundred thousand keys are a
hundred thousand short byte strings, which the garbage collector does not traverse.

A row that becomes empty is stored once with null bytes, which ``load`` reads as a deletion. A row whose partials all
expired is dropped without being stored: after a load, the next ``due`` returns it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.sequences.automaton import MatchSet
from rulecore.state_size import StateSize, key_bytes_at_most, size_by_group
from streamcore.columnar.key_slots import KeySlots
from streamcore.state import HASH

Ints = npt.NDArray[np.int64]

SEQUENCE: Final = "__sequence"
WAKE_MS: Final = "__wake_ms"
COUNT: Final = "__count"
PARTIALS: Final = "__partials"

#: A row, without its key and the bytes of its partials.
ROW_BYTES: Final = 300

_KEY_SLOT_BITS: Final = 32
_KEY_SLOT: Final = (1 << _KEY_SLOT_BITS) - 1
_NEVER: Final = 2**62


def sequence_key_code(sequences: Ints, key_slots: Ints) -> Ints:
    """Return the code of a sequence (its number) and a key (its key slot), ascending by sequence, then by key slot."""
    return sequences << _KEY_SLOT_BITS | key_slots


class PartialMatchTable:
    """A ``StateTable`` of the partials of all sequences and keys. A row is found by its ``sequence_key_code``."""

    def __init__(self, dtypes: dict[str, pl.DataType]) -> None:
        self.keys = KeySlots(dtypes)
        self._rows: dict[int, int] = {}  # code -> row
        self._free: list[int] = []
        self._codes = np.empty(0, np.int64)
        self._wake = np.empty(0, np.int64)  # in ms; _NEVER for a free row
        self._counts = np.empty(0, np.int64)
        self._stored: list[bytes | None] = []
        self._stored_bytes = 0
        self._dirty: dict[int, bool] = {}  # code -> whether an earlier cut may have written it

    def __len__(self) -> int:
        """Return the number of partials."""
        return int(self._counts.sum())

    @property
    def state_size(self) -> StateSize:
        """The size of all rows, each of which is an entry, or more; keys without partials may count."""
        rows = len(self._rows)
        return StateSize(rows, rows * ROW_BYTES + self._stored_bytes + key_bytes_at_most(self.keys))

    def state_use(self) -> tuple[StateSize, Mapping[int, StateSize]]:
        """Return the size of all rows and that of the rows of each sequence; sequences share keys."""
        codes = np.fromiter(self._rows, np.int64, len(self._rows))
        stored = np.fromiter((len(self._stored[row] or b"") for row in self._rows.values()), np.int64, len(codes))
        return size_by_group(codes >> _KEY_SLOT_BITS, stored + ROW_BYTES, self.keys, codes & _KEY_SLOT)

    def find(self, codes: Ints) -> Ints:
        """Return the row of each code, -1 for a code without a row."""
        return np.fromiter(map(self._rows.get, codes.tolist(), repeat(-1)), np.int64, len(codes))

    def get(self, row: int) -> bytes | None:
        """Return the bytes of a row; None for row -1."""
        return self._stored[row] if row >= 0 else None

    def put(self, code: int, partials: MatchSet) -> None:
        """Replace the row of a code; delete it if no partials are left."""
        known = code in self._rows
        written = self._dirty.setdefault(code, known)
        stored = partials.to_bytes()
        if stored is not None:
            self._set(code, stored, partials.wake_ms, len(partials.partials))
        elif known:
            self._delete(code)
        if stored is None and not written:
            del self._dirty[code]

    def drop(self, code: int) -> None:
        """Delete a row whose partials have all expired without a match. The deletion is not stored."""
        self._delete(code)

    def due(self, before_ms: int) -> list[tuple[int, int]]:
        """Return the codes and rows that must be advanced to this time even without an event."""
        rows = np.flatnonzero(self._wake < before_ms)
        return list(zip(self._codes[rows].tolist(), rows.tolist(), strict=True))

    def keep(self, sequences: Collection[int]) -> None:
        """Drop the rows of all other sequences. Sequence numbers are not reused, so the deletion need not be stored."""
        for code in [c for c in self._rows if c >> _KEY_SLOT_BITS not in sequences]:
            self._delete(code)
            self._dirty.pop(code, None)

    def changes(self) -> pl.DataFrame:
        frame = self._frame(sorted(self._dirty))
        self._dirty = {}
        self.keys.keep(np.unique(self._codes[self._wake < _NEVER] & _KEY_SLOT))
        return frame

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        live = self._codes[self._wake < _NEVER]
        in_bucket = live[self.keys.in_bucket(live & _KEY_SLOT, bucket, buckets)]
        return self._frame(np.sort(in_bucket).tolist())

    def load(self, rows: pl.DataFrame) -> None:
        codes = sequence_key_code(rows[SEQUENCE].to_numpy(), self.keys.assign(rows))
        values = (rows[PARTIALS].to_list(), rows[WAKE_MS].to_list(), rows[COUNT].to_list())
        for code, stored, wake_ms, count in zip(codes.tolist(), *values, strict=True):
            if stored is not None:
                self._set(code, stored, wake_ms, count)
            elif code in self._rows:
                self._delete(code)

    def _set(self, code: int, stored: bytes, wake_ms: int, count: int) -> None:
        row = self._rows.get(code)
        if row is None:
            row = self._rows[code] = self._free.pop() if self._free else self._grow()
            self._codes[row] = code
        self._stored_bytes += len(stored) - len(self._stored[row] or b"")
        self._stored[row], self._wake[row], self._counts[row] = stored, wake_ms, count

    def _delete(self, code: int) -> None:
        row = self._rows.pop(code)
        self._stored_bytes -= len(self._stored[row] or b"")
        self._stored[row], self._wake[row], self._counts[row] = None, _NEVER, 0
        self._free.append(row)

    def _grow(self) -> int:
        """Append a row and return its number."""
        row = len(self._stored)
        self._stored.append(None)
        if row >= len(self._codes):
            size = max(64, 2 * row)
            self._codes = np.resize(self._codes, size)
            self._wake = np.concatenate([self._wake, np.full(size - row, _NEVER)])
            self._counts = np.concatenate([self._counts, np.zeros(size - row, np.int64)])
        return row

    def _frame(self, codes: Iterable[int]) -> pl.DataFrame:
        """Return the rows of these codes as stored; a code without a row has null bytes."""
        code_array = np.fromiter(codes, np.int64)
        rows, key_slots = self.find(code_array), code_array & _KEY_SLOT
        live = rows >= 0
        columns = [
            pl.Series(HASH, self.keys.hashes[key_slots]),
            pl.Series(SEQUENCE, code_array >> _KEY_SLOT_BITS),
            pl.Series(WAKE_MS, np.where(live, self._wake[rows], 0) if len(rows) else rows),
            pl.Series(COUNT, np.where(live, self._counts[rows], 0) if len(rows) else rows),
            pl.Series(PARTIALS, [self.get(row) for row in rows.tolist()], dtype=pl.Binary),
        ]
        return pl.DataFrame([*self.keys.frame(key_slots).get_columns(), *columns])
