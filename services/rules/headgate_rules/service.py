"""Definition of the rules service, for its process and for the ``headgate`` command."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headgate_rules.settings import RulesSettings
from headgate_rules.topics import LANES, find_lane_faults
from streamcore.service.config.faults import DocumentFault
from streamcore.service.definition import ServiceDefinition, in_module

if TYPE_CHECKING:
    from streamcore.app import Source


def _find_faults(
    settings: RulesSettings, sources: Sequence[Source | None], _unclear: Collection[str]
) -> Sequence[DocumentFault]:
    """Return what is wrong with lanes, and streams without keys."""
    without = [n for n, source in enumerate(sources) if source is not None and not source.schema.has_keys]
    message = "keys is missing in the stream file; rules group events by the fields of a key, such as [[customer]]"
    return [*find_lane_faults(settings), *(DocumentFault(f"streams.{n}", message) for n in without)]


SERVICE = ServiceDefinition(
    "headgate-rules",
    RulesSettings,
    in_module("headgate_rules.app"),
    lambda _: LANES,
    find_faults=_find_faults,
)
