"""The table-table join: joins two changing tables by key, and emits the joined row of a key when either side changes.

The left table has rows that are written and deleted, such as products. A change of a key replaces the stored row if it
is later: by event time, then by the columns ``order``, then by arrival. A change may delete its key. The table stores
the deletion, so that a change from before it is ignored and only a later change creates the row again. The right table
adds columns, such as counts. There the last change to arrive replaces the stored row, or with ``right_order`` the
latest one, as on the left. A row of a key that the left table does not have is stored, and emitted when the left table
gets the key.

A column in ``keeps`` keeps its stored value where a change has null, until its key is deleted. A change that is older
than the stored row is ignored, also if it has a value that the stored row lacks. So that this does not depend on the
cuts, all changes of a key must arrive in a fixed order.

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
#: Columns of rows: whether the row is a change, its position in the order, and how often its key was deleted before.
_NEW, _RANK, _LIFE = "__new", "__rank", "__life"


@dataclass(frozen=True, slots=True)
class TableTableSpec:
    """The settings of a table-table join.

    ``deleted`` and ``right_deleted`` name the column of the left and of the right table that marks a deletion: a
    boolean column does so with true, a column of another type with null. ``order``: columns of whole numbers of the
    left table that order changes of one event time; ``right_order``: those of the right table, None if the last change
    to arrive counts there. ``keeps``, ``right_keeps``: columns that keep their value where a change has null; those of
    the right need ``right_order``. ``refresh_ms``: the shortest time between two rows of a key of
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
    right_order: tuple[str, ...] | None = None
    keeps: tuple[str, ...] = ()
    right_keeps: tuple[str, ...] = ()

    def check(self, left: Schema, right: Schema) -> None:
        """Raise ``ConfigError`` if the settings do not fit the columns of the two tables."""
        LookupSpec(JoinKeys(self.keys.right, self.keys.left), deleted=self.deleted).check(left)
        self.right_lookup.check(right)
        if self.refresh_ms < 0:
            raise ConfigError(f"refresh_ms must not be negative: {self.refresh_ms}")
        for entry, order, keeps, side, schema in (
            ("order", self.order, self.keeps, "left", left),
            ("right_order", self.right_order or (), self.right_keeps, "right", right),
        ):
            if wrong := [name for name in order if name not in schema or not schema[name].is_integer()]:
                raise ConfigError(f"{entry}: {wrong[0]!r} must be a column of whole numbers of the {side}")
            if unknown := [name for name in keeps if name not in schema]:
                raise ConfigError(f"keeps: {unknown[0]!r} is no column of the {side}")
        if self.right_keeps and self.right_order is None:
            raise ConfigError("right_keeps needs right_order: the order of the changes must be known")

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
        self._tables = [_OrderedTable(self._left, spec.left_lookup, spec.order, spec.keeps)]
        if spec.right_order is not None:
            self._tables.append(_OrderedTable(self._right, spec.right_lookup, spec.right_order, spec.right_keeps))

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        due = self._throttle.due(time.clock_ms)
        if not (inputs[0].height or inputs[1].height or len(due)):
            return self._nothing
        emitted_left, rejected_left = self._tables[0].apply(self._left.split_keyless(inputs[0])[0])
        changed_right, rejected_right = self._change_right(self._right.split_keyless(inputs[1])[0])
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
        older = {f"{one.side.name}_older": one.take_older() for one in self._tables}
        return {**self._left.metrics(), **self._right.metrics(), **older, "paced": len(self._throttle.table)}

    def _change_right(self, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
        """Apply the changes to the right table. Return the changes that have an effect, and the rejected changes."""
        if self.spec.right_order is None:
            return apply_changes(self._right, self.spec.right_lookup, changes)
        return self._tables[1].apply(changes)

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
        found = table.frame(matches.places)
        if self.spec.right_order is not None:  # the table stores deletions
            right_index[matches.rows[self.spec.right_lookup.deletions(found).to_numpy()]] = -1
        gather_index = pl.Series(right_index).set(pl.Series(right_index < 0), None)
        right = found.select(pl.all().gather(gather_index))
        return self._columns.at(np.maximum(run.times, watermark_ms), run.frame, right)


class _OrderedTable:
    """A table with the latest change of each key, by event time and the columns ``order``; it stores deletions.

    ``keeps``: columns that keep their value where a change has null.
    """

    def __init__(self, side: JoinInput, lookup: LookupSpec, order: tuple[str, ...], keeps: tuple[str, ...]) -> None:
        self.side = side
        self._lookup = lookup
        self._order = [EVENT_MS, *order]
        self._keeps = keeps
        self._compared_columns = [name for name in side.table.schema if name not in self._order]
        self._older_changes = 0

    def take_older(self) -> int:
        """Return the number of changes since the last call that were older than the stored row or than another."""
        older, self._older_changes = self._older_changes, 0
        return older

    def apply(self, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
        """Apply the changes, in order of arrival. Return those that have an effect, and the rejected ones."""
        table = self.side.table
        if not changes.height:
            return table.to_run(changes), changes
        newest = self._fill_kept(changes) if self._keeps else self._find_latest(changes)
        run = table.to_run(newest)
        matches = table.find(run, -EVER_MS, EVER_MS)
        before = table.frame(matches.places)
        older = _is_older(run.frame[matches.rows], before, self._order)
        self._older_changes += changes.height - newest.height + int(older.sum())
        accepted = np.ones(len(run), dtype=bool)
        accepted[matches.rows[older]] = False
        over_limit = self._over_limit(run, matches.rows)
        accepted[over_limit] = False
        effective = accepted & ~self._is_repeated(run.frame, matches.rows, before)
        table.delete(matches.places[~older])
        table.add(run.take(np.flatnonzero(accepted)))
        return run.take(np.flatnonzero(effective)), self.side.reject(run.frame[over_limit])

    def _find_latest(self, changes: pl.DataFrame) -> pl.DataFrame:
        by_time = changes.sort(self._order, maintain_order=True)
        return by_time.unique(self.side.table.keys, keep="last", maintain_order=True)

    def _fill_kept(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the last change of each key that is not older than one that arrived before it, with the kept values of
        the changes and of the stored row before it."""
        table, keys = self.side.table, self.side.table.keys
        first = table.to_run(changes.unique(keys, keep="first", maintain_order=True))
        stored = table.frame(table.find(first, -EVER_MS, EVER_MS).places).select(changes.columns)
        rows = pl.concat(
            [stored.with_columns(pl.lit(value=False).alias(_NEW)), changes.with_columns(pl.lit(value=True).alias(_NEW))]
        )
        rank = pl.struct(self._order).rank("dense")
        rows = rows.with_columns(rank.alias(_RANK)).filter(pl.col(_RANK) == pl.col(_RANK).cum_max().over(keys))
        life = pl.Series(_LIFE, self._lookup.deletions(rows).cast(pl.Int64))
        filled = rows.with_columns(life).with_columns(pl.col(_LIFE).cum_sum().over(keys))
        filled = filled.with_columns(pl.col(self._keeps).forward_fill().over(*keys, _LIFE))
        return filled.filter(_NEW).unique(keys, keep="last", maintain_order=True).select(changes.columns)

    def _over_limit(self, run: SortedRun, stored_rows: Ints) -> Ints:
        """Return the changes of new keys that exceed ``max_rows``: those that arrived last.

        ``stored_rows``: the changes whose keys the table has.
        """
        new = np.setdiff1d(np.arange(len(run)), stored_rows)
        new = new[np.argsort(run.numbers[new])]
        return new[max(0, self.side.max_rows - len(self.side.table)) :]

    def _is_repeated(self, rows: pl.DataFrame, stored_rows: Ints, before: pl.DataFrame) -> Mask:
        """Return a mask of the rows that repeat the stored values or the stored deletion of their key.

        ``stored_rows``: the rows whose keys the table has; ``before``, of shape (stored_rows,): the stored rows of
        these keys.
        """
        repeated = np.zeros(rows.height, dtype=bool)
        changes = rows[stored_rows]
        was_deleted, is_deleted = (self._lookup.deletions(each).to_numpy() for each in (before, changes))
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


def _is_older(rows: pl.DataFrame, stored: pl.DataFrame, order: Sequence[str]) -> Mask:
    """Return a mask of the ``rows`` that the columns ``order`` sort before the row of ``stored`` at their index."""
    older = np.zeros(rows.height, dtype=bool)
    equal = np.ones(rows.height, dtype=bool)
    for name in order:
        values, stored_values = rows[name].to_numpy(), stored[name].to_numpy()
        older |= equal & (values < stored_values)
        equal &= values == stored_values
    return older
