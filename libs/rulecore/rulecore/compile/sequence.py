"""Compiles a rule's ``sequence`` against its stream.

Pure functions, which raise only ``ExpressionError`` with the path of the faulty entry (``sequence.2.where``). The
fingerprint identifies the pattern: stream, ``group_by``, normalized conditions, ``times``, time limits and ``skip``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from rulecore import language as lang
from rulecore.compile import conditions
from rulecore.compile.conditions import NameScope
from rulecore.compile.sequence_program import SequenceProgram, build_program
from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import SequenceStep, Without
from rulecore.documents.windows import SequenceSpan
from rulecore.errors import ExpressionError
from rulecore.language import Expr
from rulecore.lists.list_columns import ListColumn
from rulecore.matching.access_plan import AccessPath, AccessPlan, plan_access
from streamcore.schema import LONG, TIMESTAMP, Type

_BYTES_PER_KEY: Final = 60
_BYTES_PER_EVENT: Final = 30
_BYTES_PER_VALUE: Final = 20

#: Columns of ``Firing.values``; no column of a stream is called so.
COUNT: Final = "#count"
DURATION: Final = "#duration_ms"
STARTED: Final = "#started"
ENDED: Final = "#ended"

#: Names that the message of any sequence rule may use, with their columns of ``Firing.values`` and types.
MESSAGE_FIELDS: Final[Mapping[str, tuple[str, Type]]] = {
    "count": (COUNT, LONG),
    "duration_ms": (DURATION, LONG),
    "started": (STARTED, TIMESTAMP),
    "ended": (ENDED, TIMESTAMP),
}


@dataclass(frozen=True, slots=True)
class SequenceCondition:
    """A distinct condition of the sequence, including the rule's ``where``.

    ``plan``: how matching events are found. ``roles``: a bit for each entry of ``sequence`` with this condition.
    """

    fingerprint: str
    plan: AccessPlan
    roles: int


@dataclass(frozen=True, slots=True)
class Capture:
    """A value that the message uses: that of ``column`` in the last event of a step.

    ``name``: ``step.column``. ``step``: the number of the step, from 0, without the entries ``without``.
    """

    name: str
    step: int
    column: str
    type: Type


@dataclass(frozen=True, slots=True)
class CompiledSequence:
    """A compiled sequence. ``fingerprint``: the name of its stored state."""

    fingerprint: str
    program: SequenceProgram
    conditions: tuple[SequenceCondition, ...]
    captures: tuple[Capture, ...]

    @property
    def access(self) -> AccessPath:
        """The least selective of the access paths of its conditions."""
        return max((c.plan.access for c in self.conditions), key=list(AccessPath).index)

    @property
    def bytes_per_partial(self) -> int:
        """The approximate size, in bytes, of a key with one nearly complete sequence."""
        return _BYTES_PER_KEY + self.program.length * (_BYTES_PER_EVENT + _BYTES_PER_VALUE * len(self.captures))

    @property
    def note(self) -> str:
        """The cost of the sequence, as readable text."""
        return (
            f"{self.program.length} events, {len(self.conditions)} conditions; an event that satisfies one waits for "
            f"the watermark; about {self.bytes_per_partial} bytes a key that is on the way"
        )


def compile_sequence(
    rule: Rule, group_by: Sequence[str], where: Expr | None, names: NameScope
) -> tuple[CompiledSequence, tuple[ListColumn, ...]]:
    """Compile a sequence rule, and return it with the list columns that its conditions use.

    ``where``: the rule's condition on all events. ``group_by``: in the order of the stream's columns.
    """
    assert rule.sequence is not None
    assert isinstance(rule.within, SequenceSpan)
    compiled = [_compile_entry(n, item, names) for n, item in enumerate(rule.sequence)]
    exprs = [_conjunction(where, condition.expr) for condition in compiled]
    roles: dict[str, int] = {}
    by_fingerprint: dict[str, Expr] = {}
    for number, expr in enumerate(exprs):
        fingerprint = lang.fingerprint(expr)
        roles[fingerprint] = roles.get(fingerprint, 0) | 1 << number
        by_fingerprint[fingerprint] = expr
    program = build_program(rule.sequence, rule.within.span, rule.skip)
    sequence = CompiledSequence(
        fingerprint=_fingerprint(rule, group_by, exprs),
        program=program,
        conditions=tuple(SequenceCondition(f, plan_access(expr), roles[f]) for f, expr in by_fingerprint.items()),
        captures=_captures(rule, names.columns),
    )
    return sequence, tuple(column for condition in compiled for column in condition.list_columns)


def _compile_entry(number: int, item: SequenceStep | Without, names: NameScope) -> conditions.EventCondition:
    name, text = ("where", item.where) if isinstance(item, SequenceStep) else ("without", item.without)
    return conditions.compile_condition(text, f"sequence.{number}.{name}", names)


def _conjunction(common: Expr | None, expr: Expr) -> Expr:
    if common is None:
        return expr
    return lang.normalize(lang.And(terms=(*lang.conjuncts(common), *lang.conjuncts(expr))))


def _fingerprint(rule: Rule, group_by: Sequence[str], exprs: Sequence[Expr]) -> str:
    assert rule.sequence is not None
    assert isinstance(rule.within, SequenceSpan)
    items = [
        [
            isinstance(item, SequenceStep),
            lang.fingerprint(expr),
            item.times if isinstance(item, SequenceStep) else 0,
            item.within,
        ]
        for item, expr in zip(rule.sequence, exprs, strict=True)
    ]
    identity = [rule.on, list(group_by), items, rule.within.span, rule.skip.value]
    return hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()


def _captures(rule: Rule, columns: Mapping[str, Type]) -> tuple[Capture, ...]:
    """Return each ``{step.column}`` of the message once. Names without a step are not included."""
    assert rule.sequence is not None
    steps = [item.step for item in rule.sequence if isinstance(item, SequenceStep)]
    return tuple(
        Capture(f"{step}.{column}", number, column, columns[column])
        for number, step in enumerate(steps)
        for column in columns
        if f"{{{step}.{column}}}" in rule.then.message
    )


def check_captures(rule: Rule, columns: Mapping[str, Type]) -> None:
    """Raise ``ExpressionError`` if the message has a ``{step.column}`` of an existing step and an unknown column."""
    assert rule.sequence is not None
    for item in rule.sequence:
        if not isinstance(item, SequenceStep):
            continue
        start = rule.then.message.find(f"{{{item.step}.")
        while start >= 0:
            column, _, _ = rule.then.message[start + len(item.step) + 2 :].partition("}")
            if column not in columns:
                raise ExpressionError(
                    f"events of {item.step} have no {column!r}",
                    field="then.message",
                    text=rule.then.message,
                    start=start,
                    length=len(item.step) + len(column) + 3,
                    hint=f"there are {', '.join(sorted(columns))}",
                )
            start = rule.then.message.find(f"{{{item.step}.", start + 1)
