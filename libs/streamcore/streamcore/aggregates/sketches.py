"""Approximate numbers of distinct values and quantiles in bounded memory: sketches of Apache DataSketches.

The sketches are HyperLogLog and t-digest, which use no random numbers. (The library's KLL, REQ and classic quantiles
sketches do, so a replayed cut would give another result.) A partial is a sketch as bytes, in the portable format of the
library; the partial of no values is empty.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isnan

import datasketches
import numpy as np
import polars as pl

from streamcore.aggregates.arrays import NUMBERS, ORDERED, identity, is_number, is_ordered, non_null_rows, sort_key
from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema, non_null_values
from streamcore.aggregates.list_columns import object_array
from streamcore.errors import ConfigError
from streamcore.hashing import hash_columns
from streamcore.windowing.model import Element, Result

_HLL = datasketches.tgt_hll_type.HLL_4


class _Sketch(Aggregate):
    """The base of sketch aggregates. A partial is one column of sketches as bytes."""

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the same for all types
        return {"sketch": pl.Binary()}

    def merge(self, left: Partials, right: Partials) -> Partials:
        pairs = zip(left["sketch"], right["sketch"], strict=True)
        return {"sketch": object_array([self._merge_sketches(pair) for pair in pairs])}

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        runs = np.split(partials["sketch"], starts[1:]) if len(starts) else []
        return {"sketch": object_array([self._merge_sketches(run) for run in runs])}

    def _sketch_groups(self, values: Array, group: Ints, groups: int) -> Partials:
        """Return the sketch of each group. The values of a group keep their order."""
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        sketches = object_array([b""] * groups)
        runs = np.split(values[order], starts[1:]) if len(starts) else []
        sketches[group[order][starts]] = object_array([self._from_values(run) for run in runs])
        return {"sketch": sketches}

    def _merge_sketches(self, sketches: Sequence[bytes] | Array) -> bytes:
        chosen = [sketch for sketch in sketches if sketch]
        return self._union(chosen) if len(chosen) > 1 else b"".join(chosen)

    @abstractmethod
    def _from_values(self, values: Array) -> bytes:
        """Return the sketch of at least one value."""

    @abstractmethod
    def _union(self, sketches: Sequence[bytes]) -> bytes:
        """Return the union of several sketches."""


@dataclass(frozen=True)
class ApproxDistinct(_Sketch):
    """The approximate number of distinct values that are not null: HyperLogLog with ``2**precision`` registers.

    The standard error is ``1.04 / sqrt(2**precision)``: 1.6 % with 12, in 2 KB for each group (less for few
    values). The result depends only on the set of values, not on their order or their division into cuts. NaN equals
    NaN, -0.0 equals 0.0.
    """

    column: str
    precision: int = 12

    def __post_init__(self) -> None:
        if not 7 <= self.precision <= 21:
            raise ConfigError(f"{self}: precision must be from 7 to 21")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_ordered(dtype):
            raise self.type_error(self.column, dtype, ORDERED)
        return pl.Int64()

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        chosen = non_null_rows(rows[self.column])
        values = identity(rows[self.column].drop_nulls())
        hashes = hash_columns([values], len(values)).view(np.int64)
        distinct = pl.DataFrame({"group": group[chosen], "hash": hashes}).unique(maintain_order=True)
        return self._sketch_groups(distinct["hash"].to_numpy(), distinct["group"].to_numpy(), groups)

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        return pl.Series([self._estimate(sketch) for sketch in partials["sketch"]], dtype=pl.Int64)

    def reference(self, elements: Sequence[Element]) -> Result:
        """Return the exact number, which ``result`` approximates."""
        return len({sort_key(value) for value in non_null_values(elements, self.column)})

    def _from_values(self, values: Array) -> bytes:
        sketch = datasketches.hll_sketch(self.precision, _HLL)
        for value in values.tolist():
            sketch.update(value)
        return bytes(sketch.serialize_compact())

    def _union(self, sketches: Sequence[bytes]) -> bytes:
        union = datasketches.hll_union(self.precision)
        for sketch in sketches:
            union.update(datasketches.hll_sketch.deserialize(sketch))
        return bytes(union.get_result(_HLL).serialize_compact())

    def _estimate(self, sketch: bytes) -> int:
        """Return the estimate of a sketch. It is merged with itself, so that the order of values does not matter."""
        if not sketch:
            return 0
        merged = self._union([sketch, sketch])
        return round(float(datasketches.hll_sketch.deserialize(merged).get_estimate()))


@dataclass(frozen=True)
class Quantiles(_Sketch):
    """Approximate quantiles by a t-digest, as a list of Float64; null for no values. NaN is left out.

    ``shares``: the quantiles, from 0 to 1; 0.5 is the median. ``compression``: a higher one is more accurate and takes
    more memory, about 22 bytes times ``compression`` for each group. The library publishes no bound of the error. In a
    test with uniform values in many pieces, the rank was wrong by 1 % near the median with 500 and by 3 % with 200, and
    by far less near 0 and 1. The same rows in the same pieces give the same result; in other pieces, the result may
    differ within the error.
    """

    column: str
    shares: tuple[float, ...]
    compression: int = 500

    def __post_init__(self) -> None:
        if not self.shares or not all(0 <= share <= 1 for share in self.shares):
            raise ConfigError(f"{self}: shares are one or more numbers from 0 to 1, such as (0.5, 0.95)")
        if not 10 <= self.compression <= 65_535:
            raise ConfigError(f"{self}: compression must be from 10 to 65535")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_number(dtype):
            raise self.type_error(self.column, dtype, NUMBERS)
        return pl.List(pl.Float64())

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        values = rows[self.column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        chosen = ~np.isnan(values)
        return self._sketch_groups(values[chosen], group[chosen], groups)

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        return pl.Series([self._quantiles(sketch) for sketch in partials["sketch"]], dtype=self.check(schema))

    def reference(self, elements: Sequence[Element]) -> Result:
        """Return the exact quantiles: the least value with at least the share of all values at or below it."""
        values = sorted(float(value) for value in non_null_values(elements, self.column) if not isnan(value))
        return tuple(values[max(0, ceil(share * len(values)) - 1)] for share in self.shares) if values else None

    def _from_values(self, values: Array) -> bytes:
        sketch = datasketches.tdigest_double(self.compression)
        sketch.update(values)
        return bytes(sketch.serialize())

    def _union(self, sketches: Sequence[bytes]) -> bytes:
        union = datasketches.tdigest_double(self.compression)
        for sketch in sketches:
            union.merge(datasketches.tdigest_double.deserialize(sketch))
        return bytes(union.serialize())

    def _quantiles(self, sketch: bytes) -> list[float] | None:
        if not sketch:
            return None
        digest = datasketches.tdigest_double.deserialize(sketch)
        return [digest.get_quantile(share) for share in self.shares]
