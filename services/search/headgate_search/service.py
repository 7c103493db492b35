"""Definition of the search service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from headgate_search.settings import SearchSettings
from headgate_search.topics import lanes
from streamcore.service.definition import ServiceDefinition, in_module

SERVICE = ServiceDefinition("headgate-search", SearchSettings, in_module("headgate_search.app"), lanes)
