"""Which columns hold the event time of the rows of a stream: a step that changes only the column is rejected."""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.app import EventTime
from streamcore.errors import ConfigError
from streamcore.topology.nodes import (
    EnrichmentNode,
    OutputPort,
    SourceNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
)


def time_columns(port: OutputPort) -> frozenset[str]:
    """Return the columns from which the rows of a port have their event time; none behind an operator."""
    match port.node:
        case SourceNode(stream=stream, time=time):
            found = frozenset({stream.event_time}) if time is EventTime.FIELD else frozenset()
        case TimestampsNode(column=column):
            found = frozenset({column})
        case StatelessNode() | EnrichmentNode() | UnionNode():
            found = frozenset().union(*(time_columns(one) for one in port.node.inputs))
        case _:
            found = frozenset()
    return found.intersection(port.schema)


def reject_changed_time(step_kind: str, port: OutputPort, changed: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a step changes a column of the event time: the row would keep its time."""
    for column in sorted(time_columns(port).intersection(changed)):
        raise ConfigError(
            f"{step_kind}: column {column} holds the event time of the rows, and a new value would not change it; give "
            "the new column another name, and write assign_timestamps(name) if it is the time from here on"
        )
