"""The table-table join: the current rows of two changing tables under each key, emitted whenever one of them changes.

The left is a table of things that come and go, such as products: a change of a key holds if it is later than the one
that holds, by event time, then by the columns ``order``, then by arrival. A change may delete its key; later changes
bring it back, earlier ones do not, for the deletion is remembered. The right adds columns to the keys, such as counts:
there the last change to arrive holds, and a row of a key that the left does not have waits until the left has it.

What comes out, at the end of a cut, at most one row a key:

- the left's row with the right's beside it, when the left's row is new, has changed or has come back. A change that
  repeats the values before it, apart from ``order`` and its event time, does not count;
- the deletion with nothing beside it, when the left's row has been deleted, known before or not: once, until the key
  has come back at the end of a cut;
- the same row with the right's current row beside it, when only the right has changed: at once if the key's last row is
  ``refresh_ms`` old by the clock, otherwise as soon as it is.

So after the last change, and ``refresh_ms`` later, the last row of each key is a function of the changes alone where
the right's changes of a key come in one order: however the input is cut. Nothing is late. A row's event time is that
of the left's change, or the watermark where that is later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REFUSED, JoinInput
from streamcore.operators.joins.lookup import LookupSpec, apply_changes
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.throttle import EVER_MS, OutputThrottle
from streamcore.schema import EVENT_MS
from streamcore.state.sorted_run import Ints, Mask, SortedRun, concat_runs
from streamcore.state.table import StateTable

#: Begins the name of a column beside its namesake of before.
_NOW = "__now_"


@dataclass(frozen=True, slots=True)
class TableTableSpec:
    """``deleted``: of each side, the column of a change that marks the deletion of its key: where it is true, if it is
    boolean, otherwise where it is null. ``order``: whole numbers of the left that order changes of one event time.
    ``max_rows``: what a shard keeps of each side, deletions of the left included; more keys are refused."""

    keys: JoinKeys
    deleted: str | None = None
    right_deleted: str | None = None
    order: tuple[str, ...] = ()
    refresh_ms: int = 0
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS

    def check(self, left: Schema, right: Schema) -> None:
        """Raise ``ConfigError`` where it cannot work."""
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
    """The operator. Inputs: the changes of the left table and of the right one."""

    output_delay_ms = 0

    def __init__(self, spec: TableTableSpec, left: Schema, right: Schema) -> None:
        spec.check(left, right)
        self.spec = spec
        self._columns = JoinColumns.build(left, right, spec.keys, spec.suffix)
        self._left = JoinInput("left", left, spec.keys.left, spec.max_rows)
        self._right = JoinInput("right", right, spec.keys.right, spec.max_rows)
        self._throttle = OutputThrottle({name: left[name] for name in spec.keys.left}, spec.refresh_ms)
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
        now, refused_left = self._change_left(self._left.split_keyless(inputs[0])[0])
        asked, refused_right = apply_changes(
            self._right, self.spec.right_lookup, self._right.split_keyless(inputs[1])[0]
        )
        free = self._throttle.ready(self._unchanged_rows([asked, due], now))
        self._throttle.record_emitted(
            now, now.take(np.flatnonzero(~self._deletion_mask(now.frame))), free, time.clock_ms
        )
        main = self._join_rows(concat_runs([run for run in (now, free) if len(run)] or [now]), time.watermark_ms)
        refused = refused_left.height or refused_right.height
        lost = self._columns.refused_rows(refused_left, refused_right) if refused else self._nothing[REFUSED]
        return {MAIN: main, REFUSED: lost}

    @cached_property
    def _nothing(self) -> Ports:
        """Return the ports of a cut without changes: empty frames."""
        none = (self._left.table.schema.to_frame(), self._right.table.schema.to_frame())
        return {MAIN: self.schema.to_frame(), REFUSED: self._columns.refused_rows(*none)}

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

    # --- the left -----------------------------------------------------------------------------------------------

    def _change_left(self, changes: pl.DataFrame) -> tuple[SortedRun, pl.DataFrame]:
        """Apply the changes to the left table. Return those to emit, and those refused."""
        table, order = self._left.table, [EVENT_MS, *self.spec.order]
        if not changes.height:
            return table.to_run(changes), changes
        newest = changes.sort(order, maintain_order=True).unique(table.keys, keep="last", maintain_order=True)
        run = table.to_run(newest)
        known = table.find(run, -EVER_MS, EVER_MS)
        before = table.frame(known.places)
        older = _is_older(run.frame[known.rows], before, order)
        self._older_changes += changes.height - newest.height + int(older.sum())
        holds = np.ones(len(run), dtype=bool)
        holds[known.rows[older]] = False
        over = self._over_limit(run, known.rows)
        holds[over] = False
        emitted = holds & ~self._is_repeated(run.frame, known.rows, before)
        table.delete(known.places[~older])
        table.add(run.take(np.flatnonzero(holds)))
        return run.take(np.flatnonzero(emitted)), self._left.refuse(run.frame[over])

    def _over_limit(self, run: SortedRun, known: Ints) -> Ints:
        """Return the new keys beyond the limit: those that arrived last."""
        new = np.setdiff1d(np.arange(len(run)), known)
        new = new[np.argsort(run.numbers[new])]
        return new[max(0, self._left.max_rows - len(self._left.table)) :]

    def _is_repeated(self, rows: pl.DataFrame, known: Ints, before: pl.DataFrame) -> Mask:
        """Return a mask of the rows that repeat a deletion or the same values.

        ``known``: the rows whose keys the table holds; ``before``, of shape (known,): the table's rows of these keys.
        """
        repeated = np.zeros(rows.height, dtype=bool)
        again = rows[known]
        was, now = self._deletion_mask(before), self._deletion_mask(again)
        alike = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{_NOW}{name}")) for name in self._compared_columns)
        both = before.select(self._compared_columns).hstack(
            [again[name].alias(f"{_NOW}{name}") for name in self._compared_columns]
        )
        repeated[known] = (was == now) & (now | both.select(alike).to_series().to_numpy())
        return repeated

    def _deletion_mask(self, rows: pl.DataFrame) -> Mask:
        deleted: Mask = self.spec.left_lookup.deletions(rows).to_numpy()
        return deleted

    # --- what comes out -----------------------------------------------------------------------------------------

    def _unchanged_rows(self, asked: Sequence[SortedRun], now: SortedRun) -> SortedRun:
        """Return the live left rows of the keys of these runs, except those that are emitted anyway."""
        table = self._left.table
        changed = table.find(now, -EVER_MS, EVER_MS).places
        places = np.concatenate([table.find(run, -EVER_MS, EVER_MS).places for run in asked])
        run = table.run(np.setdiff1d(places, changed))
        deleted = self._deletion_mask(run.frame)
        return run.take(np.flatnonzero(~deleted)) if deleted.any() else run

    def _join_rows(self, run: SortedRun, watermark_ms: int) -> pl.DataFrame:
        """Return the rows with the right's rows beside them, deletions with nulls."""
        table = self._right.table
        found = table.find(run, -EVER_MS, EVER_MS)
        beside = np.full(len(run), -1)
        beside[found.rows] = np.arange(len(found.rows))
        beside[self._deletion_mask(run.frame)] = -1
        place = pl.Series(beside).set(pl.Series(beside < 0), None)
        right = table.frame(found.places).select(pl.all().gather(place))
        return self._columns.at(np.maximum(run.times, watermark_ms), run.frame, right)


def _is_older(rows: pl.DataFrame, than: pl.DataFrame, order: Sequence[str]) -> Mask:
    """Return a mask of the rows that precede the row beside them, in the order of these columns."""
    older = np.zeros(rows.height, dtype=bool)
    equal = np.ones(rows.height, dtype=bool)
    for name in order:
        one, other = rows[name].to_numpy(), than[name].to_numpy()
        older |= equal & (one < other)
        equal &= one == other
    return older
