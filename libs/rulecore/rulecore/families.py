"""Which code evaluates which rules with state: one entry a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rulecore.absence import AbsenceGroup
from rulecore.compiled import COUNT, SESSION
from rulecore.counted import CountGroup
from rulecore.groups import GroupId, RuleGroup
from rulecore.model import Kind
from rulecore.scores import ScoreGroup
from rulecore.sequences.group import SequenceGroup
from rulecore.sessions import SessionGroup
from rulecore.settings import GroupSettings
from rulecore.windowed import WindowGroup
from streamcore.schema import StreamSchema


def make_group(group: GroupId, schema: StreamSchema, settings: GroupSettings) -> RuleGroup:
    """An empty group of the family that ``group.kind`` names."""
    return _FAMILIES[group.kind](group, schema, settings)


_FAMILIES: Mapping[str, Callable[[GroupId, StreamSchema, GroupSettings], RuleGroup]] = {
    Kind.WINDOW: WindowGroup,
    SESSION: SessionGroup,
    COUNT: CountGroup,
    Kind.SEQUENCE: SequenceGroup,
    Kind.ABSENCE: AbsenceGroup,
    Kind.SCORE: ScoreGroup,
}
