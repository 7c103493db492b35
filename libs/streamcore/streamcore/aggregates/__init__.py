"""Aggregates: functions that combine the rows of a group into one value, computed in columns for many groups together.

Windows, rolling totals and rules share them. Partial results (``base``) can be merged in any grouping. Sums of integers
and decimals are exact. Each aggregate has a plain reference implementation that the tests compare with. The package
does not depend on keys, windows, watermarks or the storage of partials.
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
