"""Joins of two streams, and of a stream with a table that changes.

===================  ================================================================================================
``IntervalJoin``     rows of the right near a row of the left in event time
``TemporalJoin``     what a table said of a row's key at the row's event time
``LookUpJoin``       what a table says of a row's key when the row arrives
``LatestJoin``       what two tables that change say of a key, whenever one of them changes
``WindowJoin``       all pairs of a key and window
``CoGroup``          all rows of a key and window, given to a function
===================  ================================================================================================

Keys are equal by value, never by hash alone, and a key that holds a null equals no other, as in SQL.
"""

from streamcore.operators.joins.cogroup import KEYLESS, CoGroup, CoGroupFunction
from streamcore.operators.joins.columns import JoinKeys, JoinKind
from streamcore.operators.joins.interval import Interval, IntervalJoin, IntervalJoinSpec
from streamcore.operators.joins.latest import LatestJoin, LatestSpec
from streamcore.operators.joins.lookup import LookUpJoin, LookUpSpec
from streamcore.operators.joins.meeting import WindowedSpec
from streamcore.operators.joins.sides import REFUSED
from streamcore.operators.joins.temporal import TemporalJoin
from streamcore.operators.joins.window_join import WindowJoin

__all__ = [
    "KEYLESS",
    "REFUSED",
    "CoGroup",
    "CoGroupFunction",
    "Interval",
    "IntervalJoin",
    "IntervalJoinSpec",
    "JoinKeys",
    "JoinKind",
    "LatestJoin",
    "LatestSpec",
    "LookUpJoin",
    "LookUpSpec",
    "TemporalJoin",
    "WindowJoin",
    "WindowedSpec",
]
