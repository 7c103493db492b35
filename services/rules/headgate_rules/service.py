"""Definition of the rules service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from headgate_rules.settings import RulesSettings
from headgate_rules.topics import LANES, find_lane_faults
from streamcore.service.definition import ServiceDefinition, in_module

SERVICE = ServiceDefinition(
    "headgate-rules",
    RulesSettings,
    in_module("headgate_rules.app"),
    lambda _: LANES,
    find_faults=lambda settings, *_: find_lane_faults(settings),
)
