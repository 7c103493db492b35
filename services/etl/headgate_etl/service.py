"""Definition of the etl service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from headgate_etl.documents import RouteTarget
from headgate_etl.settings import EtlSettings
from streamcore.service.definition import ServiceDefinition, in_module
from streamcore.wire.lanes import DEAD_LETTERS, STATUS


def _lanes(settings: EtlSettings) -> tuple[str, ...]:
    """Return the lanes that end in a Kafka topic."""
    routes = [route.name for route in settings.routes if route.to is RouteTarget.KAFKA]
    duplicates = settings.deduplicate.duplicates_to if settings.deduplicate else None
    return (*routes, *((duplicates,) if duplicates else ()), DEAD_LETTERS, STATUS)


SERVICE = ServiceDefinition("headgate-etl", EtlSettings, in_module("headgate_etl.app"), _lanes)
