"""Iterative conditions: expressions that compare an event with the events that a partial match has taken before.

::

    candidate("v") > matched("a").last("v")             # null before the first event of "a", so the condition fails
    (matched("a").count() == 0) | (candidate("v") > matched("a").last("v"))
    matched("a").sum("v") + candidate("v") < 100

An expression is a value: it is evaluated for one event and one partial match at a time. Nulls are those of SQL: an
operation on null is null, ``true | null`` is true, and a condition that is null does not hold. A division by zero is
null. Aggregates of ``matched`` leave out nulls; without values the counts are 0 and the others are null.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise, repeat
from typing import Any, Protocol

from streamcore.errors import ConfigError


class MatchFunction(enum.StrEnum):
    """What of the events that a step has taken is read. FIRST and LAST leave out nulls, too."""

    FIRST = "first"
    LAST = "last"
    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of values: group i is those from ``bounds[i]`` to ``bounds[i + 1]``."""

    values: Sequence[Any]
    bounds: Sequence[int]

    def __iter__(self) -> Iterator[Sequence[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.bounds))


@dataclass(frozen=True, slots=True)
class MatchRead:
    """An aggregate over the events of a step. ``column``: empty for ``COUNT``, which then counts the events."""

    step: str
    function: MatchFunction
    column: str = ""

    def __str__(self) -> str:
        return f"matched({self.step!r}).{self.function}({repr(self.column) if self.column else ''})"

    def compute(self, values: Sequence[Any]) -> Any:
        """Return the aggregate of the column's values, in order of the events; for a count without column any values.

        Nulls are left out. Sums of whole numbers and decimals are exact.
        """
        if self.function is MatchFunction.COUNT:
            return len(values) if not self.column else sum(value is not None for value in values)
        known = [value for value in values if value is not None]
        if self.function is MatchFunction.COUNT_DISTINCT:
            return len(set(known))
        if not known:
            return None
        match self.function:
            case MatchFunction.FIRST:
                return known[0]
            case MatchFunction.LAST:
                return known[-1]
            case MatchFunction.MIN:
                return min(known)
            case MatchFunction.MAX:
                return max(known)
            case MatchFunction.MEAN:
                return float(reduce(operator.add, known)) / len(known)
            case _:
                return reduce(operator.add, known)

    def compute_each(self, groups: Groups) -> list[Any]:
        """Return the aggregate of each group of values."""
        values, bounds = groups.values, groups.bounds
        match self.function:
            case MatchFunction.COUNT if not self.column:
                return [end - start for start, end in pairwise(bounds)]
            case MatchFunction.FIRST if None not in values:
                return [values[start] if start < end else None for start, end in pairwise(bounds)]
            case MatchFunction.LAST if None not in values:
                return [values[end - 1] if start < end else None for start, end in pairwise(bounds)]
            case _:
                return [*map(self.compute, groups)]


@dataclass(slots=True)
class MatchValues:
    """The values over which conditions that read the same are evaluated, for several events and partial matches.

    ``candidates``: columns of the events. ``matched``: a column for each read. ``made``: what a condition has made of
    them, by the names that it has for its reads.
    """

    candidates: Mapping[str, Sequence[Any]]
    matched: Sequence[Sequence[Any]]
    made: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def take(self, at: Sequence[int]) -> MatchValues:
        """Return those of some of the events."""
        candidates = {name: [column[i] for i in at] for name, column in self.candidates.items()}
        return MatchValues(candidates, [[column[i] for i in at] for column in self.matched])


class IterativeCondition(Protocol):
    """A condition on an event that reads the earlier events of a partial match."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the event that it reads."""
        ...

    @property
    def reads(self) -> tuple[MatchRead, ...]:
        """Its reads of earlier events."""
        ...

    def holds(self, candidate: Mapping[str, Any], matched: Sequence[Any]) -> bool:
        """Return whether it is true. ``candidate``: the event's columns. ``matched``: a value for each of ``reads``."""
        ...

    def holds_each(self, values: MatchValues, at: Sequence[int] | None = None) -> Sequence[bool]:
        """Return ``holds`` for the events ``at``, by default for all. May raise where ``holds`` does not."""
        ...


def _negate(value: Any) -> Any:
    return None if value is None else not value


def _both(left: Any, right: Any) -> Any:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _either(left: Any, right: Any) -> Any:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _null_in_null_out(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        if None in values:
            return None
        try:
            return function(*values)
        except ZeroDivisionError:
            return None

    return apply


def _null_by_zero(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the division with null for a zero divisor; decimals would raise another error than other numbers."""
    return _null_in_null_out(lambda value, divisor: None if divisor == 0 else function(value, divisor))


#: By name: the operations on two values that are not null.
ON_VALUES: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

#: By name: the operations on two truth values that are not null.
_ON_BOOLEANS: Mapping[str, Callable[[Any, Any], Any]] = {"&": operator.and_, "|": operator.or_}
#: The operations that return a truth value or null.
BOOLEAN = frozenset(["<", "<=", ">", ">=", "==", "!=", "&", "|", "~", "is_null"])

#: By name: the operations, on values that may be null.
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: _null_in_null_out(function) for name, function in ON_VALUES.items()},
    "/": _null_by_zero(operator.truediv),
    "%": _null_by_zero(operator.mod),
    "negative": _null_in_null_out(operator.neg),
    "&": _both,
    "|": _either,
    "~": _negate,
    "is_null": lambda value: value is None,
    "fill_null": lambda value, other: other if value is None else value,
}


class MatchExpression:
    """An expression over an event and the events before it in a partial match; as a condition, an iterative one.

    Made by ``candidate`` and ``matched``, and combined by ``+ - * / %``, comparisons, ``& | ~``, ``is_null`` and
    ``fill_null``.
    """

    __slots__ = ("_columns", "_evaluate", "_reads", "_text")
    __hash__ = object.__hash__

    def __init__(
        self,
        text: str,
        columns: frozenset[str],
        reads: tuple[MatchRead, ...],
        evaluate: Callable[[Mapping[str, Any], Mapping[MatchRead, Any]], Any],
    ) -> None:
        self._text = text
        self._columns = columns
        self._reads = reads
        self._evaluate = evaluate

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the event that the expression reads."""
        return self._columns

    @property
    def reads(self) -> tuple[MatchRead, ...]:
        """The expression's reads of earlier events."""
        return self._reads

    def holds(self, candidate: Mapping[str, Any], matched: Sequence[Any]) -> bool:
        """Return whether the expression is true for this event (see ``IterativeCondition``)."""
        return self.value(candidate, matched) is True

    def holds_each(self, values: MatchValues, at: Sequence[int] | None = None) -> Sequence[bool]:
        """Return whether the expression is true for each of several events (see ``IterativeCondition``)."""
        own = values if at is None else values.take(at)
        found = _evaluate_each(self.tree, own.candidates, dict(zip(self._reads, own.matched, strict=True)))
        return [value is True for value, _ in zip(found, own.matched[0], strict=False)]

    @property
    def is_read(self) -> bool:
        """Whether the expression is an aggregate of earlier events and nothing more."""
        return isinstance(self.tree, MatchRead)

    def value(self, candidate: Mapping[str, Any], matched: Sequence[Any]) -> Any:
        """Return the value for this event. ``matched``: a value for each of ``reads``."""
        return self._evaluate(candidate, dict(zip(self._reads, matched, strict=True)))

    def __repr__(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        raise ConfigError(f"pattern: {self} is no truth value; join conditions with & and |, and negate with ~")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.tree,)

    @property
    def tree(self) -> Any:
        r"""The tree: a ``MatchRead``, ("column", name), ("value", x) or (operation, \*trees)."""
        return getattr(self._evaluate, "tree")  # noqa: B009 - set on the function that ``_make`` returns

    def __add__(self, other: object) -> MatchExpression:
        return _combine("+", self, other)

    def __radd__(self, other: object) -> MatchExpression:
        return _combine("+", other, self)

    def __sub__(self, other: object) -> MatchExpression:
        return _combine("-", self, other)

    def __rsub__(self, other: object) -> MatchExpression:
        return _combine("-", other, self)

    def __mul__(self, other: object) -> MatchExpression:
        return _combine("*", self, other)

    def __rmul__(self, other: object) -> MatchExpression:
        return _combine("*", other, self)

    def __truediv__(self, other: object) -> MatchExpression:
        return _combine("/", self, other)

    def __rtruediv__(self, other: object) -> MatchExpression:
        return _combine("/", other, self)

    def __mod__(self, other: object) -> MatchExpression:
        return _combine("%", self, other)

    def __neg__(self) -> MatchExpression:
        return _combine("negative", self)

    def __lt__(self, other: object) -> MatchExpression:
        return _combine("<", self, other)

    def __le__(self, other: object) -> MatchExpression:
        return _combine("<=", self, other)

    def __gt__(self, other: object) -> MatchExpression:
        return _combine(">", self, other)

    def __ge__(self, other: object) -> MatchExpression:
        return _combine(">=", self, other)

    def __eq__(self, other: object) -> MatchExpression:  # type: ignore[override]  # an expression, as in Polars
        return _combine("==", self, other)

    def __ne__(self, other: object) -> MatchExpression:  # type: ignore[override]  # an expression, as in Polars
        return _combine("!=", self, other)

    def __and__(self, other: object) -> MatchExpression:
        return _combine("&", self, other)

    def __or__(self, other: object) -> MatchExpression:
        return _combine("|", self, other)

    def __invert__(self) -> MatchExpression:
        return _combine("~", self)

    def is_null(self) -> MatchExpression:
        """Return whether the value is null."""
        return _combine("is_null", self)

    def fill_null(self, value: object) -> MatchExpression:
        """Return the value, or another one where it is null."""
        return _combine("fill_null", self, value)


@dataclass(frozen=True, slots=True)
class MatchedStep:
    """The events that a step has taken; its methods return an aggregate of them."""

    step: str

    def first(self, column: str) -> MatchExpression:
        """Return the first value that is not null."""
        return self._read(MatchFunction.FIRST, column)

    def last(self, column: str) -> MatchExpression:
        """Return the last value that is not null."""
        return self._read(MatchFunction.LAST, column)

    def sum(self, column: str) -> MatchExpression:
        """Return the sum."""
        return self._read(MatchFunction.SUM, column)

    def min(self, column: str) -> MatchExpression:
        """Return the least value."""
        return self._read(MatchFunction.MIN, column)

    def max(self, column: str) -> MatchExpression:
        """Return the greatest value."""
        return self._read(MatchFunction.MAX, column)

    def mean(self, column: str) -> MatchExpression:
        """Return the mean."""
        return self._read(MatchFunction.MEAN, column)

    def count(self, column: str = "") -> MatchExpression:
        """Return the number of events, or of values of a column that are not null."""
        return self._read(MatchFunction.COUNT, column)

    def count_distinct(self, column: str) -> MatchExpression:
        """Return the number of different values of a column that are not null."""
        return self._read(MatchFunction.COUNT_DISTINCT, column)

    def _read(self, function: MatchFunction, column: str) -> MatchExpression:
        return _rebuild(MatchRead(self.step, function, column))


def candidate(column: str) -> MatchExpression:
    """Return a column of the event that the condition is about."""
    return _rebuild(("column", column))


def matched(step: str) -> MatchedStep:
    """Return the events that a step of the partial match has taken before the event that the condition is about."""
    return MatchedStep(step)


def _combine(operation: str, *operands: object) -> MatchExpression:
    return _rebuild((operation, *(o.tree if isinstance(o, MatchExpression) else ("value", o) for o in operands)))


def _rebuild(tree: Any) -> MatchExpression:
    """Return the expression of a tree: a ``MatchRead``, ("column", name), ("value", x) or (operation, *trees)."""
    text, columns, reads, evaluate = _make(tree)

    def with_tree(row: Mapping[str, Any], values: Mapping[MatchRead, Any]) -> Any:
        return evaluate(row, values)

    with_tree.tree = tree  # type: ignore[attr-defined]  # pickled instead of the function
    return MatchExpression(text, columns, tuple(dict.fromkeys(reads)), with_tree)


def _evaluate_each(
    tree: Any, candidates: Mapping[str, Sequence[Any]], matched: Mapping[MatchRead, Sequence[Any]]
) -> Iterable[Any]:
    """Return the values of a tree for several events; that of a constant without end."""
    if isinstance(tree, MatchRead):
        return matched[tree]
    operation, *operands = tree
    if operation == "column":
        return candidates[operands[0]]
    if operation == "value":
        return repeat(operands[0])
    parts = [_evaluate_each(operand, candidates, matched) for operand in operands]
    constants = [next(part) for part in parts if isinstance(part, repeat)]
    if len(constants) == len(parts):
        return repeat(_OPERATIONS[operation](*constants))
    function = ON_VALUES.get(operation) or _ON_BOOLEANS.get(operation)
    has_null = any(constant is None for constant in constants) or any(
        None in part for part in parts if not isinstance(part, repeat)
    )
    if function is None or (operation in _ON_BOOLEANS and (has_null or not all(map(_is_boolean, operands)))):
        return [*map(_OPERATIONS[operation], *parts)]
    if has_null:  # far quicker than a call of ``apply`` for each
        return [None if a is None or b is None else function(a, b) for a, b in zip(*parts, strict=False)]
    return [*map(function, *parts)]


def _is_boolean(tree: Any) -> bool:
    """Return whether a tree that is not null is true or false."""
    return not isinstance(tree, MatchRead) and tree[0] in BOOLEAN


def _make(tree: Any) -> tuple[str, frozenset[str], tuple[MatchRead, ...], Callable[[Any, Any], Any]]:
    if isinstance(tree, MatchRead):
        return str(tree), frozenset(), (tree,), lambda _, values: values[tree]
    operation, *operands = tree
    if operation == "column":
        (name,) = operands
        return f"candidate({name!r})", frozenset([name]), (), lambda row, _: row[name]
    if operation == "value":
        (value,) = operands
        return repr(value), frozenset(), (), lambda _row, _values: value
    function = _OPERATIONS[operation]
    texts, columns, reads, parts = zip(*map(_make, operands), strict=True)
    text = f"({texts[0]} {operation} {texts[1]})" if len(texts) == 2 else f"{operation}({texts[0]})"

    def evaluate(row: Any, values: Any) -> Any:
        return function(*[part(row, values) for part in parts])

    return text, frozenset().union(*columns), tuple(read for some in reads for read in some), evaluate
