"""Renders a tree as canonical text, which parses back to an equal tree."""

from __future__ import annotations

from decimal import Decimal

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
    IntervalLiteral,
    IsNull,
    LambdaParameter,
    Like,
    Literal,
    Lookup,
    MemberOf,
    Negate,
    Not,
    Or,
    SecretRef,
    When,
)
from rulecore.language.parsing.lexemes import KEYWORDS
from rulecore.language.parsing.literals import interval_text, quote, timestamp_text
from rulecore.language.scope import split_step_column
from streamcore.schema import TIMESTAMP, Kind
from streamcore.schema.types import quote_name

# Operator precedence: an operand with a lower precedence than its position needs gets brackets.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _UNARY, _ATOM = range(8)
_PRECEDENCE = {"||": _SUM, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}


def render(expr: Expr) -> str:
    """Return the text. It parses to an expression equal to ``expr``, if ``expr`` is from ``parse`` or ``normalize``."""
    return _render(expr)[0]


def _operand(expr: Expr, precedence: int) -> str:
    """Return the text of an operand, in brackets if its precedence is lower than ``precedence``."""
    text, own = _render(expr)
    return text if own >= precedence else f"({text})"


def _render(expr: Expr) -> tuple[str, int]:  # noqa: PLR0912 - one line per node
    """Return the text and its precedence."""
    match expr:
        case ColumnRef():
            return _name(expr.name), _ATOM
        case Literal():
            return _literal(expr)
        case IntervalLiteral():
            return interval_text(expr.ms), _ATOM
        case Negate():
            return f"-{_operand(expr.operand, _ATOM)}", _UNARY
        case Arithmetic():
            own = _PRECEDENCE[expr.op]
            return f"{_operand(expr.left, own)} {expr.op} {_operand(expr.right, own + 1)}", own
        case Compare():
            return f"{_operand(expr.left, _SUM)} {expr.op} {_operand(expr.right, _SUM)}", _PREDICATE
        case And() | Or():
            own = _AND if isinstance(expr, And) else _OR
            return f" {expr.node} ".join(_operand(term, own + 1) for term in expr.terms), own
        case Not():
            return _negation(expr.operand)
        case IsNull() | In() | InList() | Between() | Like():
            return _predicate(expr, "")
        case Case():
            branches = "".join(f" when {render(w.condition)} then {render(w.result)}" for w in expr.whens)
            otherwise = "" if expr.otherwise is None else f" else {render(expr.otherwise)}"
            return f"case{branches}{otherwise} end", _ATOM
        case SecretRef():
            return f"secret({quote(expr.name)})", _ATOM
        case Call() if expr.function in ("cast", "try_cast"):
            value, kind = expr.arguments
            name = kind.value if isinstance(kind, Literal) else render(kind)
            return f"{expr.function}({render(value)} as {name})", _ATOM
        case Call() if _is_index(expr):
            return f"{_operand(expr.arguments[0], _ATOM)}[{render(expr.arguments[1])}]", _ATOM
        case Call():
            return f"{expr.function}({', '.join(render(a) for a in expr.arguments)})", _ATOM
        case MemberOf():
            return f"{_operand(expr.operand, _ATOM)}.{quote_name(expr.name)}", _ATOM
        case LambdaParameter():
            return _name(expr.name), _ATOM
        case HigherOrderCall():
            function = f"{_name(expr.parameter)} -> {render(expr.body)}"
            return f"{expr.function}({render(expr.array)}, {function})", _ATOM
        case Lookup():
            return f"lookup({quote(expr.list)}, {render(expr.key)})", _ATOM
        case AggregateCall():
            if (condition := _counted(expr)) is not None:
                return f"count_if({render(condition)})", _ATOM
            star = ["*"] if expr.function == "count" else []
            arguments = star if expr.argument is None else [render(expr.argument)]
            half_life = [] if expr.half_life_ms is None else [interval_text(expr.half_life_ms)]
            return f"{expr.function}({', '.join([*arguments, *half_life])})", _ATOM
    raise ValueError(f"{expr!r} has no text")


def _counted(expr: AggregateCall) -> Expr | None:
    """Return ``x`` of ``count(case when x then 1 end)``, which ``count_if(x)`` becomes; None of another aggregate."""
    match expr.argument:
        case Case(whens=(When(condition=condition, result=Literal(value=1, type=kind)),), otherwise=None):
            return condition if expr.function == "count" and kind.kind is Kind.LONG else None
    return None


def _is_index(expr: Call) -> bool:
    """Return whether it is ``array[number from 0]`` or ``map[key]``."""
    is_map = expr.arguments[0].type.kind is Kind.MAP
    return expr.function == "get" or (expr.function == "element_at" and is_map)


def _name(name: str) -> str:
    """Return the text of a name, in backquotes if it would be read as something else."""
    if of_step := split_step_column(name):
        function, step, column = of_step
        text = f"{step}.{quote_name(column)}"
        return f"{function}({text})" if function else text
    return f"`{name}`" if name.lower() in KEYWORDS else quote_name(name)


def _negation(operand: Expr) -> tuple[str, int]:
    if isinstance(operand, IsNull | In | InList | Between | Like):
        return _predicate(operand, "not ")
    return f"not {_operand(operand, _PREDICATE)}", _NOT


def _predicate(expr: IsNull | In | InList | Between | Like, negation: str) -> tuple[str, int]:
    operand = _operand(expr.operand, _SUM)
    match expr:
        case IsNull():
            return f"{operand} is {negation}null", _PREDICATE
        case In():
            return f"{operand} {negation}in ({', '.join(render(v) for v in expr.values)})", _PREDICATE
        case InList():
            return f"{operand} {negation}in list({quote(expr.list)})", _PREDICATE
        case Between():
            return f"{operand} {negation}between {_operand(expr.low, _SUM)} and {_operand(expr.high, _SUM)}", _PREDICATE
        case Like():
            escape = "" if expr.escape == "\\" else f" escape {quote(expr.escape)}"
            return f"{operand} {negation}like {quote(expr.pattern)}{escape}", _PREDICATE


def _literal(expr: Literal) -> tuple[str, int]:
    value = expr.value
    match value:
        case None:
            return "null", _ATOM
        case bool():
            return str(value).lower(), _ATOM
        case str():
            return quote(value), _ATOM
        case float():
            text = repr(value) if "e" in repr(value) else f"{value!r}e0"
        case Decimal():
            text = format(value, "f") + ("" if expr.type.scale else ".")
        case int() if expr.type == TIMESTAMP:
            return f"timestamp '{timestamp_text(value)}'", _ATOM
        case _:
            text = str(value)
    return text, _UNARY if text.startswith("-") else _ATOM
