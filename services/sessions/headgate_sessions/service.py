"""Definition of the sessions service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import KEYS, lanes, row_lanes
from streamcore.service.config.sinks import named_lanes
from streamcore.service.definition import ServiceDefinition, in_module
from streamcore.wire.lanes import table_lane

if TYPE_CHECKING:
    from streamcore.app import Source
    from streamcore.service.config.faults import DocumentFault


def _find_faults(
    settings: SessionsSettings, sources: Sequence[Source | None], unclear: Collection[str]
) -> Sequence[DocumentFault]:
    """Return what is wrong with names, expressions and tables."""
    from headgate_sessions.plan import find_plan
    from rulecore.mapping.problems import Problems

    problems = Problems(unclear={*unclear})
    (stream,) = sources
    if stream is not None:
        find_plan(settings, stream.schema, problems)
    there = [table_lane(lane) for lane in row_lanes(settings)]
    for path, name in named_lanes(settings):
        if name not in there:
            known = [table_lane(lane) for lane in KEYS]
            missing = "the settings turn this lane off" if name in known else f"there are {', '.join(there)}"
            problems.add(path, f"there is no lane {name!r}; {missing}")
    return problems.faults


SERVICE = ServiceDefinition(
    "headgate-sessions", SessionsSettings, in_module("headgate_sessions.app"), lanes, find_faults=_find_faults
)
