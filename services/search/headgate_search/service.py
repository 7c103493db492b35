"""Definition of the search service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headgate_search.settings import SearchDocument, SearchSettings
from headgate_search.topics import lanes
from streamcore.service.definition import ServiceDefinition, in_module

if TYPE_CHECKING:
    from streamcore.app import Source
    from streamcore.service.config.faults import DocumentFault


def _find_faults(
    settings: SearchDocument, sources: Sequence[Source | None], unclear: Collection[str]
) -> Sequence[DocumentFault]:
    """Return what is wrong with names and expressions."""
    from headgate_search.plan import find_plan
    from rulecore.mapping.problems import Problems

    problems = Problems(unclear={*unclear})
    find_plan(settings, sources, problems)
    if (fault := settings.find_index_fault()) is not None:
        problems.add(*fault)
    return problems.faults


SERVICE = ServiceDefinition(
    "headgate-search",
    SearchSettings,
    in_module("headgate_search.app"),
    lanes,
    form=SearchDocument,
    find_faults=_find_faults,
)
