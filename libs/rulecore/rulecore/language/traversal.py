"""Functions that search expression trees and rewrite them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from rulecore.language.ast import (
    AggregateCall,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    HigherOrderCall,
    In,
    InList,
    IsNull,
    LambdaParameter,
    Like,
    Lookup,
    MemberOf,
    Negate,
    Not,
    Or,
    When,
)
from streamcore.schema import STRING

Rewrite = Callable[[Expr], Expr]


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, parents first, in the order of the text."""
    yield expr
    for child in expr.children:
        yield from walk(child)


def columns(expr: Expr) -> frozenset[str]:
    """Return the names of all columns, those inside aggregates too."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, ColumnRef))


def is_constant(expr: Expr) -> bool:
    """Return whether the expression has neither a column nor a parameter of a lambda around it."""
    return not free_leaves(expr)


def free_leaves(expr: Expr, parameter: str | None = None) -> tuple[Expr, ...]:
    """Return the distinct columns, and the parameters of lambdas around the expression, in the order of the text.

    ``parameter``: one that is left out.
    """
    if isinstance(expr, ColumnRef | LambdaParameter):
        return () if isinstance(expr, LambdaParameter) and expr.name == parameter else (expr,)
    found = [leaf for child in expr.children for leaf in free_leaves(child, parameter)]
    if isinstance(expr, HigherOrderCall):
        found = [leaf for leaf in found if not (isinstance(leaf, LambdaParameter) and leaf.name == expr.parameter)]
    return tuple(dict.fromkeys(found))


def find_outside(body: Expr, parameter: str) -> tuple[Expr, ...]:
    """Return the largest parts of a lambda's body that read columns or parameters around it, and not its own one."""
    return tuple(dict.fromkeys(_outside(body, frozenset([parameter]))))


def _outside(expr: Expr, inside: frozenset[str]) -> Iterator[Expr]:
    leaves = free_leaves(expr)
    if leaves and not any(isinstance(leaf, LambdaParameter) and leaf.name in inside for leaf in leaves):
        yield expr
        return
    inner = inside | {expr.parameter} if isinstance(expr, HigherOrderCall) else inside
    for child in expr.children:
        yield from _outside(child, inner)


def repeats_outside(expr: HigherOrderCall) -> bool:
    """Return whether a ``transform`` may repeat texts, or arrays and the like, from outside of it in its result."""
    copied = expr.body.type.is_nested or expr.body.type == STRING
    return expr.function == "transform" and copied and bool(find_outside(expr.body, expr.parameter))


def normal_parameter(body: Expr) -> str:
    """Return the name of a lambda's parameter in the normal form: ``__`` and the number of levels of lambdas inside.

    No other parameter begins with ``__``, so it hides no parameter of a lambda around it.
    """
    return f"__{_height(body)}"


def _height(expr: Expr) -> int:
    inner = max((_height(child) for child in expr.children), default=0)
    return inner + 1 if isinstance(expr, HigherOrderCall) else inner


def count_products(expr: Expr, levels: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return of how many arrays the work is the product, at most.

    ``levels``: the same for one evaluation of each lambda around it, by parameter. What reads no parameter of a lambda
    is computed outside of it. The elements of a parameter's own arrays are no further factor.
    """
    inside = [levels[leaf.name] for leaf in free_leaves(expr) if isinstance(leaf, LambdaParameter)]
    level = max(inside, default=0)
    if isinstance(expr, HigherOrderCall):
        own = level + (not _is_part(expr.array))
        body = count_products(expr.body, {**levels, expr.parameter: own})
        return max(own, body, count_products(expr.array, levels))
    if isinstance(expr, Call) and inside:
        level += any(child.type.is_nested and not _is_part(child) for child in expr.children)
    return max([level, *(count_products(child, levels) for child in expr.children)])


def _is_part(expr: Expr) -> bool:
    """Return whether it is the parameter of a lambda, or a member of it."""
    return isinstance(expr, LambdaParameter) or (isinstance(expr, MemberOf) and _is_part(expr.operand))


def replace_parts(expr: Expr, places: Mapping[Expr, Expr]) -> Expr:
    """Replace parts of an expression by other nodes. No lambda inside has a parameter that a part reads."""
    if expr in places:
        return places[expr]
    return rebuild(expr, lambda child: replace_parts(child, places))


def aggregates(expr: Expr) -> tuple[AggregateCall, ...]:
    """Return the distinct aggregates, in the order of the text."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, AggregateCall)))


def lists(expr: Expr) -> frozenset[str]:
    """Return the names of all lists that the expression uses."""
    return frozenset(node.list for node in walk(expr) if isinstance(node, InList | Lookup))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Return the terms of a top-level ``and``; the expression itself otherwise."""
    return expr.terms if isinstance(expr, And) else (expr,)


def replace_aggregates(expr: Expr, names: Mapping[AggregateCall, str]) -> Expr:
    """Replace each aggregate with the column of its name and type; ``KeyError`` for an aggregate without a name."""
    if isinstance(expr, AggregateCall):
        return ColumnRef(name=names[expr], type=expr.type)
    return rebuild(expr, lambda child: replace_aggregates(child, names))


def rebuild(expr: Expr, change: Rewrite) -> Expr:  # noqa: PLR0912 - one line per node
    """Return the node with ``change`` applied to each direct child; its type is computed again."""
    match expr:
        case Negate():
            return Negate.of(change(expr.operand))
        case Arithmetic():
            return Arithmetic.of(expr.op, change(expr.left), change(expr.right))
        case Compare():
            return Compare.of(expr.op, change(expr.left), change(expr.right))
        case And() | Or():
            changed = [change(term) for term in expr.terms]
            flat = (t for term in changed for t in (term.children if isinstance(term, type(expr)) else (term,)))
            return type(expr)(terms=tuple(flat))
        case Not():
            return Not(operand=change(expr.operand))
        case IsNull():
            return IsNull(operand=change(expr.operand))
        case In():
            return In(operand=change(expr.operand), values=expr.values)
        case InList():
            return InList.of_list(change(expr.operand), expr.list, expr.of)
        case Lookup():
            return Lookup.of_list(expr.list, change(expr.key), expr.of, expr.type)
        case Between():
            return Between(operand=change(expr.operand), low=change(expr.low), high=change(expr.high))
        case Like():
            return Like(operand=change(expr.operand), pattern=expr.pattern, escape=expr.escape)
        case Case():
            whens = tuple(When(condition=change(w.condition), result=change(w.result)) for w in expr.whens)
            return Case.of(whens, None if expr.otherwise is None else change(expr.otherwise))
        case Call():
            return Call.of(expr.function, tuple(change(a) for a in expr.arguments))
        case MemberOf():
            return MemberOf.of(change(expr.operand), expr.name)
        case HigherOrderCall():
            return HigherOrderCall.of(expr.function, change(expr.array), expr.parameter, change(expr.body))
        case AggregateCall():
            argument = None if expr.argument is None else change(expr.argument)
            return AggregateCall.of(expr.function, argument, expr.half_life_ms)
        case _:
            return expr
