"""The lookup join: joins each row of a stream to the row that a table has for its key when the row arrives.

A stream of changes writes the table: the last change of a key to arrive replaces or deletes the row of the key. In a
cut the join applies all changes before it looks up rows. So the output does not depend on the order of the two inputs
within a cut, but it depends on the cuts in which a change and a row arrive. If that matters, join by event time
(``temporal``). The lookup join ignores event times, so no row is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REJECTED, JoinInput
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.paging import PagedRows, PagedTable
from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import Ints, SortedRun
from streamcore.state.table import StateTable
from streamcore.windowing.model import END_OF_TIME_MS

#: A distance in time that covers all rows, in milliseconds.
_EVER_MS = END_OF_TIME_MS // 2


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """The settings of a lookup join or a temporal join. ``keys``: of the stream (left) and of the table (right).

    ``deleted``: the column of a change that marks the deletion of its key: a boolean column does so with true, a column
    of another type with null. ``suffix`` ends the names of table columns that the stream has too. ``max_rows``: how
    many rows of the table, and how many waiting rows, a shard stores; the join rejects further rows.
    """

    keys: JoinKeys
    kind: JoinKind = JoinKind.INNER
    deleted: str | None = None
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS

    def check(self, table: Schema) -> None:
        """Raise ``ConfigError`` if the settings do not fit the columns of the table."""
        if self.kind.keeps_right:
            raise ConfigError(
                "a look-up is inner or left: rows of the table without a row of the stream are not emitted"
            )
        if self.deleted is not None and (self.deleted not in table or self.deleted in self.keys.right):
            raise ConfigError(f"deleted: {self.deleted!r} must be a column of the table that is not part of its key")

    def deletions(self, changes: pl.DataFrame) -> pl.Series:
        """Return a mask of the changes that delete their key."""
        if self.deleted is None:
            return pl.repeat(value=False, n=changes.height, dtype=pl.Boolean, eager=True)
        column = changes[self.deleted]
        if column.dtype != pl.Boolean:
            return column.is_null()
        return column.fill_null(value=False) if column.null_count() else column

    def join_rows(self, columns: JoinColumns, rows: pl.DataFrame, table: RowTable, places: Ints) -> pl.DataFrame:
        """Return the rows joined to table rows, in order, with the event times of ``rows``.

        ``places``, of shape (rows,): the place of the table row of each row, -1 if there is none.
        """
        matched, unmatched = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        left = rows[matched]
        output = columns.at(left[EVENT_MS].to_numpy(), left, table.frame(places[matched]))
        if self.kind is JoinKind.INNER:
            return output
        all_rows = pl.concat([output, columns.left_only(rows[unmatched])])
        return all_rows[np.argsort(np.concatenate([matched, unmatched]))]


class LookupJoin:
    """The operator of a lookup join. Its inputs are the stream and the changes of the table."""

    output_delay_ms = 0

    def __init__(self, spec: LookupSpec, stream: Schema, table: Schema) -> None:
        spec.check(table)
        self.spec = spec
        self._columns = JoinColumns.build(stream, table, spec.keys, spec.suffix)
        self._stream = JoinInput("stream", stream, spec.keys.left, spec.max_rows)  # its table stays empty
        self._table = JoinInput("table", table, spec.keys.right, spec.max_rows)
        self.paged_state = PagedRows({"table": PagedTable(self._table.table)})

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:  # noqa: ARG002 - the join ignores time
        rows, keyless = self._stream.split_keyless(inputs[0])
        _, rejected = apply_changes(self._table, self.spec, self._table.split_keyless(inputs[1])[0])
        run = self._stream.table.to_run(rows)
        matches = self._table.table.find(run, -_EVER_MS, _EVER_MS)
        places = np.full(rows.height, -1)
        places[run.numbers[matches.rows] - run.numbers.min(initial=END_OF_TIME_MS)] = matches.places
        output = [self.spec.join_rows(self._columns, rows, self._table.table, places)]
        if self.spec.kind is JoinKind.LEFT:
            output.append(self._columns.left_only(keyless))
        return {MAIN: pl.concat(output), REJECTED: self._columns.rejected_rows(rows.clear(), rejected)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"table": self._table.table}

    def on_state_loaded(self) -> None:
        """Nothing to do."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._stream.metrics(), **self._table.metrics()}


def apply_changes(side: JoinInput, spec: LookupSpec, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
    """Apply the last change of each key to the table. Return these changes, and the rejected changes among them.

    A change is rejected if it would add a key beyond ``max_rows``.
    """
    table = side.table
    changes = changes.unique(subset=table.keys, keep="last", maintain_order=True)
    run = table.to_run(changes)
    matches = table.find(run, -_EVER_MS, _EVER_MS)
    table.delete(matches.places)
    written = ~spec.deletions(run.frame).to_numpy()
    new = written.copy()
    new[matches.rows] = False
    room = max(0, side.max_rows - len(table) - int((written & ~new).sum()))
    over_limit = np.flatnonzero(new)
    over_limit = over_limit[np.argsort(run.numbers[over_limit])][room:]
    written[over_limit] = False
    table.add(run.take(np.flatnonzero(written)))
    return run, side.reject(run.frame[over_limit])
