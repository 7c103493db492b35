"""Definition of the etl service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headgate_etl.documents import EtlDocument, RouteTarget
from headgate_etl.settings import EtlSettings
from streamcore.service.definition import ServiceDefinition, in_module
from streamcore.wire.lanes import DEAD_LETTERS, STATUS

if TYPE_CHECKING:
    from streamcore.app import Source
    from streamcore.service.config.faults import DocumentFault


def _lanes(settings: EtlSettings) -> tuple[str, ...]:
    """Return the lanes that end in a Kafka topic."""
    routes = [route.name for route in settings.routes if route.to is RouteTarget.KAFKA]
    duplicates = settings.deduplicate.duplicates_to if settings.deduplicate else None
    return (*routes, *((duplicates,) if duplicates else ()), DEAD_LETTERS, STATUS)


def _find_faults(
    document: EtlDocument, sources: Sequence[Source | None], unclear: Collection[str]
) -> Sequence[DocumentFault]:
    """Return what is wrong with names and expressions."""
    from headgate_etl.mapping_tests import check_tests
    from headgate_etl.plan import find_plan
    from rulecore.mapping.problems import Problems

    problems = Problems(unclear={*unclear})
    find_plan(document, problems, sources)
    check_tests(document, problems)
    return problems.faults


SERVICE = ServiceDefinition(
    "headgate-etl",
    EtlSettings,
    in_module("headgate_etl.app"),
    _lanes,
    form=EtlDocument,
    find_faults=_find_faults,
)
