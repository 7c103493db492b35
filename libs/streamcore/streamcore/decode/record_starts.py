"""Looks at the first bytes of many records together: their prefixes tell their format."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.decode.assembly import Rows


class RecordStarts:
    """Where the records of a batch are. ``content``: their bytes, and others; ``begins`` and ``ends``: the positions of
    each record in it. ``lengths``: -1 for null records."""

    def __init__(self, data: pa.LargeBinaryArray) -> None:
        count = len(data)
        _, offsets, content = data.buffers() if count else (None, b"\0" * 8, None)
        bounds = np.frombuffer(offsets, np.int64, count + 1, data.offset * np.int64().itemsize if count else 0).copy()
        self.begins, self.ends = bounds[:-1], bounds[1:]
        self.content = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
        self.content.flags.writeable = False
        self.lengths = np.diff(bounds)
        if data.null_count:
            self.lengths[~np.asarray(data.is_valid())] = -1

    def select_within(self, rows: Rows, max_bytes: int) -> Rows:
        """Return those of the ``rows`` whose records are not null and not longer than ``max_bytes``."""
        lengths = self.lengths if len(rows) == len(self.lengths) else self.lengths[rows]
        fits = (lengths >= 0) & (lengths <= max_bytes)
        return rows if fits.all() else rows[fits]

    def places(self, rows: Rows, skipped: int) -> tuple[Rows, Rows]:
        """Return where the ``rows`` begin, without the first bytes, and where they end."""
        if len(rows) == len(self.begins):
            return self.begins + skipped, self.ends
        return self.begins[rows] + skipped, self.ends[rows]

    def match(self, rows: Rows, prefix: bytes) -> npt.NDArray[np.bool_]:
        """Return which of the ``rows`` begin with a prefix."""
        from streamcore.decode.walk.prefixes import find_prefix  # loads the compiler

        matched = np.ones(len(rows), np.bool_)
        if prefix:  # else all do
            find_prefix(self.content, *self.places(rows, 0), np.frombuffer(prefix, np.uint8), matched)
        return matched

    def schema_ids(self, magic: int, max_bytes: int) -> npt.NDArray[np.int64]:
        """Return the number in the four bytes behind the byte ``magic`` that each record begins with; -1 for null, for
        what has no such beginning, and for more than ``max_bytes``."""
        from streamcore.decode.walk.prefixes import read_schema_ids  # loads the compiler

        ids = np.empty(len(self.lengths), np.int64)
        read_schema_ids(self.content, self.begins, self.lengths, magic, max_bytes, ids)
        return ids
