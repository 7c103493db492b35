"""Aggregates: functions of a group of rows that are computed in columns, piece by piece.

The package exists so that windows, rolling totals and rules share one exact implementation of sums, counts, extremes,
first and last values, distinct values, variances, quantiles, lists and funnels. It promises that partial results can be
merged in any grouping, that the results of integers and decimals are exact, and that each aggregate has a plain
reference that the tests compare with. It does not know keys, windows, watermarks or where partials are stored.
"""

from streamcore.aggregates.base import Aggregate, Partials, Schema, concat_rows, take_rows
from streamcore.aggregates.collect import Collect, TopN
from streamcore.aggregates.custom import Accumulator, Custom, RowAccumulator
from streamcore.aggregates.distinct import CountDistinct
from streamcore.aggregates.first_last import First, Last, Ties
from streamcore.aggregates.funnel import Funnel
from streamcore.aggregates.min_max import Max, Min
from streamcore.aggregates.sketches import ApproxDistinct, Quantiles
from streamcore.aggregates.sums import Count, Mean, Sum
from streamcore.aggregates.variance import StdDev, Variance

__all__ = [
    "Accumulator",
    "Aggregate",
    "ApproxDistinct",
    "Collect",
    "Count",
    "CountDistinct",
    "Custom",
    "First",
    "Funnel",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Partials",
    "Quantiles",
    "RowAccumulator",
    "Schema",
    "StdDev",
    "Sum",
    "Ties",
    "TopN",
    "Variance",
    "concat_rows",
    "take_rows",
]
