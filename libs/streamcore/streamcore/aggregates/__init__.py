"""What a group of rows can be turned into: sums and counts, extremes, first and last, distinct values, quantiles."""

from streamcore.aggregates.aggregate import Aggregate, Partials, Schema, concat, take
from streamcore.aggregates.collect import Collect, TopN
from streamcore.aggregates.custom import Accumulator, Custom, RowAccumulator
from streamcore.aggregates.distinct import CountDistinct
from streamcore.aggregates.extremes import Max, Min
from streamcore.aggregates.funnel import Funnel
from streamcore.aggregates.ordered import First, Last, Ties
from streamcore.aggregates.sketches import ApproxDistinct, Quantiles
from streamcore.aggregates.spread import StdDev, Variance
from streamcore.aggregates.totals import Count, Mean, Sum

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
    "concat",
    "take",
]
