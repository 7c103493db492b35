"""The lookup join: each row of a stream with the table's row of its key at the moment the row arrives.

The table is fed by a stream of changes: the last change of a key to arrive is the key's row, or deletes it. Within a
cut all changes come before all rows, so the output does not depend on how the two inputs were read within it; it does
depend on the cut that a change and a row arrive in. Where that matters, join by event time (``temporal``). Event times
are not looked at, and so nothing is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REFUSED, JoinInput
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import Ints, SortedRun
from streamcore.state.table import StateTable
from streamcore.windowing.model import END_OF_TIME_MS

#: Any distance in time.
_EVER_MS = END_OF_TIME_MS // 2


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """The settings of the lookup join. ``keys``: of the stream (left) and of the table (right).

    ``deleted``: the column of a change that marks the deletion of its key: where it is true, if it is boolean,
    otherwise where it is null. ``max_rows``: what a shard keeps of the table, and of rows that wait; more are refused.
    """

    keys: JoinKeys
    kind: JoinKind = JoinKind.INNER
    deleted: str | None = None
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS

    def check(self, table: Schema) -> None:
        """Raise ``ConfigError`` where it cannot work."""
        if self.kind is JoinKind.FULL:
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
        """Return each row joined with the table row at its place (-1: none), in order, with the row's event time."""
        found, lost = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        left = rows[found]
        output = columns.at(left[EVENT_MS].to_numpy(), left, table.frame(places[found]))
        if self.kind is JoinKind.INNER:
            return output
        both = pl.concat([output, columns.left_only(rows[lost])])
        return both[np.argsort(np.concatenate([found, lost]))]


class LookupJoin:
    """The operator. Inputs: the stream, the changes of the table."""

    output_delay_ms = 0

    def __init__(self, spec: LookupSpec, stream: Schema, table: Schema) -> None:
        spec.check(table)
        self.spec = spec
        self._columns = JoinColumns.build(stream, table, spec.keys, spec.suffix)
        self._stream = JoinInput("stream", stream, spec.keys.left, spec.max_rows)  # of which nothing is kept
        self._table = JoinInput("table", table, spec.keys.right, spec.max_rows)

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:  # noqa: ARG002 - it asks for no time
        rows, keyless = self._stream.split_keyless(inputs[0])
        _, refused = apply_changes(self._table, self.spec, self._table.split_keyless(inputs[1])[0])
        asked = self._stream.table.to_run(rows)
        found = self._table.table.find(asked, -_EVER_MS, _EVER_MS)
        places = np.full(rows.height, -1)
        places[asked.numbers[found.rows] - asked.numbers.min(initial=END_OF_TIME_MS)] = found.places
        output = [self.spec.join_rows(self._columns, rows, self._table.table, places)]
        if self.spec.kind is JoinKind.LEFT:
            output.append(self._columns.left_only(keyless))
        return {MAIN: pl.concat(output), REFUSED: self._columns.refused_rows(rows.clear(), refused)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"table": self._table.table}

    def on_state_loaded(self) -> None:
        """Nothing to do."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._stream.metrics(), **self._table.metrics()}


def apply_changes(side: JoinInput, spec: LookupSpec, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
    """Apply the last change of each key to the table. Return those changes, and the refused ones among them.

    A change is refused when it would add a key beyond the limit.
    """
    table = side.table
    changes = changes.unique(subset=table.keys, keep="last", maintain_order=True)
    run = table.to_run(changes)
    known = table.find(run, -_EVER_MS, _EVER_MS)
    table.delete(known.places)
    adds = ~spec.deletions(run.frame).to_numpy()
    new = adds.copy()
    new[known.rows] = False
    room = max(0, side.max_rows - len(table) - int((adds & ~new).sum()))
    over = np.flatnonzero(new)
    over = over[np.argsort(run.numbers[over])][room:]
    adds[over] = False
    table.add(run.take(np.flatnonzero(adds)))
    return run, side.refuse(run.frame[over])
