"""The expectation of an absence rule, computed once: which event, how often, for which keys.

Promises: ``population`` identifies *whose last event is remembered*: stream, grouping, condition and list. Neither
``every`` nor ``again``, ``forget`` or anything in ``then`` is part of it, so last-seen times outlive such changes and
are shared by all rules that expect the same event of the same keys. Refuses to know keys, events and time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from rulecore import language as lang
from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import Again, ListedKeys
from rulecore.documents.scalars import render_duration
from rulecore.errors import RuleSetError
from rulecore.language import Expr, ListType
from streamcore.schema import LONG, TIMESTAMP, StreamSchema, Type

MIN_EVERY_MS: Final = 1_000

#: What alerts show: the last event (NULL if none came since the key is on the list), how long ago that was at the
#: deadline (or the arming), and how many alerts in a row this one makes.
ALERT_FIELDS: Final[tuple[tuple[str, Type], ...]] = (
    ("last_seen", TIMESTAMP),
    ("missing_for_ms", LONG),
    ("times", LONG),
)


@dataclass(frozen=True, slots=True)
class CompiledAbsence:
    """``where`` is normalized. ``again_ms`` None: once; ``forget_ms`` None: never; ``listed`` None: keys that come.

    ``population`` is a fingerprint, see the top of the module.
    """

    where: Expr
    every_ms: int
    again_ms: int | None
    forget_ms: int | None
    listed: str | None
    population: str

    @property
    def last_time(self) -> int | None:
        """The number of the last alert that may be given for one period of silence, counted from 0; None: no last."""
        if self.again_ms is None:
            return 0
        return None if self.forget_ms is None else (self.forget_ms - self.every_ms) // self.again_ms


def compile_absence(
    rule: Rule, schema: StreamSchema, group_by: tuple[str, ...], where: Expr, lists: Mapping[str, ListType]
) -> CompiledAbsence:
    """``where`` is the compiled ``expect.where``; ``RuleSetError`` for an impossible expectation."""
    assert rule.expect is not None, "an absence rule"
    expect = rule.expect
    if expect.every < MIN_EVERY_MS:
        shortest = render_duration(MIN_EVERY_MS)
        raise RuleSetError(f"expect.every: {render_duration(expect.every)}; at least {shortest}")
    listed = expect.of.list if isinstance(expect.of, ListedKeys) else None
    if listed is not None and len(group_by) != 1:
        raise RuleSetError(
            f"expect.of: list {listed} holds values of one column, and group_by has {len(group_by)} columns; "
            "group by the listed column alone, or write of: seen"
        )
    if listed is not None:
        _check_list(listed, lists, schema, group_by[0])
    identity = [schema.name, list(group_by), lang.fingerprint(where), listed]
    population = hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
    again = None if isinstance(expect.again, Again) else expect.again
    return CompiledAbsence(where, expect.every, again, expect.forget, listed, population)


def _check_list(name: str, lists: Mapping[str, ListType], schema: StreamSchema, column: str) -> None:
    """Raise ``RuleSetError`` for a list that is not there, or whose entries are no values of the column."""
    if name not in lists:
        raise RuleSetError(f"expect.of: there is no list {name!r}; there are {', '.join(sorted(lists)) or 'none'}")
    field = schema.get(column)
    assert field is not None, "a grouped column is one of the stream's"
    if lists[name].of != field.type:
        raise RuleSetError(f"expect.of: list {name} holds {lists[name].of}, and {column} is {field.type}")
