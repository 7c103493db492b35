"""Which code evaluates which rules with state: one entry a family.

A family is imported when it is first asked for: all of them together take a tenth of a second, which a command that
looks at one rule would wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from rulecore import compiled
from rulecore.groups import GroupId, RuleGroup
from rulecore.model import Kind
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema

Family = Callable[[GroupId, StreamSchema, GroupSettings], RuleGroup]


def make_group(group: GroupId, schema: StreamSchema, settings: GroupSettings) -> RuleGroup:
    """An empty group of the family that ``group.kind`` names."""
    return _family(group.kind)(group, schema, settings)


def _family(kind: str) -> Family:
    match kind:
        case Kind.WINDOW:
            from rulecore.windowed import WindowGroup

            return WindowGroup
        case compiled.SESSION:
            from rulecore.sessions import SessionGroup

            return SessionGroup
        case compiled.COUNT:
            from rulecore.counted import CountGroup

            return CountGroup
        case Kind.SEQUENCE:
            from rulecore.sequences.group import SequenceGroup

            return SequenceGroup
        case Kind.ABSENCE:
            from rulecore.absence import AbsenceGroup

            return AbsenceGroup
        case Kind.SCORE:
            from rulecore.scores import ScoreGroup

            return ScoreGroup
    raise KeyError(kind)
