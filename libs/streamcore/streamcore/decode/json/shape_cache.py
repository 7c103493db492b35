"""The shapes of records that a decoder has learned from samples, at most ``MAX_SHAPES``.

They change the cost of a batch, never its result.
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
#: A decoder learns if at least so many records, and at least this share of the batch, match no known shape.
_LEARN_FROM, _LEARN_SHARE = 16, 0.02
_MAX_PAUSE_BATCHES = 256


@dataclass(slots=True)
class KnownShape:
    """A shape and its pattern. ``used``: the number of records that matched at the last use."""

    shape: JsonShape
    pattern: str
    used: int = 0

    def matches(self, text: pl.Series) -> pl.Series:
        """Return a Boolean column: whether each record matches; False for null. Sets ``used``."""
        found = text.str.contains(self.pattern).fill_null(value=False)
        self.used = int(found.sum())
        return found


@dataclass(slots=True)
class ShapeCache:
    """The known shapes. The first has the fields in the order of the schema."""

    schema: StreamSchema
    _known: list[KnownShape] = field(default_factory=list)
    _pause_batches: int = 0
    _next_pause: int = 1

    def __post_init__(self) -> None:
        self._add(initial_shape(self.schema))

    def by_use(self) -> list[KnownShape]:
        """Return the known shapes, the one that matched most records at its last use first."""
        self._known.sort(key=lambda known: -known.used)
        return list(self._known)

    def should_learn(self, unknown: int, batch_records: int) -> bool:
        """Return whether to learn a shape from a batch with so many unknown records.

        False in the batches of a pause. After each attempt that finds no new shape, a pause begins, twice as long as
        the one before, up to ``_MAX_PAUSE_BATCHES``.
        """
        if unknown < max(_LEARN_FROM, batch_records * _LEARN_SHARE):
            return False
        self._pause_batches -= 1
        return self._pause_batches < 0

    def learn(self, valid: Sequence[JsonObject]) -> KnownShape | None:
        """Return a new shape, learned from valid records that match no known shape; None if there is none to learn."""
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
        except pl.exceptions.ComputeError:  # the pattern is too large to be compiled: the schema has very many fields
            return None
        del self._known[MAX_SHAPES - 1 :]
        self._known.append(known)
        return known
