"""The look-up join: each row of a stream with what a table says of its key at the moment the row arrives.

The table is fed by a stream of changes: the last change of a key to arrive is what the table says, or that it says
nothing of the key. Within a cut all changes come before all rows, so the output does not depend on how the two inputs
were read within it; it does depend on the cut that a change and a row arrive in. Where that matters, join by event time
(``temporal``). Event times are not looked at, and so nothing is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.joins.columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.sides import DEFAULT_MAX_ROWS, REFUSED, Side
from streamcore.operators.operator import MAIN, Ports, StepTime
from streamcore.schema import EVENT_MS
from streamcore.state.rows import RowTable
from streamcore.state.run import Ints, Run
from streamcore.state.table import StateTable
from streamcore.windowing.values import END_OF_TIME_MS

#: Any distance in time.
_EVER_MS = END_OF_TIME_MS // 2


@dataclass(frozen=True, slots=True)
class LookUpSpec:
    """What is looked up. ``keys``: of the stream (left) and of the table (right).

    ``deleted``: the column of a change that says that it deletes its key: where it is true, if it is boolean, otherwise
    where it is null. ``max_rows``: what a shard keeps of the table, and of rows that wait; more are refused.
    """

    keys: JoinKeys
    kind: JoinKind = JoinKind.INNER
    deleted: str | None = None
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS

    def check(self, table: Schema) -> None:
        """``ConfigError`` where it cannot work."""
        if self.kind is JoinKind.FULL:
            raise ConfigError("a look-up is inner or left: what the table says without a row asking is no output")
        if self.deleted is not None and (self.deleted not in table or self.deleted in self.keys.right):
            raise ConfigError(f"deleted: {self.deleted!r} must be a column of the table that is not part of its key")

    def deletions(self, changes: pl.DataFrame) -> pl.Series:
        """Which changes delete their key."""
        if self.deleted is None:
            return pl.repeat(value=False, n=changes.height, dtype=pl.Boolean, eager=True)
        column = changes[self.deleted]
        if column.dtype != pl.Boolean:
            return column.is_null()
        return column.fill_null(value=False) if column.null_count() else column

    def answers(self, columns: JoinColumns, rows: pl.DataFrame, table: RowTable, places: Ints) -> pl.DataFrame:
        """The rows with what is at their places (-1: nothing), in the order of the rows, at their own event times."""
        found, lost = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        left = rows[found]
        output = columns.at(left[EVENT_MS].to_numpy(), left, table.frame(places[found]))
        if self.kind is JoinKind.INNER:
            return output
        both = pl.concat([output, columns.left_only(rows[lost])])
        return both[np.argsort(np.concatenate([found, lost]))]


class LookUpJoin:
    """The operator. Inputs: the stream, the changes of the table."""

    output_delay_ms = 0

    def __init__(self, spec: LookUpSpec, stream: Schema, table: Schema) -> None:
        spec.check(table)
        self.spec = spec
        self._columns = JoinColumns.of(stream, table, spec.keys, spec.suffix)
        self._stream = Side("stream", stream, spec.keys.left, spec.max_rows)  # of which nothing is kept
        self._table = Side("table", table, spec.keys.right, spec.max_rows)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:  # noqa: ARG002 - it asks for no time
        rows, keyless = self._stream.keyed(inputs[0])
        _, refused = bring_up_to_date(self._table, self.spec, self._table.keyed(inputs[1])[0])
        asked = self._stream.table.sort(rows)
        found = self._table.table.find(asked, -_EVER_MS, _EVER_MS)
        places = np.full(rows.height, -1)
        places[asked.numbers[found.rows] - asked.numbers.min(initial=END_OF_TIME_MS)] = found.places
        output = [self.spec.answers(self._columns, rows, self._table.table, places)]
        if self.spec.kind is JoinKind.LEFT:
            output.append(self._columns.left_only(keyless))
        return {MAIN: pl.concat(output), REFUSED: self._columns.refused(rows.clear(), refused)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"table": self._table.table}

    def loaded(self) -> None:
        """Nothing to do."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._stream.metrics(), **self._table.metrics()}


def bring_up_to_date(side: Side, spec: LookUpSpec, changes: pl.DataFrame) -> tuple[Run, pl.DataFrame]:
    """Let the last change of each key to arrive be what the table says. Returns those changes, and the ones among them
    that would have added a key beyond the limit."""
    table = side.table
    changes = changes.unique(subset=table.keys, keep="last", maintain_order=True)
    run = table.sort(changes)
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
