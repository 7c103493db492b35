"""Creates the group for a kind of rules.

The module of a group is imported when it is first needed: importing all of them takes 100 ms, for which a command that
reads one rule would wait.
"""

from __future__ import annotations

from collections.abc import Callable

from rulecore.compile import rule as compiled
from rulecore.documents.rule import RuleKind
from rulecore.groups.base import GroupId, RuleGroup
from rulecore.key_columns import keyed_schema
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema

GroupFactory = Callable[[GroupId, StreamSchema, GroupSettings], RuleGroup]


def make_group(group: GroupId, schema: StreamSchema, settings: GroupSettings) -> RuleGroup:
    """Return an empty group of the kind ``group.kind``."""
    return _group_factory(group.kind)(group, keyed_schema(schema, group.group_by), settings)


def _group_factory(kind: str) -> GroupFactory:
    """Return the constructor of the groups of this ``GroupId.kind``."""
    match kind:
        case RuleKind.WINDOW:
            from rulecore.groups.windows.group import WindowGroup

            return WindowGroup
        case compiled.SESSION:
            from rulecore.groups.sessions.group import SessionGroup

            return SessionGroup
        case compiled.COUNT:
            from rulecore.groups.counts.group import CountGroup

            return CountGroup
        case RuleKind.SEQUENCE:
            from rulecore.groups.sequences.group import SequenceGroup

            return SequenceGroup
        case RuleKind.ABSENCE:
            from rulecore.groups.absence.group import AbsenceGroup

            return AbsenceGroup
        case RuleKind.FEATURE:
            from rulecore.groups.features.group import FeatureGroup

            return FeatureGroup
        case compiled.IN_ORDER:
            from rulecore.groups.features.in_order import InOrderFeatureGroup

            return InOrderFeatureGroup
        case compiled.STAGE_FEATURE:
            from rulecore.groups.features.stage import StageFeatures

            return StageFeatures
        case compiled.STAGE_IN_ORDER:
            from rulecore.groups.features.stage import StageInOrderFeatures

            return StageInOrderFeatures
        case RuleKind.SCORE:
            from rulecore.groups.scores.group import ScoreGroup

            return ScoreGroup
    raise KeyError(kind)
