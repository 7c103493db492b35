"""Rows on their way to a lane: columns until the last moment, then records with JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import polars as pl

from streamcore.lanes import Record


@dataclass(frozen=True, slots=True)
class LaneRows:
    """Rows for a lane, before they are bytes. ``key``: the columns that make a record's key; none: no key.

    Columns whose names begin with two underscores are the engine's and stay out of a record.
    """

    lane: str
    key: tuple[str, ...]
    rows: pl.DataFrame

    def values(self) -> list[bytes]:
        """Each row as a JSON object: decimals as text, so that they stay exact; times as ISO 8601, UTC."""
        lines = self.rows.select(pl.exclude("^__.*$")).write_ndjson().encode()
        return lines.split(b"\n")[: self.rows.height]

    def keys(self) -> list[bytes | None]:
        """The text of the key's column, or a JSON array of several; null where the key is null."""
        columns = self.rows.select(self.key)
        if not self.key:
            return [None] * self.rows.height
        if len(self.key) == 1:
            texts = columns.to_series().cast(pl.String).to_list()
            return [None if text is None else text.encode() for text in texts]
        return [orjson.dumps(row, default=str) for row in columns.iter_rows()]

    def records(self) -> Iterator[Record]:
        """One a row, in order."""
        for key, value in zip(self.keys(), self.values(), strict=True):
            yield Record(self.lane, key, value)
