"""One input of a join: admits its rows, and stores them.

All joins use this class. Of the rows that arrive, those behind the watermark are late, those with a null in their key
join nothing (as in SQL), those that the full table cannot store are rejected, and the join accepts the others. A
rejected or late row joins nothing, so the output is exactly the join of the accepted rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable

#: The port of rejected rows: those that would exceed ``max_rows``.
REJECTED = "rejected"
DEFAULT_MAX_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class AdmittedRows:
    """The rows of a cut by admission: accepted, keyless, late or rejected; each in order of arrival."""

    rows: pl.DataFrame
    keyless: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame


class JoinInput:
    """One input of a join with the table of its rows. ``max_rows``: how many rows the table stores at most."""

    def __init__(self, name: str, schema: Mapping[str, pl.DataType], keys: tuple[str, ...], max_rows: int) -> None:
        if max_rows < 1:
            raise ConfigError(f"max_rows must be positive, not {max_rows}")
        self.name = name
        self.max_rows = max_rows
        self.table = RowTable({**schema, EVENT_MS: pl.Int64()}, keys)
        self._late = self._keyless = self._rejected = 0

    def admit(self, rows: pl.DataFrame, late_before_ms: int) -> AdmittedRows:
        """Split the rows of a cut into accepted, keyless, late (before this event time) and rejected ones."""
        late, rows = _split(rows, rows[EVENT_MS] < late_before_ms)
        self._late += late.height
        rows, keyless = self.split_keyless(rows)
        room = max(0, self.max_rows - len(self.table))
        return AdmittedRows(rows[:room], keyless, late, self.reject(rows[room:]))

    def split_keyless(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows with a key, and the rows with a null in their key."""
        rows = rows.select(self.table.schema.names())
        keyless, rows = _split(rows, rows.select(pl.any_horizontal(pl.col(self.table.keys).is_null())).to_series())
        self._keyless += keyless.height
        return rows, keyless

    def reject(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Count these rows as rejected, and return them."""
        self._rejected += rows.height
        return rows

    def metrics(self) -> dict[str, int]:
        """Return the counts since the last call and reset them, and the number of stored rows."""
        counts = {"late": self._late, "keyless": self._keyless, "rejected": self._rejected, "kept": len(self.table)}
        self._late = self._keyless = self._rejected = 0
        return {f"{self.name}_{counter}": count for counter, count in counts.items()}


def _split(rows: pl.DataFrame, mask: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows where the mask is true, and the rows where it is not."""
    if not mask.any():
        return rows.clear(), rows
    return rows.filter(mask), rows.filter(~mask)
