"""Joins of two streams, and of a stream with a table that changes.

===================  ================================================================================================
``IntervalJoin``     rows of the right near a row of the left in event time
``TemporalJoin``     the table's row of a key as of the row's event time
``LookupJoin``       the table's row of a key when the row arrives
``TableTableJoin``       the current rows of two tables, whenever one of them changes
``WindowJoin``       all pairs of a key and window
``CoGroup``          all rows of a key and window, given to a function
===================  ================================================================================================

Keys are equal by value, never by hash alone, and a key that holds a null equals no other, as in SQL.
"""

from streamcore.operators.joins.cogroup import KEYLESS, CoGroup, CoGroupFunction
from streamcore.operators.joins.interval import IntervalJoin, IntervalJoinSpec, JoinInterval
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.latest import TableTableJoin, TableTableSpec
from streamcore.operators.joins.lookup import LookupJoin, LookupSpec
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.operators.joins.temporal import TemporalJoin
from streamcore.operators.joins.window_join import WindowJoin
from streamcore.operators.joins.window_matching import WindowedSpec

__all__ = [
    "KEYLESS",
    "REJECTED",
    "CoGroup",
    "CoGroupFunction",
    "IntervalJoin",
    "IntervalJoinSpec",
    "JoinInterval",
    "JoinKeys",
    "JoinKind",
    "LookupJoin",
    "LookupSpec",
    "TableTableJoin",
    "TableTableSpec",
    "TemporalJoin",
    "WindowJoin",
    "WindowedSpec",
]
