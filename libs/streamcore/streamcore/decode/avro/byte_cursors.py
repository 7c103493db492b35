"""Reads Avro's binary encoding from many records together, with numpy.

Each method reads one item of every row and advances the row's position. A row whose bytes do not fit is no longer
``ok``; its position stays within its record, and the reference finds the reason. Knows no schema.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
#: Nine bytes have 63 bits; longer varints are left to the reference.
_MAX_VARINT_BYTES = 9
_PADDING_BYTES = 16


class ByteCursors:
    """The position of each row in its record.

    ``position`` and ``end``: indexes in ``data``, by row. ``data`` has padding at its end, so that a varint can be read
    at any position. ``ok``: by row, False once the row's bytes do not fit.
    """

    def __init__(self, data: Bytes, position: Ints, end: Ints) -> None:
        self.data, self.position, self.end = data, position, end
        self.ok: Bools = np.ones(len(position), dtype=np.bool_)

    @classmethod
    def from_records(cls, records: pa.LargeBinaryArray) -> ByteCursors:
        """Return cursors at the first byte of each record. A null record is like an empty one."""
        count = len(records)
        bounds = np.frombuffer(records.buffers()[1], dtype=np.int64, count=count + 1, offset=8 * records.offset)
        values = records.buffers()[2]
        data = np.zeros(int(bounds[-1] - bounds[0]) + _PADDING_BYTES, dtype=np.uint8)
        if values is not None:
            data[:-_PADDING_BYTES] = np.frombuffer(values, dtype=np.uint8)[bounds[0] : bounds[-1]]
        bounds = bounds - bounds[0]
        return cls(data, bounds[:-1].copy(), bounds[1:].copy())

    def __len__(self) -> int:
        return len(self.position)

    def subset(self, rows: Ints) -> ByteCursors:
        """Return cursors of some of the rows."""
        part = ByteCursors(self.data, self.position[rows], self.end[rows])
        part.ok = self.ok[rows]
        return part

    def write_back(self, rows: Ints, part: ByteCursors) -> None:
        """Take over position and ``ok`` from ``part``, the result of ``subset(rows)``."""
        self.position[rows], self.ok[rows] = part.position, part.ok

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

    def read_byte(self) -> Bytes:
        """Read a byte of each row."""
        before = self.skip(1)
        return self.data[before]

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

    def read_prefixed(self) -> tuple[Ints, Ints]:
        """Read bytes that follow their length; return where they begin and how many there are, by row."""
        length = self.read_long()
        before = self.skip(length)
        return before, np.where(self.ok, length, 0)

    def slice_bytes(self, begin: Ints, length: Ints) -> pl.Series:
        """Return ``length`` bytes from ``begin`` on, by row, as a binary column."""
        bounds = np.zeros(len(begin) + 1, dtype=np.int64)
        np.cumsum(length, out=bounds[1:])
        positions = np.repeat(begin - bounds[:-1], length) + np.arange(bounds[-1])
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data[positions])]
        return pl.Series(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(begin), buffers), dtype=pl.Binary)
