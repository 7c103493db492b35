"""The latest join: what two tables that change say of a key together, given out whenever one of them changes.

The left is a table of things that come and go, such as products: a change of a key holds if it is later than the one
that holds, by event time, then by the columns ``order``, then by arrival. A change may delete its key; later changes
bring it back, earlier ones do not, for the deletion is remembered. The right says more of the keys, such as figures:
there the last change to arrive holds, and what it says of a key that the left does not have waits until it has.

What comes out, at the end of a cut, at most one row a key:

- the left's row with the right's beside it, when the left's row is new, has changed or has come back. A change that
  says again what was said before, apart from ``order`` and its event time, is none;
- the deletion with nothing beside it, when the left's row has been deleted, known before or not: once, until the key
  has come back at the end of a cut;
- the same row with what the right says now, when only the right has changed: at once if the key's last row is
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
from streamcore.operators.joins.columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.lookup import LookUpSpec, bring_up_to_date
from streamcore.operators.joins.pacing import EVER_MS, Pacing
from streamcore.operators.joins.sides import DEFAULT_MAX_ROWS, REFUSED, Side
from streamcore.operators.operator import MAIN, Ports, StepTime
from streamcore.schema import EVENT_MS
from streamcore.state.run import Ints, Mask, Run, joined
from streamcore.state.table import StateTable

#: Begins the name of a column beside its namesake of before.
_NOW = "__now_"


@dataclass(frozen=True, slots=True)
class LatestSpec:
    """``deleted``: of each side, the column of a change that says that it deletes its key: where it is true, if it is
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
        """``ConfigError`` where it cannot work."""
        LookUpSpec(JoinKeys(self.keys.right, self.keys.left), deleted=self.deleted).check(left)
        self.beside.check(right)
        if self.refresh_ms < 0:
            raise ConfigError(f"refresh_ms must not be negative: {self.refresh_ms}")
        if wrong := [name for name in self.order if name not in left or not left[name].is_integer()]:
            raise ConfigError(f"order: {wrong[0]!r} must be a column of whole numbers of the left")

    @property
    def things(self) -> LookUpSpec:
        """Of the left, as a table that is looked up."""
        return LookUpSpec(JoinKeys(self.keys.right, self.keys.left), deleted=self.deleted)

    @property
    def beside(self) -> LookUpSpec:
        """Of the right, as a table that is looked up."""
        return LookUpSpec(self.keys, JoinKind.LEFT, self.right_deleted, self.suffix)


class LatestJoin:
    """The operator. Inputs: the changes of the left table and of the right one."""

    output_delay_ms = 0

    def __init__(self, spec: LatestSpec, left: Schema, right: Schema) -> None:
        spec.check(left, right)
        self.spec = spec
        self._columns = JoinColumns.of(left, right, spec.keys, spec.suffix)
        self._left = Side("left", left, spec.keys.left, spec.max_rows)
        self._right = Side("right", right, spec.keys.right, spec.max_rows)
        self._pacing = Pacing({name: left[name] for name in spec.keys.left}, spec.refresh_ms)
        self._unlike = [name for name in left if name not in spec.order]
        self._older = 0

    @property
    def schema(self) -> pl.Schema:
        """The columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:
        due = self._pacing.due(time.clock_ms)
        if not (inputs[0].height or inputs[1].height or len(due)):
            return self._nothing
        now, refused_left = self._change_left(self._left.keyed(inputs[0])[0])
        asked, refused_right = bring_up_to_date(self._right, self.spec.beside, self._right.keyed(inputs[1])[0])
        free = self._pacing.free(self._others([asked, due], now))
        self._pacing.gave(now, now.take(np.flatnonzero(~self._deleted(now.frame))), free, time.clock_ms)
        main = self._answers(joined([run for run in (now, free) if len(run)] or [now]), time.watermark_ms)
        refused = refused_left.height or refused_right.height
        lost = self._columns.refused(refused_left, refused_right) if refused else self._nothing[REFUSED]
        return {MAIN: main, REFUSED: lost}

    @cached_property
    def _nothing(self) -> Ports:
        """What comes of a cut in which nothing is to be said."""
        none = (self._left.table.schema.to_frame(), self._right.table.schema.to_frame())
        return {MAIN: self.schema.to_frame(), REFUSED: self._columns.refused(*none)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"left": self._left.table, "right": self._right.table, "pace": self._pacing.table}

    def loaded(self) -> None:
        """Nothing to do."""

    def metrics(self) -> Mapping[str, int]:
        older, self._older = self._older, 0
        return {**self._left.metrics(), **self._right.metrics(), "left_older": older, "paced": len(self._pacing.table)}

    # --- the left -----------------------------------------------------------------------------------------------

    def _change_left(self, changes: pl.DataFrame) -> tuple[Run, pl.DataFrame]:
        """Bring the table up to date. Returns the changes of which something is to be said, and those refused."""
        table, order = self._left.table, [EVENT_MS, *self.spec.order]
        if not changes.height:
            return table.sort(changes), changes
        newest = changes.sort(order, maintain_order=True).unique(table.keys, keep="last", maintain_order=True)
        run = table.sort(newest)
        known = table.find(run, -EVER_MS, EVER_MS)
        before = table.frame(known.places)
        older = _older(run.frame[known.rows], before, order)
        self._older += changes.height - newest.height + int(older.sum())
        holds = np.ones(len(run), dtype=bool)
        holds[known.rows[older]] = False
        over = self._over(run, known.rows)
        holds[over] = False
        say = holds & ~self._said(run.frame, known.rows, before)
        table.delete(known.places[~older])
        table.add(run.take(np.flatnonzero(holds)))
        return run.take(np.flatnonzero(say)), self._left.refuse(run.frame[over])

    def _over(self, run: Run, known: Ints) -> Ints:
        """The keys that are new and for which there is no room, in order of arrival the last."""
        new = np.setdiff1d(np.arange(len(run)), known)
        new = new[np.argsort(run.numbers[new])]
        return new[max(0, self._left.max_rows - len(self._left.table)) :]

    def _said(self, rows: pl.DataFrame, known: Ints, before: pl.DataFrame) -> Mask:
        """Which rows say what was said before: a deletion again, or the same again."""
        said = np.zeros(rows.height, dtype=bool)
        again = rows[known]
        was, now = self._deleted(before), self._deleted(again)
        alike = pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{_NOW}{name}")) for name in self._unlike)
        both = before.select(self._unlike).hstack([again[name].alias(f"{_NOW}{name}") for name in self._unlike])
        said[known] = (was == now) & (now | both.select(alike).to_series().to_numpy())
        return said

    def _deleted(self, rows: pl.DataFrame) -> Mask:
        deleted: Mask = self.spec.things.deletions(rows).to_numpy()
        return deleted

    # --- what comes out -----------------------------------------------------------------------------------------

    def _others(self, asked: Sequence[Run], now: Run) -> Run:
        """The left's live rows under the keys of these runs, but for those of which something is said anyway."""
        table = self._left.table
        said = table.find(now, -EVER_MS, EVER_MS).places
        places = np.concatenate([table.find(run, -EVER_MS, EVER_MS).places for run in asked])
        run = table.run(np.setdiff1d(places, said))
        deleted = self._deleted(run.frame)
        return run.take(np.flatnonzero(~deleted)) if deleted.any() else run

    def _answers(self, run: Run, watermark_ms: int) -> pl.DataFrame:
        """The rows with what the right says of them, deletions with nothing."""
        table = self._right.table
        found = table.find(run, -EVER_MS, EVER_MS)
        beside = np.full(len(run), -1)
        beside[found.rows] = np.arange(len(found.rows))
        beside[self._deleted(run.frame)] = -1
        place = pl.Series(beside).set(pl.Series(beside < 0), None)
        right = table.frame(found.places).select(pl.all().gather(place))
        return self._columns.at(np.maximum(run.times, watermark_ms), run.frame, right)


def _older(rows: pl.DataFrame, than: pl.DataFrame, order: Sequence[str]) -> Mask:
    """Which rows come before those beside them, in the order of these columns."""
    older = np.zeros(rows.height, dtype=bool)
    equal = np.ones(rows.height, dtype=bool)
    for name in order:
        one, other = rows[name].to_numpy(), than[name].to_numpy()
        older |= equal & (one < other)
        equal &= one == other
    return older
