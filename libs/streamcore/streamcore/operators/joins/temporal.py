"""The temporal join: each row of a stream with the table's row of its key as of the row's event time.

The table is fed by a stream of changes. A change holds from its event time on, until the next one of its key; of two
with one event time the later to arrive holds. A row waits until the watermark has passed its event time: by then every
change up to it has come, so the output does not depend on which input was read first, nor on how the input is cut.
Changes behind the watermark are late, for rows that they should have met have gone; they do not change the table.
A version is kept until the watermark has passed the next one of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import REFUSED, JoinInput
from streamcore.operators.joins.lookup import LookupSpec
from streamcore.operators.joins.output_columns import JoinColumns, JoinKind, Schema
from streamcore.state.table import StateTable
from streamcore.windowing.model import END_OF_TIME_MS

#: As far back as any version.
_EVER_MS = END_OF_TIME_MS // 2


class TemporalJoin:
    """The operator. Inputs: the stream, the changes of the table."""

    output_delay_ms = 0

    def __init__(self, spec: LookupSpec, stream: Schema, table: Schema) -> None:
        spec.check(table)
        self.spec = spec
        self._columns = JoinColumns.build(stream, table, spec.keys, spec.suffix)
        self._waiting = JoinInput("waiting", stream, spec.keys.left, spec.max_rows)
        self._versions = JoinInput("versions", table, spec.keys.right, spec.max_rows)

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        waiting, versions = self._waiting.table, self._versions.table
        waiting.expire(time.watermark_ms)  # what was loaded and had gone
        rows = self._waiting.admit(inputs[0], time.watermark_ms)
        changes = self._versions.admit(inputs[1], time.watermark_ms)
        waiting.add(waiting.to_run(rows.rows))
        versions.add(versions.to_run(changes.rows))
        output = [self._due(time.next_watermark_ms)]
        if self.spec.kind is JoinKind.LEFT:
            output.append(self._columns.left_only(rows.keyless))
        self._forget(time)
        return {
            MAIN: pl.concat(output),
            LATE: self._columns.late(rows.late, changes.late, time.watermark_ms),
            REFUSED: self._columns.refused_rows(rows.refused, changes.refused),
        }

    def tables(self) -> Mapping[str, StateTable]:
        return {side.name: side.table for side in (self._waiting, self._versions)}

    def on_state_loaded(self) -> None:
        """Do nothing: rows that were emitted before expire with the first step and are not emitted again."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._waiting.metrics(), **self._versions.metrics()}

    def _due(self, watermark_ms: int) -> pl.DataFrame:
        """Return the joined rows whose event time the watermark has passed, in order of arrival."""
        waiting, versions = self._waiting.table, self._versions.table
        due = waiting.run(waiting.expire(watermark_ms))
        places = versions.last(due)
        found = np.flatnonzero(places >= 0)
        deleted = self.spec.deletions(versions.frame(places[found])).to_numpy()
        places[found[deleted]] = -1
        order = np.argsort(due.numbers)
        return self.spec.join_rows(self._columns, due.frame[order], versions, places[order])

    def _forget(self, time: CutTime) -> None:
        """Drop the versions that no row can join any more: those with a later one before the watermark, and deletions.

        The cost is that of the keys of which the watermark passed a version in this cut.
        """
        versions = self._versions.table
        passed = versions.run(versions.between(time.watermark_ms, time.next_watermark_ms))
        latest = passed.take(passed.last_per_key())
        older = versions.find(latest, -_EVER_MS, 0)
        superseded = versions.numbers(older.places) != latest.numbers[older.rows]
        deletes = self.spec.deletions(latest.frame).to_numpy()[older.rows]
        versions.delete(older.places[superseded | deletes])
