"""Compiles the expectation of an absence rule: which event, how often, for which keys.

``population`` identifies the keys whose last event is stored: stream, ``group_by``, condition and list. ``every``,
``again``, ``forget`` and ``then`` are not part of it, so the times of last events survive changes of these entries, and
rules that expect one event of one set of keys share the times. This module knows no keys, events or clock.
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
from rulecore.errors import RuleSetError
from rulecore.language import Expr, ListType
from streamcore.durations import render_duration
from streamcore.schema import LONG, TIMESTAMP, StreamSchema, Type

MIN_EVERY_MS: Final = 1_000

#: Fields of an alert: the time of the last event (NULL if none came since the key was put on the list), the ms from
#: then (or from the time it was put on the list) to the deadline, and the number of this alert in the silence.
ALERT_FIELDS: Final[tuple[tuple[str, Type], ...]] = (
    ("last_seen", TIMESTAMP),
    ("missing_for_ms", LONG),
    ("times", LONG),
)


@dataclass(frozen=True, slots=True)
class CompiledAbsence:
    """The compiled expectation. ``where`` is in normal form.

    ``every_ms``: the longest silence without an alert. ``again_ms``: the time between repeated alerts; None for one
    alert. ``forget_ms``: the silence after which a key is dropped; None for never. ``listed``: the list with the
    expected keys; None for keys that had an event. ``population``: a fingerprint, see the top of the module.
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
    """Compile ``expect``; ``where`` is the compiled ``expect.where``. Raises ``RuleSetError`` if it is not possible."""
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
    """Raise ``RuleSetError`` if the list does not exist, or the type of its entries is not that of the column."""
    if name not in lists:
        raise RuleSetError(f"expect.of: there is no list {name!r}; there are {', '.join(sorted(lists)) or 'none'}")
    field = schema.get(column)
    assert field is not None, "a grouped column is one of the stream's"
    if lists[name].of != field.type:
        raise RuleSetError(f"expect.of: list {name} holds {lists[name].of}, and {column} is {field.type}")
