"""The configuration of the rules kernel and the limits of its state, as values that travel to the workers.

Imports nothing that takes time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class RuleStream:
    """A stream that rules may be written on, and the topic that its events come from."""

    schema: StreamSchema
    topic: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits on the state that groups keep. ``distinct``: values that a distinct count keeps per key and pane.

    ``partials``: beginnings of a sequence that are kept per rule and key. ``events``: kept per rule and key while they
    wait for the watermark. ``population``: keys that absence rules expect an event of, and keys that scores are added
    for, by population or group of rules. ``repeats``: alerts of an absence rule for one key in one cut.
    ``idle_ms``: a count window whose key has no event for so long of event time is dropped, and the key's next event
    begins a new one.
    """

    distinct: int = 10_000
    partials: int = 100
    events: int = 10_000
    idle_ms: int = 30 * 86_400_000
    population: int = 1_000_000
    repeats: int = 100


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Limits on the state kept between a firing and its alert, per shard.

    ``suppressed``: rules and values that wait for their next alert. ``late_ms``: how late an event may come and still
    find that it is suppressed (rules per event see late events too). ``compared``: firings of versions on trial that
    are remembered. ``compare_every_ms``: how often a trial's counts are reported, by the clock.
    """

    suppressed: int = 200_000
    late_ms: int = 3_600_000
    compared: int = 200_000
    compare_every_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class ListLimits:
    """How many lists there may be, and how large. ``record_bytes``: of a head or a part.

    ``total_bytes``: all heads and parts that lists use. ``unused_parts`` and ``unused_bytes``: parts that no list uses
    (not yet, or no more) and that are kept; of more the oldest are dropped.
    """

    lists: int = 1_000
    entries: int = 1_000_000
    record_bytes: int = 512 * 1024
    total_bytes: int = 256 << 20
    unused_parts: int = 4_096
    unused_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class RulesConfig:
    """The configuration of a rules kernel. ``shards``: the number of shards of the app.

    ``max_matches``: matches that a rule may have in one cut and shard.
    """

    streams: tuple[RuleStream, ...]
    max_rules: int = 20_000
    groups: GroupSettings = field(default_factory=GroupSettings)
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    max_matches: int = 100_000
    shards: int = 1
    lists: ListLimits = field(default_factory=ListLimits)
