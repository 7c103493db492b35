"""The columns that a walk through binary records fills: their levels, and what a record has put into them.

``columns`` and ``levels`` are arrays for compiled functions. The rows of a level other than 0 are the elements of lists
of all records so far. A record that is not sure takes its rows back, so that the rows of the others stay together.
"""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.binary.steps import Int64s
from streamcore.decode.walk.compiler import compiled, inlined
from streamcore.decode.walk.fields import ABSENT
from streamcore.decode.walk.words import Bytes

#: The columns of ``columns``: the level of a column, and where its values begin.
COLUMN_LEVEL, COLUMN_BASE = range(2)
#: The columns of ``levels``: the rows in use, those that there is room for, those in use before the record, those that
#: a record needs, and the values of a row (``streamcore.decode.scalar.value_counts``).
COUNT, CAPACITY, MARK, WANTED, WIDTH = range(5)
LEVEL_COLUMNS: Final = 5


@inlined
def begin_record(levels: Int64s) -> None:
    """Remember which rows are in use."""
    for level in range(1, len(levels)):
        levels[level, MARK] = levels[level, COUNT]


@compiled
def take_back(row: int, columns: Int64s, levels: Int64s, lengths: Int64s, found: Bytes) -> None:
    """Clear the values that the record in row ``row`` has put into columns."""
    for column in range(len(columns)):
        level, base = columns[column, COLUMN_LEVEL], columns[column, COLUMN_BASE]
        first, behind = row, row + 1
        if level > 0:
            first, behind = levels[level, MARK], levels[level, COUNT]
        for index in range(base + first, base + behind):
            found[index] = ABSENT
            lengths[index] = 0
    for level in range(1, len(levels)):
        levels[level, COUNT] = levels[level, MARK]


@inlined
def has_required(row: int, required: Int64s, columns: Int64s, found: Bytes) -> bool:
    """Return whether a record has the fields that each one must have."""
    good = True
    for i in range(len(required)):
        good = good and found[columns[required[i], COLUMN_BASE] + row] != ABSENT
    return good
