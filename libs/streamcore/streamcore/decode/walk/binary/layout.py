"""Where the values of a stream's fields are while binary records are walked: in columns, level by level.

The records of a batch are the rows of level 0. The elements of an array, or the entries of a map, are the rows of a
level of their own: those of all records, one behind the other. So an array is a column with the number of its elements.
A struct is a column that says whether it is there, and its members are further columns of its level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcore.schema import STRING, Field, Kind
from streamcore.wire.map_entries import KEY, VALUE


@dataclass(frozen=True, slots=True)
class Place:
    """The column of a field or of a value inside of one. ``inside``: the members of a struct, the element of an array,
    or key and value of a map."""

    field: Field
    column: int
    level: int
    inside: tuple[Place, ...] = ()

    def member(self, name: str) -> Place | None:
        """Return the place of a struct's member."""
        return next((place for place in self.inside if place.field.name == name), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of a stream's fields, and the level of each column. Column ``n`` is that of field ``n``, and those of
    what is inside come after them."""

    places: tuple[Place, ...]
    levels: tuple[int, ...]

    @classmethod
    def of(cls, fields: Sequence[Field]) -> Layout:
        """Return the layout of these fields."""
        maker = _LayoutMaker([0] * len(fields))
        places = tuple(maker.place(field, number, 0) for number, field in enumerate(fields))
        return cls(places, tuple(maker.levels))


@dataclass(slots=True)
class _LayoutMaker:
    levels: list[int]
    last_level: int = 0

    def add(self, field: Field, level: int) -> Place:
        self.levels.append(level)
        return self.place(field, len(self.levels) - 1, level)

    def place(self, field: Field, column: int, level: int) -> Place:
        kind = field.type
        match kind.kind:
            case Kind.STRUCT:
                inside = [self.add(Field(name, member), level) for name, member in kind.members]
            case Kind.ARRAY | Kind.MAP:
                self.last_level += 1
                level_inside = self.last_level
                inside = [self.add(Field(KEY, STRING), level_inside)] if kind.kind is Kind.MAP else []
                inside.append(self.add(Field(VALUE, kind.items), level_inside))
            case _:
                inside = []
        return Place(field, column, level, tuple(inside))
