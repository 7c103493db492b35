"""Which code evaluates which rules with state: one entry a family.

A family is imported when it is first asked for: all of them together take a tenth of a second, which a command that
looks at one rule would wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from rulecore.compile import rule as compiled
from rulecore.documents.rule import RuleKind
from rulecore.groups.base import GroupId, RuleGroup
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema

Family = Callable[[GroupId, StreamSchema, GroupSettings], RuleGroup]


def make_group(group: GroupId, schema: StreamSchema, settings: GroupSettings) -> RuleGroup:
    """Return an empty group of the family that ``group.kind`` names."""
    return _family(group.kind)(group, schema, settings)


def _family(kind: str) -> Family:
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
        case RuleKind.SCORE:
            from rulecore.groups.scores.group import ScoreGroup

            return ScoreGroup
    raise KeyError(kind)
