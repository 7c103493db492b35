"""What a group of rows can be turned into: sums and counts, extremes, first and last, distinct values, quantiles."""

from streamcore.aggregates.aggregate import Aggregate, Partials, Schema, concat, take
from streamcore.aggregates.collect import Collect
from streamcore.aggregates.extremes import Max, Min
from streamcore.aggregates.totals import Count, Mean, Sum

__all__ = ["Aggregate", "Collect", "Count", "Max", "Mean", "Min", "Partials", "Schema", "Sum", "concat", "take"]
