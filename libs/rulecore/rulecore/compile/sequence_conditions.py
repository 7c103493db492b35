"""The conditions of a sequence's entries: what depends on one event, and what reads the events of earlier steps.

``where: amount > 500 and amount > a.amount`` has one part of each kind. The first kind is matched by the index of all
rules; the second is an ``IterativeCondition`` of ``streamcore.patterns``, evaluated by the language's reference for an
event and the events that a partial match has taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from rulecore import language as lang
from rulecore.compile.conditions import NameScope, compile_expr
from rulecore.errors import ExpressionError
from rulecore.language import Expr
from rulecore.language.scope import OF_STEP, split_step_column
from rulecore.lists.list_columns import ListColumn
from streamcore.patterns.expressions import MatchFunction, MatchRead
from streamcore.schema import BOOLEAN, Kind, Type

_AGGREGATES: Final = {
    "count": MatchFunction.COUNT,
    "sum": MatchFunction.SUM,
    "min": MatchFunction.MIN,
    "max": MatchFunction.MAX,
    "avg": MatchFunction.MEAN,
}
#: From how many rows on columns cost less than one row after the other.
_FEWEST_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class RuleLeaf:
    """A condition on one event. ``fingerprint``: of its expression; conditions with an equal one are equal."""

    fingerprint: str
    expr: Expr = field(compare=False)


@dataclass(frozen=True, slots=True)
class StepCondition:
    """An ``IterativeCondition``: an expression over columns of the event, and ``reads`` under their names. Equal ones
    have equal hashes.

    ``types``: the types of the event's columns. ``read_types``: of each read, the name and the type of the column that
    it is about, and the type of its value.
    """

    expr: Expr
    types: Mapping[str, Type]
    reads: tuple[MatchRead, ...]
    read_types: tuple[tuple[str, Type, Type], ...]

    def __hash__(self) -> int:
        return hash((lang.fingerprint(self.expr), self.reads))

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the event that it reads."""
        return frozenset(self.types)

    def holds(self, candidate: Mapping[str, Any], matched: Sequence[Any]) -> bool:
        """Return whether it is true. Values are physical (``streamcore.schema``)."""
        row: dict[str, object] = {name: lang.to_logical(candidate[name], kind) for name, kind in self.types.items()}
        for (name, of, kind), read, value in zip(self.read_types, self.reads, matched, strict=True):
            row[name] = _logical(read.function, value, of, kind)
        return lang.evaluate(self.expr, row) is True

    def holds_each(self, candidates: Mapping[str, Sequence[Any]], matched: Sequence[Sequence[Any]]) -> Sequence[bool]:
        """Return ``holds`` for several events, by Polars if there are enough of them.

        Raises ``OverflowError`` for a value with more digits than its type has.
        """
        count = len(matched[0])
        if count < _FEWEST_ROWS:
            events = [{name: values[n] for name, values in candidates.items()} for n in range(count)]
            return [self.holds(event, [values[n] for values in matched]) for n, event in enumerate(events)]
        from rulecore.language.columnar.compiler import evaluate_columns

        columns = [(name, kind, candidates[name]) for name, kind in self.types.items()]
        for (name, of, kind), read, values in zip(self.read_types, self.reads, matched, strict=True):
            if read.function is MatchFunction.MEAN and of.kind is Kind.DECIMAL:
                scaled = [_logical(read.function, value, of, kind) for value in values]
                columns.append((name, kind, scaled))
            else:
                columns.append((name, kind, values))
        for name, kind, values in columns:
            if kind.kind is Kind.DECIMAL and any(abs(v) >= 10**kind.precision for v in values if v is not None):
                raise OverflowError(f"{name}: more than {kind.precision} digits")
        return [value is True for value in evaluate_columns(self.expr, columns)]


def _logical(function: MatchFunction, value: Any, of: Type, kind: Type) -> Any:
    """Return the logical value of an aggregate of physical values."""
    if function is MatchFunction.MEAN and value is not None and of.kind is Kind.DECIMAL:
        return float(Decimal(value).scaleb(-of.scale))
    if function is MatchFunction.COUNT:
        return int(value)
    return lang.to_logical(value, kind)


def split_condition(
    text: str, path: str, names: NameScope, steps: tuple[str, ...]
) -> tuple[Expr | None, StepCondition | None, Sequence[ListColumn]]:
    """Return the part of a condition on the event alone, that on earlier events, and the columns that lists give.

    ``path``: the entry, for errors. ``steps``: the steps that the condition may read. A part is None if there is none.
    """
    scope = lang.Scope(names.columns, lists=names.lists).with_steps(steps)
    parsed = lang.parse(text, scope, field=path, limits=names.limits, expect=BOOLEAN)
    simple = [term for term in lang.conjuncts(parsed) if not _reads_steps(term)]
    over_steps = [term for term in lang.conjuncts(parsed) if _reads_steps(term)]
    compiled = compile_expr(_join_with_and(simple)) if simple else None
    return (
        None if compiled is None else compiled.expr,
        _step_condition(_join_with_and(over_steps), text, path, names) if over_steps else None,
        () if compiled is None else compiled.list_columns,
    )


def _join_with_and(terms: Sequence[Expr]) -> Expr:
    return terms[0] if len(terms) == 1 else lang.And(terms=tuple(terms))


def _reads_steps(expr: Expr) -> bool:
    return bool(lang.aggregates(expr)) or any(OF_STEP in name for name in lang.columns(expr))


def _step_condition(expr: Expr, text: str, path: str, names: NameScope) -> StepCondition:
    if lang.lists(expr):
        raise ExpressionError(
            "a list beside an earlier step", field=path, text=text, hint="join the two conditions by and, not by or"
        )
    reads, replaced = find_reads(expr, names.columns, text, path)
    expr = lang.normalize(lang.replace_aggregates(expr, replaced))
    types = {name: names.columns[name] for name in sorted(lang.columns(expr) - {*reads})}
    read_types = tuple((name, of, kind) for name, (_, of, kind) in reads.items())
    return StepCondition(expr, types, tuple(read for read, _, _ in reads.values()), read_types)


#: By name: what is read, the type of the column that it is about, and the type of its value.
Reads = Mapping[str, tuple[MatchRead, Type, Type]]


def find_reads(
    expr: Expr, columns: Mapping[str, Type], text: str, path: str
) -> tuple[Reads, Mapping[lang.AggregateCall, str]]:
    """Return what an expression reads of earlier events, and the name of the read that replaces each aggregate.

    ``text`` and ``path``: of the condition, for errors.
    """
    reads: dict[str, tuple[MatchRead, Type, Type]] = {}
    replaced: dict[lang.AggregateCall, str] = {}
    for call in lang.aggregates(expr):
        argument = call.argument
        if not isinstance(argument, lang.ColumnRef) or call.function not in _AGGREGATES:
            known = ", ".join([*_AGGREGATES, "first", "last"])
            raise ExpressionError(
                f"{call.function} of an earlier step", field=path, text=text, hint=f"there are {known} of step.column"
            )
        step, _, column = argument.name.partition(OF_STEP)
        if column == "" and call.function != "count":
            raise ExpressionError(
                f"{call.function}({step})", field=path, text=text, hint=f"write such as {call.function}({step}.column)"
            )
        name = f"{call.function}({argument.name})"
        reads[name] = MatchRead(step, _AGGREGATES[call.function], column), argument.type, call.type
        replaced[call] = name
    outside = lang.columns(lang.replace_aggregates(expr, replaced)) - {*reads}
    for name in sorted(outside):
        if of_step := split_step_column(name):
            function, step, column = of_step
            kind = columns[column]
            reads[name] = MatchRead(step, MatchFunction(function or "last"), column), kind, kind
    return reads, replaced


def read_values(reads: Reads, matched: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, object]:
    """Return the logical value of each read. ``matched``: by step, its events with physical values by column."""
    values: dict[str, object] = {}
    for name, (read, of, kind) in reads.items():
        events = matched.get(read.step, ())
        found = read.compute([event[read.column] for event in events] if read.column else events)
        values[name] = _logical(read.function, found, of, kind)
    return values
