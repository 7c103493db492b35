"""Reads the frame of the datum of a container file from many records together, with numpy.

Each method reads one item of every row and advances the row's position. A row whose bytes do not fit is no longer
``ok``; its position stays within its record, and the reference finds the reason. Knows no schema.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
#: Nine bytes have 63 bits; longer varints are left to the reference.
_MAX_VARINT_BYTES = 9
_PADDING_BYTES = 16


class ByteCursors:
    """The position of each row in its record.

    ``position`` and ``end``: indexes in ``data``, by row. ``ok``: by row, False once the row's bytes do not fit.
    """

    def __init__(self, data: Bytes, position: Ints, end: Ints) -> None:
        padding = np.zeros(_PADDING_BYTES, np.uint8)  # so that a number can be read at any position
        self.data, self.position, self.end = np.concatenate([data, padding]), position, end
        self.ok: Bools = np.ones(len(position), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.position)

    def skip(self, count: int | Ints) -> Ints:
        """Skip ``count`` bytes of each row; return where they begin."""
        before, remaining = self.position, self.end - self.position
        fits = (count >= 0) & (count <= remaining) if isinstance(count, np.ndarray) else count <= remaining
        self.ok &= fits
        self.position = before + np.where(self.ok, count, 0)
        return before

    def read_bytes(self, count: int) -> Bytes:
        """Read ``count`` bytes of each row; return a matrix. The bytes of rows that are not ``ok`` are undefined."""
        before = self.skip(count)
        positions = np.where(self.ok, before, 0)[:, None] + np.arange(count)
        return self.data[np.minimum(positions, len(self.data) - 1)]

    def drop_tail(self, tail: Bytes) -> None:
        """Remove the bytes of each row of the matrix ``tail`` from the end of the row. A row that ends otherwise is no
        longer ``ok``."""
        count = tail.shape[1]
        self.ok &= self.end - self.position >= count
        positions = np.where(self.ok, self.end - count, 0)[:, None] + np.arange(count)
        self.ok &= (self.data[np.minimum(positions, len(self.data) - 1)] == tail).all(axis=1)
        self.end = np.where(self.ok, self.end - count, self.end)

    def read_long(self) -> Ints:
        """Read a variable-length zigzag number of each row."""
        byte = self.data[self.position]
        number = (byte & 0x7F).astype(np.uint64)
        length: Ints = np.ones(len(self), dtype=np.int64)
        more = np.flatnonzero(byte >= 0x80)
        for index in range(1, _MAX_VARINT_BYTES):
            if not len(more):
                break
            byte = self.data[self.position[more] + index]
            number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            length[more] += 1
            more = more[byte >= 0x80]
        self.ok[more] = False
        self.skip(length)
        half: Ints = (number >> np.uint64(1)).astype(np.int64)
        return half ^ -(number & np.uint64(1)).astype(np.int64)
