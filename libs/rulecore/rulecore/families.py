"""Which code evaluates which rules with state: one entry a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rulecore.groups import GroupId, RuleGroup
from rulecore.sequences.group import SequenceGroup
from rulecore.settings import GroupSettings
from rulecore.windowed import WindowGroup
from streamcore.schema import StreamSchema


def make_group(group: GroupId, schema: StreamSchema, settings: GroupSettings) -> RuleGroup:
    """An empty group of the family that ``group.kind`` names."""
    return _FAMILIES[group.kind](group, schema, settings)


_FAMILIES: Mapping[str, Callable[[GroupId, StreamSchema, GroupSettings], RuleGroup]] = {
    "window": WindowGroup,
    "sequence": SequenceGroup,
}
