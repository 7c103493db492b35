"""Definition of the search service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from headgate_search.settings import SearchSettings
from headgate_search.topics import lanes
from streamcore.service.definition import ServiceDefinition

SERVICE = ServiceDefinition("headgate-search", SearchSettings, "headgate_search.app", lanes)
