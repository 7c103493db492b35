"""Definition of the sessions service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import lanes
from streamcore.service.definition import ServiceDefinition, in_module

SERVICE = ServiceDefinition("headgate-sessions", SessionsSettings, in_module("headgate_sessions.app"), lanes)
