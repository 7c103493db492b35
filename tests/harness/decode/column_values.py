"""The values in arrays and maps of a column, as its memory has them: the oracle of the limit of values of a record."""

from __future__ import annotations

import pyarrow as pa

from streamcore.wire.map_entries import KEY


def count_inside(column: pa.Array) -> int:
    """Return the number of the rows of all columns that are inside of lists."""
    if pa.types.is_struct(column.type):
        return sum(count_inside(member) for member in column.flatten())
    return _count(column.flatten()) if pa.types.is_large_list(column.type) else 0


def _count(column: pa.Array) -> int:
    if pa.types.is_large_list(column.type):
        return len(column) + _count(column.flatten())
    if not pa.types.is_struct(column.type):
        return len(column)
    members = sum(_count(member) for member in column.flatten())
    return members if column.type.get_field_index(KEY) >= 0 else len(column) + members
