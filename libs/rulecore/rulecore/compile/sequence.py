"""Compiles a rule's ``sequence`` against its stream: a pattern of ``streamcore.patterns``, and its conditions.

Pure functions, which raise only ``ExpressionError`` (``rulecore.errors``) with the path of the faulty entry
(``sequence.2.where``), ``RuleSetError`` for a step whose name no condition could read, and ``ConfigError`` for a
pattern that cannot work. The fingerprint identifies the pattern: stream, ``group_by``, normalized conditions,
quantifiers, time limits and ``skip``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from rulecore import language as lang
from rulecore.compile.conditions import NameScope
from rulecore.compile.sequence_conditions import RuleLeaf, StepCondition, StepRead, parse_read, split_condition
from rulecore.documents.message_template import find_placeholders
from rulecore.documents.rule import Rule
from rulecore.documents.rule_kinds import Repetition, SequenceStep, Skip, SkipToStep, StepGroup, Without, flatten_steps
from rulecore.documents.windows import SequenceSpan
from rulecore.errors import RuleSetError
from rulecore.language import Expr
from rulecore.language.parsing.lexemes import KEYWORDS
from rulecore.lists.list_columns import ListColumn
from rulecore.matching.access_plan import AccessPath, AccessPlan, plan_access
from streamcore.patterns.automaton import Automaton, compile_pattern
from streamcore.patterns.pattern import (
    AfterMatchSkip,
    Contiguity,
    Disjunction,
    Excluded,
    Pattern,
    SkipKind,
    Step,
    WithinType,
)
from streamcore.schema import BOOLEAN, LONG, TIMESTAMP, Type

_BYTES_PER_KEY: Final = 60
_BYTES_PER_EVENT: Final = 30
_BYTES_PER_VALUE: Final = 20

#: Columns of ``Firing.values``; no column of a stream is called so.
COUNT: Final = "#count"
DURATION: Final = "#duration_ms"
STARTED: Final = "#started"
ENDED: Final = "#ended"
TIMED_OUT: Final = "#timed_out"

#: The role of an event that satisfies no condition of a step, and ends what nothing may come between.
PRESENT: Final = 1 << 62

#: Names that the message of any sequence rule may use, with their columns of ``Firing.values`` and types.
MESSAGE_FIELDS: Final[Mapping[str, tuple[str, Type]]] = {
    "count": (COUNT, LONG),
    "duration_ms": (DURATION, LONG),
    "started": (STARTED, TIMESTAMP),
    "ended": (ENDED, TIMESTAMP),
}

_WORD: Final = re.compile(r"\w+")
_SKIPS: Final = {Skip.PAST_LAST: SkipKind.PAST_LAST_EVENT, Skip.TO_NEXT: SkipKind.TO_NEXT, Skip.NONE: SkipKind.NO_SKIP}


@dataclass(frozen=True, slots=True)
class SequenceCondition:
    """A distinct condition on one event, including the rule's ``where``.

    ``plan``: how matching events are found. ``roles``: the bits of the automaton's leaves with this condition.
    """

    fingerprint: str
    plan: AccessPlan
    roles: int


@dataclass(frozen=True, slots=True)
class Capture:
    """A value that the message uses. ``name``: its text there, such as ``step.column`` or ``sum(step.column)``."""

    name: str
    read: StepRead


@dataclass(frozen=True, slots=True)
class CompiledSequence:
    """A compiled sequence. ``fingerprint``: the name of its stored state.

    ``span_ms``: the longest time from its first event to its last. ``values``: the columns that are kept of each event
    because later conditions or the message read them. ``computed``: the expressions of those that are no field of the
    stream. ``columns``: those that its conditions read. ``unambiguous``: it has one match
    at most for a first and a last event. ``length``: the fewest events of a match.
    """

    fingerprint: str
    automaton: Automaton
    conditions: tuple[SequenceCondition, ...]
    captures: tuple[Capture, ...]
    span_ms: int
    values: tuple[str, ...]
    computed: Mapping[str, Expr]
    columns: frozenset[str]
    unambiguous: bool
    length: int

    @property
    def seen(self) -> frozenset[str]:
        """The fingerprints of conditions of events that end partial matches though they satisfy no step's condition."""
        return frozenset(condition.fingerprint for condition in self.conditions if condition.roles & PRESENT)

    @property
    def access(self) -> AccessPath:
        """The least selective of the access paths of its conditions."""
        return max((c.plan.access for c in self.conditions), key=list(AccessPath).index)

    @property
    def bytes_per_partial(self) -> int:
        """The approximate size, in bytes, of a key with one nearly complete sequence."""
        return _BYTES_PER_KEY + self.length * (_BYTES_PER_EVENT + _BYTES_PER_VALUE * len(self.values))

    @property
    def note(self) -> str:
        """The cost of the sequence, as readable text."""
        return (
            f"{self.length} events, {len(self.conditions)} conditions; an event that satisfies one waits for "
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
    if reserved := [step.step for step in flatten_steps(rule.sequence) if step.step in KEYWORDS]:
        raise RuleSetError(f"sequence: the step {reserved[0]} is a word of the language; give it another name")
    compiler = _Compiler(rule.sequence, where, names)
    skip = (
        AfterMatchSkip(_SKIPS[rule.skip])
        if isinstance(rule.skip, Skip)
        else AfterMatchSkip(SkipKind.TO_FIRST if rule.skip.to_first else SkipKind.TO_LAST, rule.skip.step)
    )
    pattern = Pattern(compiler.steps(rule.sequence), skip, rule.within.span + 1)
    automaton = compile_pattern(pattern)
    iterative = [condition for condition in automaton.leaves if isinstance(condition, StepCondition)]
    captures = _captures(rule, names)
    reads = [read for condition in iterative for _, read in condition.step_reads] + [c.read for c in captures]
    kept = {read.read.column: read.computed for read in reads if read.read.column}
    computed = {name: expr for name, expr in kept.items() if expr is not None}
    return CompiledSequence(
        fingerprint=_fingerprint(rule, group_by, compiler),
        automaton=automaton,
        conditions=_event_conditions(automaton, pattern, where),
        captures=captures,
        span_ms=rule.within.span,
        values=tuple(sorted(kept)),
        computed=computed,
        columns=frozenset(compiler.columns).union(kept.keys() - computed, *map(lang.columns, computed.values())),
        unambiguous=all(_is_plain(item) for item in rule.sequence) and isinstance(rule.skip, Skip),
        length=sum(_fewest(item) for item in rule.sequence),
    ), tuple(compiler.list_columns)


def _event_conditions(automaton: Automaton, pattern: Pattern, where: Expr | None) -> tuple[SequenceCondition, ...]:
    roles: dict[str, int] = {}
    exprs: dict[str, Expr] = {}
    for number, leaf in enumerate(automaton.leaves):
        if isinstance(leaf, RuleLeaf):
            roles[leaf.fingerprint] = roles.get(leaf.fingerprint, 0) | 1 << number
            exprs[leaf.fingerprint] = leaf.expr
    if _has_strict_step(pattern):
        expr = lang.Literal(value=True, type=BOOLEAN) if where is None else where
        fingerprint = lang.fingerprint(expr)
        roles[fingerprint] = roles.get(fingerprint, 0) | PRESENT
        exprs[fingerprint] = expr
    return tuple(SequenceCondition(f, plan_access(expr), roles[f]) for f, expr in exprs.items())


def _has_strict_step(pattern: Pattern) -> bool:
    """Return whether an event that satisfies no condition can end a partial match."""
    _, *others = pattern.steps
    strict = (Contiguity.STRICT, Contiguity.NOT_NEXT)
    return (
        any(step.contiguity in strict for step in others)
        or any(step.inner is Contiguity.STRICT for step in pattern.steps)
        or any(step.group is not None and _has_strict_step(step.group) for step in pattern.steps)
    )


def _is_plain(item: SequenceStep | Without | StepGroup) -> bool:
    """Return whether there is at most one way to take the events of the entry."""
    if isinstance(item, Without):
        return True
    plain = isinstance(item, SequenceStep) and item.contiguity.value != Contiguity.RELAXED_ANY.value
    return plain and item.bounds[0] == item.bounds[1] and not item.optional and not item.allow_combinations


def _fewest(item: SequenceStep | Without | StepGroup) -> int:
    if isinstance(item, Without) or item.optional:
        return 0
    return item.bounds[0] * (sum(map(_fewest, item.group)) if isinstance(item, StepGroup) else 1)


class _Compiler:
    """Compiles the entries of a sequence. ``columns``: those that conditions read; ``parts``: what the fingerprint is
    made of."""

    def __init__(
        self, items: Sequence[SequenceStep | Without | StepGroup], where: Expr | None, names: NameScope
    ) -> None:
        self._all_steps = tuple(step.step for step in flatten_steps(items))
        self._where = where
        self._names = names
        self._leaves: dict[str, RuleLeaf] = {}
        self._known: tuple[str, ...] = ()
        self.list_columns: list[ListColumn] = []
        self.columns: set[str] = set()
        self.parts: list[object] = []

    def steps(self, items: Sequence[SequenceStep | Without | StepGroup], path: str = "sequence") -> tuple[Step, ...]:
        """Return the steps of the pattern. ``path``: of the entries, for errors."""
        steps: list[Step] = []
        before: Disjunction | None = None  # of the `without` in front
        for number, item in enumerate(items):
            here = f"{path}.{number}"
            if isinstance(item, Without):
                step = self._without(item, f"without {here}", here)
                before = None if item.directly else step.condition
            elif isinstance(item, StepGroup):
                step, before = self._group(item, here), None
            else:
                step, before = self._step(item, here, before), None
            if not steps and not step.contiguity.negates:
                step = replace(step, contiguity=Contiguity.STRICT)  # nothing is before it
            steps.append(step)
        return tuple(steps)

    def _step(self, item: SequenceStep, path: str, without: Disjunction | None) -> Step:
        self._known = (*self._known, item.step)
        condition = self._condition(item.where, f"{path}.where", item.step)
        first = None
        if without is not None:  # it wins over the step, until that has taken an event
            (forbidden,) = without.alternatives
            first = condition.also(Excluded(forbidden))
        step = Step(
            item.step, Contiguity(item.contiguity.value), condition, first, greedy=item.greedy, forbid_at_end_only=True
        )
        return self._repeated(step, item, path)

    def _group(self, item: StepGroup, path: str) -> Step:
        inside = Pattern(self.steps(item.group, f"{path}.group"))
        step = Step("/".join(inside.step_names), Contiguity(item.contiguity.value), group=inside)
        return self._repeated(step, item, path)

    def _repeated(self, step: Step, item: Repetition, path: str) -> Step:
        least, most = item.bounds
        until = None if item.until is None else self._condition(item.until, f"{path}.until")
        inner = Contiguity.STRICT if item.consecutive else Contiguity.RELAXED_ANY if item.allow_combinations else None
        self.parts.append([item.contiguity.value, least, most, item.optional, step.greedy, inner, item.within])
        return replace(
            step,
            least=max(1, least),
            most=most,
            repeats=(least, most) != (1, 1),
            optional=item.optional or least == 0,
            inner=inner,
            until=until,
            limit_ms=None if item.within is None else item.within + 1,
            limit=WithinType.SINCE_STEP_BEFORE,
        )

    def _without(self, item: Without, name: str, path: str) -> Step:
        condition = self._condition(item.without, f"{path}.without")
        contiguity = Contiguity.NOT_NEXT if item.directly else Contiguity.NOT_FOLLOWED_BY
        self.parts.append([contiguity, item.within])
        limit_ms = None if item.within is None else item.within + 1
        return Step(name, contiguity, condition, limit_ms=limit_ms, limit=WithinType.SINCE_STEP_BEFORE)

    def _condition(self, text: str, path: str, own: str = "") -> Disjunction:
        """Return the condition as one on the event alone, and one that reads earlier events. ``own``: its step."""
        later = self._all_steps[len(self._known) :]
        simple, over_steps, list_columns = split_condition(text, path, self._names, self._known, own, later)
        self.list_columns += list_columns
        simple = _conjunction(self._where, simple)
        self.columns |= lang.columns(simple) | (frozenset() if over_steps is None else over_steps.columns)
        leaf = RuleLeaf(lang.fingerprint(simple), simple)
        leaf = self._leaves.setdefault(leaf.fingerprint, leaf)
        self.parts.append([leaf.fingerprint, None if over_steps is None else lang.fingerprint(over_steps.expr)])
        return Disjunction(((leaf,) if over_steps is None else (leaf, over_steps),))


def _conjunction(common: Expr | None, expr: Expr | None) -> Expr:
    if common is None or expr is None:
        return expr or common or lang.Literal(value=True, type=BOOLEAN)
    return lang.normalize(lang.And(terms=(*lang.conjuncts(common), *lang.conjuncts(expr))))


def _fingerprint(rule: Rule, group_by: Sequence[str], compiler: _Compiler) -> str:
    assert isinstance(rule.within, SequenceSpan)
    skip = rule.skip.value if isinstance(rule.skip, Skip) else [rule.skip.to_first, rule.skip.to_last]
    # Names of steps matter where conditions read them, which have them in their fingerprints, and to the skip strategy.
    steps = [step.step for step in flatten_steps(rule.sequence or ())] if isinstance(rule.skip, SkipToStep) else []
    identity = [rule.on, list(group_by), compiler.parts, rule.within.span, skip, steps]
    return hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()


def _captures(rule: Rule, names: NameScope) -> tuple[Capture, ...]:
    """Return each placeholder of the message that names a step, once."""
    steps = tuple(item.step for item in flatten_steps(rule.sequence or ()))
    own = [name for name in find_placeholders(rule.then.message) if name not in MESSAGE_FIELDS]
    of_steps = [name for name in own if name not in rule.group_by and not {*_WORD.findall(name)}.isdisjoint(steps)]
    return tuple(Capture(name, parse_read(name, "then.message", names, steps)) for name in dict.fromkeys(of_steps))
