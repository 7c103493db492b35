"""Sends the lineage of a running app as OpenLineage events: which offsets of which topics became which rows, and where.

Cuts that have finished are merged into one open range, which a thread posts in an interval. A cut never waits for the
server. Promises: the ranges of a process join without gaps, in order, as long as it lives; the server may get an event
twice, then unchanged. Memory is bounded, however long the server is away. Not promised: ranges that were not sent when
the process ends; the first event of the next process shows where it begins. Knows neither Spark nor Kafka.
"""

from streamcore.lineage.settings import LineageSettings

__all__ = ["LineageSettings"]
