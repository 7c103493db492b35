"""The shapes that a decoder knows: learned from samples, ordered by use, at most ``MAX_SHAPES``.

The memory changes the cost of a batch and never its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from streamcore.decode.json.shape import JsonShape, initial_shape, learn_shape
from streamcore.decode.scalar.json import JsonObject
from streamcore.schema import StreamSchema

MAX_SHAPES = 6
SAMPLES = 64
#: A shape is looked for when at least so many records, and this share of the batch, are of no known shape.
_LEARN_FROM, _LEARN_SHARE = 16, 0.02
_MAX_PAUSE_BATCHES = 256


@dataclass(slots=True)
class KnownShape:
    """A shape, its pattern, and how many records of the latest batch it vouched for."""

    shape: JsonShape
    pattern: str
    used: int = 0

    def matches(self, text: pl.Series) -> pl.Series:
        """Return True where the shape vouches for the record; null counts as False."""
        found = text.str.contains(self.pattern).fill_null(value=False)
        self.used = int(found.sum())
        return found


@dataclass(slots=True)
class ShapeCache:
    """Begins with the schema's own order of fields."""

    schema: StreamSchema
    _known: list[KnownShape] = field(default_factory=list)
    _pause_batches: int = 0
    _next_pause: int = 1

    def __post_init__(self) -> None:
        self._add(initial_shape(self.schema))

    def by_use(self) -> list[KnownShape]:
        """All that are known, the one that vouched for most of the latest batch first."""
        self._known.sort(key=lambda known: -known.used)
        return list(self._known)

    def should_learn(self, unknown: int, of: int) -> bool:
        """Whether so many unknown records ask for a new shape. After a vain attempt, some batches are let pass."""
        if unknown < max(_LEARN_FROM, of * _LEARN_SHARE):
            return False
        self._pause_batches -= 1
        return self._pause_batches < 0

    def learn(self, valid: Sequence[JsonObject]) -> KnownShape | None:
        """Return a new shape from valid records that none vouched for; None when there is nothing to be learned."""
        shape = learn_shape(self.schema, valid)
        known = None if shape is None or any(k.shape == shape for k in self._known) else self._add(shape)
        if known is None:
            self._pause_batches, self._next_pause = self._next_pause, min(2 * self._next_pause, _MAX_PAUSE_BATCHES)
        else:
            self._next_pause = 1
        return known

    def _add(self, shape: JsonShape) -> KnownShape | None:
        known = KnownShape(shape, shape.pattern(self.schema))
        try:
            known.matches(pl.Series([""]))
        except pl.exceptions.ComputeError:  # a pattern too large to be compiled: a schema of very many fields
            return None
        del self._known[MAX_SHAPES - 1 :]
        self._known.append(known)
        return known
