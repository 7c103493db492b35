"""Counts the values in the arrays and maps of a record, by which the memory of its columns grows.

An element of an array counts as one value and, if it is a struct, as one more for each of its declared members, there
or not, for each has a column. An entry of a map counts as its key and its value. Arrays and maps inside of others
count in the same way, so the count is that of the rows of all columns inside of arrays and maps.
"""

from __future__ import annotations

import functools

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import ObjectValue, RecordError, inner_field
from streamcore.schema import Field, Kind, Type


@functools.cache
def values_of_element(kind: Type) -> int:
    """Return as how many values each element of an array, or each entry of a map, of this type counts."""
    return _count_values(kind.items) + (1 if kind.kind is Kind.MAP else 0)


def _count_values(kind: Type) -> int:
    return 1 + sum(_count_values(member) for _, member in kind.members)


class ValueCounter:
    """Counts the values in arrays and maps of one record up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def add(self, field: Field, elements: int) -> None:
        """Count elements of an array or entries of a map; raise ``RecordError`` if the record has too many values."""
        self._left -= elements * values_of_element(field.type)
        if self._left < 0:
            raise RecordError(
                RejectCode.TOO_MANY_VALUES,
                f"field {field.label}: with it the arrays and maps of the record have more than {self._most} values;"
                " at most so many are accepted",
            )

    def add_value(self, field: Field, value: object) -> None:
        """Count the values inside of the value of a field, as JSON has it; a value of another type counts nothing."""
        match field.type.kind, value:
            case Kind.ARRAY, list():
                self._add_elements(field, value)
            case Kind.MAP, ObjectValue():
                self._add_elements(field, [item for _, item in value.pairs])
            case Kind.STRUCT, ObjectValue():
                members = {name: kind for name, kind in field.type.members if kind.is_nested}
                for name, item in value.pairs:
                    if name in members:
                        self.add_value(inner_field(field, f".{name}", members[name]), item)

    def _add_elements(self, field: Field, items: list[object]) -> None:
        self.add(field, len(items))
        if field.type.items.is_nested:
            inner = inner_field(field, "[]", field.type.items)
            for item in items:
                self.add_value(inner, item)
