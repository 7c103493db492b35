"""The temporal join: joins each row of a stream to the row that a table had for its key at the row's event time.

A stream of changes writes the table. A change is valid from its event time until the next change of its key; of two
changes with one event time the later to arrive is valid. A row waits until the watermark has passed its event time. By
then every earlier change has arrived, so the output depends neither on the order of the inputs nor on the cuts. Changes
behind the watermark are late and do not change the table, because rows that they concern have been emitted. The join
stores a version of a table row until the watermark has passed the next version of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import REJECTED, JoinInput
from streamcore.operators.joins.lookup import LookupSpec
from streamcore.operators.joins.output_columns import JoinColumns, JoinKind, Schema
from streamcore.state.table import StateTable
from streamcore.windowing.model import END_OF_TIME_MS

#: A distance in time that covers all versions, in milliseconds.
_EVER_MS = END_OF_TIME_MS // 2


class TemporalJoin:
    """The operator of a temporal join. Its inputs are the stream and the changes of the table."""

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
        waiting.expire(time.watermark_ms)  # loaded rows can include rows emitted before
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
            REJECTED: self._columns.rejected_rows(rows.rejected, changes.rejected),
        }

    def tables(self) -> Mapping[str, StateTable]:
        return {side.name: side.table for side in (self._waiting, self._versions)}

    def on_state_loaded(self) -> None:
        """Do nothing: rows that were emitted before expire with the first step and are not emitted again."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._waiting.metrics(), **self._versions.metrics()}

    def _due(self, watermark_ms: int) -> pl.DataFrame:
        """Remove the waiting rows that the watermark has passed, and return them joined, in order of arrival."""
        waiting, versions = self._waiting.table, self._versions.table
        due = waiting.run(waiting.expire(watermark_ms))
        places = versions.last(due)
        matched = np.flatnonzero(places >= 0)
        deleted = self.spec.deletions(versions.frame(places[matched])).to_numpy()
        places[matched[deleted]] = -1
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
