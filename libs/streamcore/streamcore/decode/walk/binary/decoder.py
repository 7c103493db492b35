"""Decodes binary records of one schema to columns by a walk."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.walk.arrays import StoredTexts
from streamcore.decode.walk.binary.avro import walk_datums
from streamcore.decode.walk.binary.column_reader import ColumnReader, WalkedColumns
from streamcore.decode.walk.binary.columns import COUNT
from streamcore.decode.walk.binary.layout import Layout
from streamcore.decode.walk.binary.primitives import MAX_SHORT_TEXT
from streamcore.decode.walk.binary.protobuf import walk_messages
from streamcore.decode.walk.binary.steps import BASE, COLUMN, ONEOF, ONEOF_BASE, Int64s, Steps
from streamcore.decode.walk.decoder import RecordColumns, WalkedRecords
from streamcore.decode.walk.words import PAD, Bytes
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

_STACK = 2_048
#: Room for elements beyond those that the last batch had for each record, but at first for no more than so many.
_SPARE, _MOST_AT_FIRST = 1.1, 16
_LEAST_ROOM = 64


class BinaryWalk:
    """Walks through records of one schema. It remembers how many elements records have, so it is for one thread."""

    def __init__(
        self, schema: StreamSchema, limits: DecodeLimits, layout: Layout, steps: Steps, walk: Callable[..., int]
    ) -> None:
        self._walk, self._steps, self._layout, self._limits = walk, steps, layout, limits
        self._zone, self._columns = load_zone(schema.zone), RecordColumns(schema, limits)
        self._types = [f.type for f in schema.fields]
        self._required = np.array([i for i, f in enumerate(schema.fields) if not f.nullable], np.int64)
        self._names = np.frombuffer(steps.names + bytes(PAD), np.uint8).copy()
        self._stack, self._scratch = np.zeros(_STACK, np.int64), np.zeros(MAX_SHORT_TEXT + PAD, np.uint8)
        self._column_levels = np.array([*layout.levels, *steps.more_levels], np.int64)
        self._rows_per_record = np.ones(int(self._column_levels.max()) + 1)
        self._widths = np.bincount(layout.levels, minlength=len(self._rows_per_record))

    @classmethod
    def of_avro(cls, schema: StreamSchema, limits: DecodeLimits, layout: Layout, steps: Steps) -> BinaryWalk:
        """Return the walk through Avro datums."""
        return cls(schema, limits, layout, steps, walk_datums)

    @classmethod
    def of_protobuf(cls, schema: StreamSchema, limits: DecodeLimits, layout: Layout, steps: Steps) -> BinaryWalk:
        """Return the walk through Protobuf messages."""
        return cls(schema, limits, layout, steps, walk_messages)

    def decode(
        self, source: Bytes, starts: Int64s, ends: Int64s, clock_ms: int, fields: Collection[str] | None = None
    ) -> WalkedRecords:
        """Decode the records between these positions of ``source``. ``clock_ms``: the clock of the cut, which limits
        event times. ``fields``: as in ``RawBatch``."""
        count, sure = len(starts), np.zeros(len(starts), np.bool_)
        walked = WalkedColumns(self._column_levels, self._widths, self._capacities(count))
        steps, row = self._steps.steps.copy(), 0
        while True:
            steps[:, BASE] = walked.bases_of(steps[:, COLUMN])
            if self._steps.more_levels:
                steps[:, ONEOF_BASE] = walked.bases_of(steps[:, ONEOF])
            row = self._walk(
                source,
                starts,
                ends,
                row,
                steps,
                self._steps.symbols,
                walked.columns,
                walked.levels,
                self._stack,
                self._scratch,
                self._required,
                self._limits.max_depth,
                self._limits.max_record_values,
                walked.values,
                walked.lengths,
                walked.found,
                sure,
            )
            self._limits.check_batch(walked.inner_values, count)
            if row == count:
                break
            walked = walked.grow()
        walked.levels[0, COUNT] = count
        self._rows_per_record = walked.levels[:, COUNT] / max(count, 1)
        reader = ColumnReader(walked, StoredTexts(source, self._names), self._steps.keys, self._zone, sure)
        return self._columns.finish(reader.read_fields(self._types, self._layout.places), clock_ms, fields)

    def _capacities(self, count: int) -> Int64s:
        rows_per_record = np.minimum(self._rows_per_record * _SPARE, _MOST_AT_FIRST)
        found = (rows_per_record * count).astype(np.int64) + _LEAST_ROOM
        found[0] = count
        return found
