"""The common parts of joins: whose rows come out, what must be equal, and the columns that come out.

The rule: all columns of the left; then those of the right that are not part of its key, for they would only repeat the
left's. A right column with the name of a left one gets a suffix. In a row without a left side the key columns hold the
right's key. ``EVENT_MS`` comes last and once. Types of keys must be the same on both sides: a key of another type would
be another key to the hash, and converting it silently could make two keys one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.schema import EVENT_MS

Schema = Mapping[str, pl.DataType]

#: Column of rejected rows: which input a row came from.
INPUT = "input"
_ENGINE_PREFIX = "__"
_KEY_TYPES = (pl.String, pl.Boolean, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_MAX_KEY_DIGITS = 18


class JoinKind(StrEnum):
    """Whose rows come out without a partner: of neither input, the left's, the right's, those of both."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def keeps_left(self) -> bool:
        """Return whether left rows come out without a partner."""
        return self in (JoinKind.LEFT, JoinKind.FULL)

    @property
    def keeps_right(self) -> bool:
        """Return whether right rows come out without a partner."""
        return self in (JoinKind.RIGHT, JoinKind.FULL)


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The columns that must be equal, pair by pair. Both in the same order."""

    left: tuple[str, ...]
    right: tuple[str, ...]

    @classmethod
    def on(cls, *names: str) -> JoinKeys:
        """Return the keys of a join by columns that have equal names on both sides."""
        return cls(names, names)

    def check(self, left: Schema, right: Schema) -> None:
        """Raise ``ConfigError`` if the columns do not exist or cannot be compared."""
        if not self.left or len(self.left) != len(self.right):
            raise ConfigError(f"a join needs as many key columns of the left as of the right, not {self}")
        for ours, theirs in zip(self.left, self.right, strict=True):
            for name, schema, side in ((ours, left, "left"), (theirs, right, "right")):
                if name not in schema:
                    raise ConfigError(f"key {name!r} is no column of the {side} input, which has {sorted(schema)}")
                _check_key_type(name, schema[name])
            if left[ours] != right[theirs]:
                raise ConfigError(
                    f"key {ours!r} is {left[ours]} and {theirs!r} is {right[theirs]}; convert one before the join"
                )


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """``renamed``: for each column of the right, the name that it has in the output."""

    schema: pl.Schema
    renamed: dict[str, str]
    keys: JoinKeys

    @classmethod
    def build(cls, left: Schema, right: Schema, keys: JoinKeys, suffix: str) -> JoinColumns:
        """Raise ``ConfigError`` where two columns would have one name."""
        left, right = _user_columns(left), _user_columns(right)
        keys.check(left, right)
        renamed = dict(zip(keys.right, keys.left, strict=True))
        for name in right:
            if name not in renamed:
                renamed[name] = name + suffix if name in left else name
        added = {renamed[n]: t for n, t in right.items() if n not in keys.right}
        if len(added) < len(right) - len(keys.right) or added.keys() & left.keys():
            raise ConfigError(
                f"columns {sorted(left)} and {sorted(right)} do not get distinct names with the suffix {suffix!r}; "
                "rename a column before the join or choose another suffix"
            )
        return cls(pl.Schema({**left, **added, EVENT_MS: pl.Int64()}), renamed, keys)

    def pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return rows side by side. The event time is the later of the two: the moment from which the pair could
        exist, and
        never behind the watermark, for the row that came last was not.
        """
        times = np.maximum(left[EVENT_MS].to_numpy(), right[EVENT_MS].to_numpy())
        return self.at(times, left, right)

    def at(self, times: npt.NDArray[np.int64], left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return rows side by side at these event times."""
        added = right.drop(EVENT_MS, *self.keys.right).rename(self.renamed, strict=False)
        return left.drop(EVENT_MS).hstack(added).with_columns(pl.Series(EVENT_MS, times))

    def left_only(self, left: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the left without a right side, at their own event time."""
        return pl.concat([self.schema.to_frame(), left], how="diagonal")

    def right_only(self, right: pl.DataFrame) -> pl.DataFrame:
        """Return rows of the right without a left side, at their own event time."""
        return pl.concat([self.schema.to_frame(), right.rename(self.renamed)], how="diagonal")

    def late(self, left: pl.DataFrame, right: pl.DataFrame, watermark_ms: int) -> pl.DataFrame:
        """Return the late rows of both inputs."""
        parts = ((self.left_only(left), "left"), (self.right_only(right), "right"))
        return pl.concat(
            rows.with_columns(
                pl.lit(f"{side} row behind the watermark").alias(LATE_REASON),
                (watermark_ms - pl.col(EVENT_MS)).alias(LATENESS_MS),
            )
            for rows, side in parts
        )

    def rejected_rows(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return the rejected rows of both inputs."""
        parts = ((self.left_only(left), "left"), (self.right_only(right), "right"))
        return pl.concat(rows.with_columns(pl.lit(side).alias(INPUT)) for rows, side in parts)


def _user_columns(schema: Schema) -> dict[str, pl.DataType]:
    """Return the user's columns."""
    for name in schema:
        if name.startswith(_ENGINE_PREFIX) and name != EVENT_MS:
            raise ConfigError(f"column {name!r}: names that begin with {_ENGINE_PREFIX!r} belong to the engine")
    return {name: dtype for name, dtype in schema.items() if name != EVENT_MS}


def _check_key_type(name: str, dtype: pl.DataType) -> None:
    if isinstance(dtype, pl.Decimal):
        if dtype.precision - dtype.scale > _MAX_KEY_DIGITS:
            raise ConfigError(f"key {name!r}: a decimal key has at most {_MAX_KEY_DIGITS} digits before the point")
    elif not isinstance(dtype, (*_KEY_TYPES, pl.Date, pl.Datetime)):
        raise ConfigError(f"key {name!r} is {dtype}; a key is text, whole numbers, booleans, decimals or times")
