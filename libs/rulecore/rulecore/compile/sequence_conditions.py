"""The conditions of a sequence's entries: what depends on one event, and what reads the events of earlier steps.

``where: amount > 500 and amount > a.amount`` has one part of each kind. The first kind is matched by the index of all
rules; the second is an ``IterativeCondition`` of ``streamcore.patterns``, evaluated by the language's reference for an
event and the events that a partial match has taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from rulecore import language as lang
from rulecore.compile.conditions import NameScope, compile_expr
from rulecore.errors import ExpressionError
from rulecore.language import Expr
from rulecore.language.scope import OF_STEP, split_step_column
from rulecore.lists.list_columns import ListColumn
from streamcore.patterns.expressions import MatchFunction, MatchRead, MatchValues
from streamcore.schema import BOOLEAN, LONG, MAX_DECIMAL_DIGITS, Kind, Type

_AGGREGATES: Final = {
    "count": MatchFunction.COUNT,
    "sum": MatchFunction.SUM,
    "min": MatchFunction.MIN,
    "max": MatchFunction.MAX,
    "avg": MatchFunction.MEAN,
    "count_distinct": MatchFunction.COUNT_DISTINCT,
}
_KNOWN: Final = "count, sum, min, max, avg, first, last, count(distinct ...)"
#: The name of a column that is computed from an event begins with it; no column of a stream is called so.
_COMPUTED: Final = OF_STEP
#: By the kind of an exact sum, the largest one.
_LARGEST: Final = {Kind.LONG: 2**63 - 1, Kind.DECIMAL: 10**MAX_DECIMAL_DIGITS - 1}
#: From how many rows on columns cost less than one row after the other.
_FEWEST_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class RuleLeaf:
    """A condition on one event. ``fingerprint``: of its expression; conditions with an equal one are equal."""

    fingerprint: str
    expr: Expr = field(compare=False)


@dataclass(frozen=True, slots=True)
class StepRead:
    """What an expression reads of the events that a step has taken. ``of``: the type of the column that it is about.

    ``type``: that of its value. ``computed``: the expression over one event that gives the column; None for a field.
    """

    read: MatchRead
    of: Type
    type: Type
    computed: Expr | None = None

    def to_physical(self, value: Any) -> Any:
        """Return a computed aggregate (``MatchRead.compute``) as a physical value of ``type``.

        A sum that its type cannot hold is NULL.
        """
        if value is None:
            return None
        if self.read.function is MatchFunction.SUM and self.type.kind in _LARGEST:
            return value if abs(value) <= _LARGEST[self.type.kind] else None
        if self.read.function is MatchFunction.MEAN and self.of.kind is Kind.DECIMAL:
            return float(Decimal(value).scaleb(-self.of.scale))
        return value

    def to_logical(self, value: Any) -> Any:
        """Return a computed aggregate (``MatchRead.compute``) as a logical value."""
        return lang.to_logical(self.to_physical(value), self.type)


#: What an expression reads, by the names under which it does.
Reads = Mapping[str, StepRead]


@dataclass(frozen=True, slots=True)
class StepCondition:
    """An ``IterativeCondition``: an expression over columns of the event, and over what it reads of earlier events.
    Equal ones have equal hashes.

    ``fingerprint``: of the expression. ``types``: the types of the event's columns. ``step_reads``: a name and a read
    for each of ``reads``.
    """

    fingerprint: str
    expr: Expr = field(compare=False)
    types: Mapping[str, Type] = field(hash=False)
    reads: tuple[MatchRead, ...]
    step_reads: tuple[tuple[str, StepRead], ...] = field(hash=False)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the event that it reads."""
        return frozenset(self.types)

    def holds(self, candidate: Mapping[str, Any], matched: Sequence[Any]) -> bool:
        """Return whether it is true. Values are physical (``streamcore.schema``)."""
        row: dict[str, object] = {name: lang.to_logical(candidate[name], kind) for name, kind in self.types.items()}
        for (name, read), value in zip(self.step_reads, matched, strict=True):
            row[name] = read.to_logical(value)
        return lang.evaluate(self.expr, row) is True

    def holds_each(self, values: MatchValues, at: Sequence[int] | None = None) -> Sequence[bool]:
        """Return ``holds`` for several events, by Polars if there are enough of them.

        Raises ``OverflowError`` for a value with more digits than its type has.
        """
        count = len(values.matched[0]) if at is None else len(at)
        if count < _FEWEST_ROWS:
            few = values if at is None else values.take(at)
            events = [{name: column[n] for name, column in few.candidates.items()} for n in range(count)]
            return [self.holds(event, [column[n] for column in few.matched]) for n, event in enumerate(events)]
        from rulecore.language.columnar.compiler import holding_rows

        names = tuple(name for name, _ in self.step_reads)
        frame = values.made.get(names)
        if frame is None:
            frame = values.made[names] = self._frame(values)
        return holding_rows(self.expr, frame if at is None else frame[[*at]])

    def _frame(self, values: MatchValues) -> Any:
        from rulecore.language.columnar.compiler import value_frame

        columns = [(name, kind, values.candidates[name]) for name, kind in self.types.items()]
        for (name, read), column in zip(self.step_reads, values.matched, strict=True):
            converts = read.read.function in (MatchFunction.MEAN, MatchFunction.SUM)
            columns.append((name, read.type, [*map(read.to_physical, column)] if converts else column))
        for name, kind, column in columns:
            if kind.kind is Kind.DECIMAL and any(abs(v) >= 10**kind.precision for v in column if v is not None):
                raise OverflowError(f"{name}: more than {kind.precision} digits")
        return value_frame(columns)


def parse_condition(text: str, path: str, scope: lang.Scope, own: str, limits: lang.ExpressionLimits) -> Expr:
    """Return a condition of a sequence as its author wrote it. ``path``: the entry, for errors.

    ``own``: the step whose event the condition is about, empty for ``without`` and ``until``: outside of aggregates,
    ``first`` and ``last`` its columns are those of the event.
    """
    parsed = lang.parse(text, scope, field=path, limits=limits, expect=BOOLEAN)
    if not own:
        return parsed
    prefix = f"{own}{OF_STEP}"
    places: dict[Expr, Expr] = {aggregate: aggregate for aggregate in lang.aggregates(parsed)}
    for node in lang.walk(parsed):
        if isinstance(node, lang.ColumnRef) and node.name.startswith(prefix):
            places[node] = lang.ColumnRef(name=node.name.removeprefix(prefix), type=node.type)
    return lang.replace_parts(parsed, places)


def split_condition(
    text: str, path: str, names: NameScope, steps: tuple[str, ...], own: str = "", later: tuple[str, ...] = ()
) -> tuple[Expr | None, StepCondition | None, Sequence[ListColumn]]:
    """Return the part of a condition on the event alone, that on earlier events, and the columns that lists give.

    ``path``: the entry, for errors. ``steps``: the steps that the condition may read. ``own``: see ``parse_condition``.
    ``later``: the steps that come after it. A part is None if there is none.
    """
    scope = lang.Scope(names.columns, lists=names.lists).with_steps(steps, later)
    parsed = parse_condition(text, path, scope, own, names.limits)
    simple = [term for term in lang.conjuncts(parsed) if not reads_steps(term)]
    over_steps = [term for term in lang.conjuncts(parsed) if reads_steps(term)]
    compiled = compile_expr(_join_with_and(simple)) if simple else None
    return (
        None if compiled is None else compiled.expr,
        _step_condition(_join_with_and(over_steps), text, path, names) if over_steps else None,
        () if compiled is None else compiled.list_columns,
    )


def _join_with_and(terms: Sequence[Expr]) -> Expr:
    return terms[0] if len(terms) == 1 else lang.And(terms=tuple(terms))


def reads_steps(expr: Expr) -> bool:
    """Return whether an expression reads the events of a step."""
    return bool(lang.aggregates(expr)) or any(OF_STEP in name for name in lang.columns(expr))


def _step_condition(expr: Expr, text: str, path: str, names: NameScope) -> StepCondition:
    if lang.lists(expr):
        raise ExpressionError(
            "a list beside an earlier step", field=path, text=text, hint="join the two conditions by and, not by or"
        )
    reads, places = find_reads(expr, text, path)
    expr = lang.normalize(lang.replace_parts(expr, places))
    types = {name: names.columns[name] for name in sorted(lang.columns(expr) - {*reads})}
    return StepCondition(
        lang.fingerprint(expr), expr, types, tuple(one.read for one in reads.values()), tuple(reads.items())
    )


def find_reads(expr: Expr, text: str, path: str) -> tuple[Reads, Mapping[Expr, Expr]]:
    """Return what an expression reads of earlier events, and for each part that reads the column that replaces it.

    ``text`` and ``path``: of the condition, for errors.
    """
    reads: dict[str, StepRead] = {}
    places: dict[Expr, Expr] = {}
    for part in dict.fromkeys(_reading_parts(expr)):
        found = _aggregate_read(part, text, path) if isinstance(part, lang.AggregateCall) else _column_read(part)
        plain = part.argument if isinstance(part, lang.AggregateCall) else part
        name = plain.name if isinstance(plain, lang.ColumnRef) else f"{found.read.step}{OF_STEP}{found.read.column}"
        if isinstance(part, lang.AggregateCall):
            name = f"{part.function}({name})"
        elif not isinstance(plain, lang.ColumnRef):
            name = f"{found.read.function}({name})"
        reads[name] = found
        places[part] = lang.ColumnRef(name=name, type=found.type)
    return reads, places


def _reading_parts(expr: Expr) -> Iterator[Expr]:
    """Yield the aggregates, and outside of them the columns of steps, or their members instead of structs."""
    if isinstance(expr, lang.AggregateCall) or _find_column(expr) is not None:
        yield expr
        return
    for child in expr.children:
        yield from _reading_parts(child)


def _find_column(expr: Expr) -> lang.ColumnRef | None:
    """Return the column of a step of which this is a member, or which it is."""
    while isinstance(expr, lang.MemberOf):
        expr = expr.operand
    return expr if isinstance(expr, lang.ColumnRef) and split_step_column(expr.name) is not None else None


def _column_read(part: Expr) -> StepRead:
    """Return the read of ``step.column``, of ``first`` or ``last`` of it, or of a member."""
    column = _find_column(part)
    assert column is not None
    function, step, name = split_step_column(column.name) or ("", "", "")
    of_event = lang.replace_parts(part, {column: lang.ColumnRef(name=name, type=column.type)})
    return _read(MatchFunction(function or "last"), step, of_event, part.type)


def _read(function: MatchFunction, step: str, of_event: Expr, kind: Type) -> StepRead:
    """Return the read of an expression over the columns of one event."""
    if isinstance(of_event, lang.ColumnRef):
        return StepRead(MatchRead(step, function, of_event.name), of_event.type, kind)
    computed = lang.normalize(of_event)
    return StepRead(MatchRead(step, function, f"{_COMPUTED}{lang.render(computed)}"), computed.type, kind, computed)


def _aggregate_read(call: lang.AggregateCall, text: str, path: str) -> StepRead:
    function, argument = call.function, call.argument
    if function not in _AGGREGATES:
        raise ExpressionError(
            f"{function} of an earlier step", field=path, text=text, hint=f"there are {_KNOWN} of step.column"
        )
    if argument is None:
        raise ExpressionError("count(*) in a sequence", field=path, text=text, hint="write count(step)")
    names = lang.columns(argument)
    steps = sorted({name.partition(OF_STEP)[0] for name in names})
    if len(steps) != 1:
        read = f"reads {' and '.join(steps)}" if steps else "reads no step"
        hint = "an aggregate is over the events of one step, such as sum(step.column)"
        raise ExpressionError(f"{lang.render(call)} {read}", field=path, text=text, hint=hint)
    (step,) = steps
    if step in names:
        if function == "count" and isinstance(argument, lang.ColumnRef):
            return StepRead(MatchRead(step, MatchFunction.COUNT), LONG, call.type)
        raise ExpressionError(
            f"{lang.render(call)}: {step} is a step, no value",
            field=path,
            text=text,
            hint=f"write such as {function}({step}.column)",
        )
    places: dict[Expr, Expr] = {
        node: lang.ColumnRef(name=node.name.partition(OF_STEP)[2], type=node.type)
        for node in lang.walk(argument)
        if isinstance(node, lang.ColumnRef)
    }
    return _read(_AGGREGATES[function], step, lang.replace_parts(argument, places), call.type)


def parse_read(text: str, path: str, names: NameScope, steps: tuple[str, ...]) -> StepRead:
    """Return the read that a text is: ``step.column``, a member of it, or an aggregate of the events of a step.

    ``path``: the entry, for errors.
    """
    scope = lang.Scope(names.columns).with_steps(steps)
    scope = replace(scope, columns={name: kind for name, kind in scope.columns.items() if OF_STEP in name})
    parsed = lang.parse(text, scope, field=path, limits=names.limits, expect=None)
    if not isinstance(parsed, lang.AggregateCall) and _find_column(parsed) is None:
        hint = "write such as step.column, sum(step.column), count(step)"
        raise ExpressionError("neither a column of a step nor an aggregate of one", field=path, text=text, hint=hint)
    reads, _ = find_reads(parsed, text, path)
    (found,) = reads.values()
    return found


def read_values(reads: Reads, matched: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, object]:
    """Return the logical value of each read. ``matched``: by step, its events with physical values by column."""
    return {name: one.to_logical(compute_read(one.read, matched)) for name, one in reads.items()}


def compute_read(read: MatchRead, matched: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Return what is read of the events of a match (see ``read_values``)."""
    events = matched.get(read.step, ())
    return read.compute([event[read.column] for event in events] if read.column else events)
