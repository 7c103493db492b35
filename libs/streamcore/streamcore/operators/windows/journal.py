"""The common half of the tables here: rows that were loaded wait until the next step, rows that are gone say so once.

A row that is gone is written with ``GONE`` and without values: whoever loads it forgets the earlier one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.state.table import HASH

GONE = "__gone"


class Journal(ABC):
    """A ``StateTable``. ``schema``: its columns without HASH and GONE; ``name``: those that tell rows apart."""

    def __init__(self, schema: Mapping[str, pl.DataType], name: Sequence[str]) -> None:
        self.schema = {HASH: pl.UInt64(), **schema, GONE: pl.Boolean()}
        self.name = tuple(name)
        self.loaded: list[pl.DataFrame] = []
        self._unwritten: list[pl.DataFrame] = []

    @abstractmethod
    def _changed(self) -> pl.DataFrame | None:
        """The rows changed since the last call, if there are any; those that are gone with GONE."""

    @abstractmethod
    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """All live rows of one bucket."""

    def changes(self) -> pl.DataFrame:
        self.note()
        frames, self._unwritten = self._unwritten, []
        return pl.concat(frames) if frames else pl.DataFrame(schema=self.schema)

    def load(self, rows: pl.DataFrame) -> None:
        self.loaded.append(rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items()))

    def note(self) -> None:
        """Make the rows that have changed: to be called while their keys are still known."""
        changed = self._changed()
        if changed is not None:
            self._unwritten.append(changed)

    def taken(self) -> pl.DataFrame:
        """All live rows, as they are after what was loaded."""
        frames, self.loaded = [self.rows(0, 1), *self.loaded], []
        every = pl.concat(frames)
        latest = every.unique(self.name, keep="last", maintain_order=True) if self.name else every.tail(1)
        return latest.filter(~pl.col(GONE))
