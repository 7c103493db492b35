"""The table-table join: joins two changing tables by key, and emits the joined row of a key when either side changes.

The left table has rows that are written and deleted, such as products. A change of a key replaces the stored row if it
is later: by event time, then by the columns ``order``, then by arrival. A change may delete its key. The table stores
the deletion, so that a change from before it is ignored and only a later change creates the row again. The right table
adds columns, such as counts. There the last change to arrive replaces the stored row. A row of a key that the left
table does not have is stored, and emitted when the left table gets the key.

At the end of a cut the join emits at most one row per key:

- The left row is new, changed or was created again: the left row, joined to the right row. A change that repeats the
  stored values, except for ``order`` and the event time, emits nothing.
- The left row was deleted, even if the table did not have it: a row that marks the deletion, with nulls in the right
  columns. It is emitted once, until the key exists again at the end of a cut.
- Only the right row changed: the left row, joined to the new right row. It is emitted at once if ``refresh_ms`` have
  passed since the last emitted row of the key, by the clock of the cut, and otherwise as soon as they have passed.

Once ``refresh_ms`` have passed since the last change, the last emitted row of each key depends only on the changes, and
not on how the input is divided into cuts. This requires that the right changes of one key arrive in a fixed order. No
row is late. The event time of an emitted row is that of the left change, or the watermark if that is later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REJECTED, JoinInput
from streamcore.operators.joins.lookup import LookupSpec, apply_changes
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.paging import PagedRows, PagedTable
from streamcore.operators.joins.throttle import EVER_MS, OutputThrottle
from streamcore.schema import EVENT_MS
from streamcore.state.sorted_run import Ints, Mask, SortedRun, concat_runs
from streamcore.state.table import StateTable

#: Prefix of the columns with the new values, next to the columns with the stored values.
_NOW = "__now_"


@dataclass(frozen=True, slots=True)
class TableTableSpec:
    """The settings of a table-table join.

    ``deleted`` and ``right_deleted`` name the column of the left and of the right table that marks a deletion: a
    boolean column does so with true, a column of another type with null. ``order``: columns of whole numbers of the
    left table that order changes of one event time. ``refresh_ms``: the shortest time between two rows of a key of
    which only the right row changed, in milliseconds of the clock. ``suffix`` ends the names of right columns that the
    left table has too. ``max_rows``: how many rows of each table a shard stores, stored deletions included; the join
    rejects changes of further keys.
    """

    keys: JoinKeys
    deleted: str | None = None
    right_deleted: str | None = None
    order: tuple[str, ...] = ()
    refresh_ms: int = 0
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS

    def check(self, left: Schema, right: Schema) -> None:
        """Raise ``ConfigError`` if the settings do not fit the columns of the two tables."""
        LookupSpec(JoinKeys(self.keys.right, self.keys.left), deleted=self.deleted).check(left)
        self.right_lookup.check(right)
        if self.refresh_ms < 0:
            raise ConfigError(f"refresh_ms must not be negative: {self.refresh_ms}")
        if wrong := [name for name in self.order if name not in left or not left[name].is_integer()]:
            raise ConfigError(f"order: {wrong[0]!r} must be a column of whole numbers of the left")

    @property
    def left_lookup(self) -> LookupSpec:
        """Return the lookup of the left table."""
        return LookupSpec(JoinKeys(self.keys.right, self.keys.left), deleted=self.deleted)

    @property
    def right_lookup(self) -> LookupSpec:
        """Return the lookup of the right table."""
        return LookupSpec(self.keys, JoinKind.LEFT, self.right_deleted, self.suffix)


class TableTableJoin:
    """The operator of a table-table join. Its inputs are the changes of the left table and those of the right table."""

    output_delay_ms = 0

    def __init__(self, spec: TableTableSpec, left: Schema, right: Schema) -> None:
        spec.check(left, right)
        self.spec = spec
        self._columns = JoinColumns.build(left, right, spec.keys, spec.suffix)
        self._left = JoinInput("left", left, spec.keys.left, spec.max_rows)
        self._right = JoinInput("right", right, spec.keys.right, spec.max_rows)
        self._throttle = OutputThrottle({name: left[name] for name in spec.keys.left}, spec.refresh_ms)
        self.paged_state = PagedRows(
            {
                "left": PagedTable(self._left.table),
                "right": PagedTable(self._right.table),
                "pace": PagedTable(self._throttle.table, keeps_ms=0, by_clock=True),
            }
        )
        self._compared_columns = [name for name in left if name not in spec.order]
        self._older_changes = 0

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        due = self._throttle.due(time.clock_ms)
        if not (inputs[0].height or inputs[1].height or len(due)):
            return self._nothing
        emitted_left, rejected_left = self._change_left(self._left.split_keyless(inputs[0])[0])
        changed_right, rejected_right = apply_changes(
            self._right, self.spec.right_lookup, self._right.split_keyless(inputs[1])[0]
        )
        refreshed = self._throttle.ready(self._unchanged_rows([changed_right, due], emitted_left))
        self._throttle.record_emitted(
            emitted_left,
            emitted_left.take(np.flatnonzero(~self._deletion_mask(emitted_left.frame))),
            refreshed,
            time.clock_ms,
        )
        main = self._join_rows(
            concat_runs([run for run in (emitted_left, refreshed) if len(run)] or [emitted_left]), time.watermark_ms
        )
        rejected = rejected_left.height or rejected_right.height
        rejected_rows = (
            self._columns.rejected_rows(rejected_left, rejected_right) if rejected else self._nothing[REJECTED]
        )
        return {MAIN: main, REJECTED: rejected_rows}

    @cached_property
    def _nothing(self) -> Ports:
        """Return the ports of a cut without changes: empty frames."""
        no_changes = (self._left.table.schema.to_frame(), self._right.table.schema.to_frame())
        return {MAIN: self.schema.to_frame(), REJECTED: self._columns.rejected_rows(*no_changes)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"left": self._left.table, "right": self._right.table, "pace": self._throttle.table}

    def on_state_loaded(self) -> None:
        """Nothing to do."""

    def metrics(self) -> Mapping[str, int]:
        older, self._older_changes = self._older_changes, 0
        return {
            **self._left.metrics(),
            **self._right.metrics(),
            "left_older": older,
            "paced": len(self._throttle.table),
        }

    # --- left table -----------------------------------------------------------------------------------------------

    def _change_left(self, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
        """Apply the changes to the left table. Return the changes to emit, and the rejected changes."""
        table, order = self._left.table, [EVENT_MS, *self.spec.order]
        if not changes.height:
            return table.to_run(changes), changes
        newest = changes.sort(order, maintain_order=True).unique(table.keys, keep="last", maintain_order=True)
        run = table.to_run(newest)
        matches = table.find(run, -EVER_MS, EVER_MS)
        before = table.frame(matches.places)
        older = _is_older(run.frame[matches.rows], before, order)
        self._older_changes += changes.height - newest.height + int(older.sum())
        accepted = np.ones(len(run), dtype=bool)
        accepted[matches.rows[older]] = False
        over_limit = self._over_limit(run, matches.rows)
        accepted[over_limit] = False
        emitted = accepted & ~self._is_repeated(run.frame, matches.rows, before)
        table.delete(matches.places[~older])
        table.add(run.take(np.flatnonzero(accepted)))
        return run.take(np.flatnonzero(emitted)), self._left.reject(run.frame[over_limit])

    def _over_limit(self, run: SortedRun, stored_rows: Ints) -> Ints:
        """Return the changes of new keys that exceed ``max_rows``: those that arrived last.

        ``stored_rows``: the changes whose keys the table has.
        """
        new = np.setdiff1d(np.arange(len(run)), stored_rows)
        new = new[np.argsort(run.numbers[new])]
        return new[max(0, self._left.max_rows - len(self._left.table)) :]

    def _is_repeated(self, rows: pl.DataFrame, stored_rows: Ints, before: pl.DataFrame) -> Mask:
        """Return a mask of the rows that repeat the stored values or the stored deletion of their key.

        ``stored_rows``: the rows whose keys the table has; ``before``, of shape (stored_rows,): the stored rows of
        these keys.
        """
        repeated = np.zeros(rows.height, dtype=bool)
        changes = rows[stored_rows]
        was_deleted, is_deleted = self._deletion_mask(before), self._deletion_mask(changes)
        is_equal = pl.all_horizontal(
            pl.col(name).eq_missing(pl.col(f"{_NOW}{name}")) for name in self._compared_columns
        )
        before_and_after = before.select(self._compared_columns).hstack(
            [changes[name].alias(f"{_NOW}{name}") for name in self._compared_columns]
        )
        repeated[stored_rows] = (was_deleted == is_deleted) & (
            is_deleted | before_and_after.select(is_equal).to_series().to_numpy()
        )
        return repeated

    def _deletion_mask(self, rows: pl.DataFrame) -> Mask:
        deleted: Mask = self.spec.left_lookup.deletions(rows).to_numpy()
        return deleted

    # --- output -----------------------------------------------------------------------------------------

    def _unchanged_rows(self, runs: Sequence[SortedRun], emitted_left: SortedRun) -> SortedRun:
        """Return the left rows of the keys of these runs, without deletions and without keys of ``emitted_left``."""
        table = self._left.table
        changed = table.find(emitted_left, -EVER_MS, EVER_MS).places
        places = np.concatenate([table.find(run, -EVER_MS, EVER_MS).places for run in runs])
        run = table.run(np.setdiff1d(places, changed))
        deleted = self._deletion_mask(run.frame)
        return run.take(np.flatnonzero(~deleted)) if deleted.any() else run

    def _join_rows(self, run: SortedRun, watermark_ms: int) -> pl.DataFrame:
        """Return the left rows joined to their right rows; deletions get nulls in the right columns."""
        table = self._right.table
        matches = table.find(run, -EVER_MS, EVER_MS)
        right_index = np.full(len(run), -1)
        right_index[matches.rows] = np.arange(len(matches.rows))
        right_index[self._deletion_mask(run.frame)] = -1
        gather_index = pl.Series(right_index).set(pl.Series(right_index < 0), None)
        right = table.frame(matches.places).select(pl.all().gather(gather_index))
        return self._columns.at(np.maximum(run.times, watermark_ms), run.frame, right)


def _is_older(rows: pl.DataFrame, stored: pl.DataFrame, order: Sequence[str]) -> Mask:
    """Return a mask of the ``rows`` that the columns ``order`` sort before the row of ``stored`` at their index."""
    older = np.zeros(rows.height, dtype=bool)
    equal = np.ones(rows.height, dtype=bool)
    for name in order:
        values, stored_values = rows[name].to_numpy(), stored[name].to_numpy()
        older |= equal & (values < stored_values)
        equal &= values == stored_values
    return older
