"""What makes a rules kernel, as a value that travels: it imports the kernel only where one is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rulecore.settings import GroupSettings, ListLimits, OutletSettings

if TYPE_CHECKING:
    from streamcore.kernel import Kernel
    from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class RuleStream:
    """A stream that rules may be written on, and the topic that its events come from."""

    schema: StreamSchema
    topic: str


@dataclass(frozen=True, slots=True)
class RulesFactory:
    """Makes the kernel of a shard; ``shards`` are those of the app. ``max_matches``: of a rule in a cut and shard."""

    streams: tuple[RuleStream, ...]
    max_rules: int = 20_000
    groups: GroupSettings = field(default_factory=GroupSettings)
    outlet: OutletSettings = field(default_factory=OutletSettings)
    max_matches: int = 100_000
    shards: int = 1
    lists: ListLimits = field(default_factory=ListLimits)

    def __call__(self) -> Kernel:
        from rulecore.kernel import RulesKernel

        return RulesKernel(self)
