"""The base of the windowed operators' tables: loaded rows wait until the next step, deleted rows are written once.

A deleted row is written with ``GONE`` and without values; loading it removes the earlier row of the same name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.state.table import HASH

GONE = "__gone"


class JournaledTable(ABC):
    """A ``StateTable`` with tombstones. ``schema``: without HASH and GONE. ``name``: columns that identify a row."""

    def __init__(self, schema: Mapping[str, pl.DataType], name: Sequence[str]) -> None:
        self.schema = {HASH: pl.UInt64(), **schema, GONE: pl.Boolean()}
        self.name = tuple(name)
        self.loaded: list[pl.DataFrame] = []
        self._unwritten: list[pl.DataFrame] = []

    @abstractmethod
    def _take_changes(self) -> pl.DataFrame | None:
        """Return the rows changed since the last call, if any; deleted ones with GONE."""

    @abstractmethod
    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """Return all live rows of one bucket."""

    def changes(self) -> pl.DataFrame:
        self.record_changes()
        frames, self._unwritten = self._unwritten, []
        return pl.concat(frames) if frames else pl.DataFrame(schema=self.schema)

    def load(self, rows: pl.DataFrame) -> None:
        self.loaded.append(rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items()))

    def record_changes(self) -> None:
        """Record the rows that have changed; to be called while their keys are still known."""
        changed = self._take_changes()
        if changed is not None:
            self._unwritten.append(changed)

    def take_loaded(self) -> pl.DataFrame:
        """Return all live rows, in their state after the load."""
        frames, self.loaded = [self.rows(0, 1), *self.loaded], []
        every = pl.concat(frames)
        latest = every.unique(self.name, keep="last", maintain_order=True) if self.name else every.tail(1)
        return latest.filter(~pl.col(GONE))
