"""Looks at the first bytes of many records together: their prefixes tell what is in them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.assembly import Rows

#: Longer prefixes are compared by Arrow.
_MOST_BYTES = 16


class RecordStarts:
    """The lengths and the first bytes of the records of a batch. ``lengths``: -1 for null records."""

    def __init__(self, data: pa.LargeBinaryArray) -> None:
        count = len(data)
        self._data = data
        _, offsets, content = data.buffers() if count else (None, b"\0" * 8, None)
        first = data.offset if count else 0
        bounds = np.frombuffer(offsets, np.int64, count + 1, first * np.int64().itemsize)
        self._begins = bounds[:-1]
        self._content = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        self.lengths = np.diff(bounds)
        if data.null_count:
            self.lengths[~np.asarray(data.is_valid())] = -1

    def rows_within(self, max_bytes: int) -> Rows:
        """Return the rows of the records that are not null and not longer than ``max_bytes``."""
        return np.flatnonzero((self.lengths >= 0) & (self.lengths <= max_bytes))

    def bytes_at(self, rows: Rows, place: int) -> npt.NDArray[np.uint8]:
        """Return one byte of each of the ``rows``, which have so many."""
        return self._content[self._begins[rows] + place]

    def match(self, rows: Rows, prefix: bytes) -> npt.NDArray[np.bool_]:
        """Return which of the ``rows`` begin with a prefix."""
        matched: npt.NDArray[np.bool_] = self.lengths[rows] >= len(prefix)
        if len(prefix) > _MOST_BYTES:
            data = self._data if len(rows) == len(self._data) else self._data.take(pa.array(rows))
            matched &= np.asarray(pc.fill_null(pc.starts_with(data, prefix), fill_value=False))
            return matched
        begins = self._begins if len(rows) == len(self._begins) else self._begins[rows]
        if not matched.all():
            begins = begins[matched]
        same = np.ones(len(begins), np.bool_)
        for place, byte in enumerate(prefix):
            same &= self._content[begins + place] == byte
        matched[matched] = same
        return matched
