"""The configuration of the rules kernel and the limits of its state: picklable values that are sent to the workers.

The module imports nothing that takes time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rulecore.streams import RuleStream

if TYPE_CHECKING:
    from streamcore.app import Source


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits of the state that a group keeps in one shard."""

    #: Most values that one distinct count keeps exactly, for each key and pane.
    distinct: int = 10_000
    #: Most incomplete matches of a sequence, for each rule and key; one more drops the oldest.
    partials: int = 100
    #: Most events of a key that wait for the watermark, and most signals of a key that a score keeps.
    events: int = 10_000
    #: Event time in milliseconds without an event after which the count window of a key is dropped.
    idle_ms: int = 30 * 86_400_000
    #: Most keys of an absence rule or a score, for each population or group of rules.
    population: int = 1_000_000
    #: Most alerts of an absence rule for one key in one cut.
    repeats: int = 100
    #: Whether the features of other keys than the rule's are computed in a stage of their own.
    feature_stage: bool = False


@dataclass(frozen=True, slots=True)
class StateBudgets:
    """Most bytes of the state of rules in one shard, as ``state_size`` counts them."""

    #: Of one rule.
    rule_bytes: int = 384 << 20
    #: Of the rules of one group together.
    group_bytes: int = 384 << 20
    #: Of all rules together.
    shard_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Limits of the state between a firing and its alert or decision, for each shard."""

    #: Event time in milliseconds behind the watermark at which a late event is still suppressed.
    late_ms: int = 3_600_000
    #: Most firings of versions on trial that are kept for the comparison with the live version.
    compared: int = 200_000
    #: Clock time in milliseconds between two reports of a trial; 0 turns reports off.
    compare_every_ms: int = 60_000
    #: Most events of a cut that decision policies choose by ``where`` and ``share``.
    chosen: int = 10_000


@dataclass(frozen=True, slots=True)
class ListLimits:
    """Limits of the lists that rules use."""

    #: Most lists.
    lists: int = 1_000
    #: Most entries of one list.
    entries: int = 1_000_000
    #: Most bytes of a record: the head or a part of a list.
    record_bytes: int = 512 * 1024
    #: Most bytes of all heads and parts in use.
    total_bytes: int = 256 << 20
    #: Most parts that no list uses; one more drops the oldest.
    unused_parts: int = 4_096
    #: Most bytes of parts that no list uses; more drop the oldest.
    unused_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class RulesConfig:
    """The configuration of a rules kernel."""

    #: Streams that rules may read.
    streams: tuple[RuleStream, ...]
    #: Most rules of the app.
    max_rules: int = 20_000
    #: Limits of the state of groups.
    groups: GroupSettings = field(default_factory=GroupSettings)
    #: Limits of the state between firings and alerts.
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    #: Budgets of the state of rules.
    budgets: StateBudgets = field(default_factory=StateBudgets)
    #: Most matches of one rule in one cut and shard.
    max_matches: int = 100_000
    #: Limits of lists.
    lists: ListLimits = field(default_factory=ListLimits)
    #: Sources whose streams may change while the app runs; none: it takes no stream documents.
    sources: tuple[Source, ...] = ()
    #: Whether the one shard has all events, each once, under route 0: as in back-tests and tests of rules.
    is_alone: bool = False
    #: Whether a keyed stage in front of the kernel computes the features of other keys than the rule's.
    feature_stage: bool = False
    #: The lanes whose alerts are also rows, for sinks: alerts, shadow.
    alert_rows: tuple[str, ...] = ()
