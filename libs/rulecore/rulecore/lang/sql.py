"""The only module that knows sqlglot: it cuts text into tokens, and it arranges pieces by precedence.

sqlglot never sees what a rule's author wrote as names, functions or constants. Each operand goes in as a numbered
column and each function as a numbered name, so none of its hundreds of special cases can apply, and each node that
comes out knows its place. What comes out is turned into ``Syntax`` at once; a node that is not on the list, and any
exception, is a ``NotArranged`` with the index of the item to blame.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token as SqlToken
from sqlglot.tokenizer_core import TokenType

#: One item of the sequence to arrange: ``"operand"``, ``"function"``, or an operator, keyword, bracket or comma.
OPERAND, FUNCTION = "operand", "function"

_DIALECT = Spark()
_TYPES = {
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    ",": TokenType.COMMA,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "=": TokenType.EQ,
    "<>": TokenType.NEQ,
    "<": TokenType.LT,
    "<=": TokenType.LTE,
    ">": TokenType.GT,
    ">=": TokenType.GTE,
    "<=>": TokenType.NULLSAFE_EQ,
    "||": TokenType.DPIPE,
    "and": TokenType.AND,
    "or": TokenType.OR,
    "not": TokenType.NOT,
    "in": TokenType.IN,
    "between": TokenType.BETWEEN,
    "like": TokenType.LIKE,
    "rlike": TokenType.RLIKE,
    "is": TokenType.IS,
    "null": TokenType.NULL,
    "case": TokenType.CASE,
    "when": TokenType.WHEN,
    "then": TokenType.THEN,
    "else": TokenType.ELSE,
    "end": TokenType.END,
}
_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.DPipe: "||",
    exp.RegexpLike: "rlike",
}
COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>"})
_NEGATABLE = frozenset({"is", "in", "in_list", "between", "like", "rlike"})
PREDICATES = COMPARISONS | _NEGATABLE


class TokenKind(enum.Enum):
    """What the tokenizer knows of a token."""

    STRING = "string"
    RAW = "raw"
    NUMBER = "number"
    QUOTED = "quoted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Token:
    """``start`` and ``end`` count characters, ``end`` excluded."""

    kind: TokenKind
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Syntax:
    """A node: ``operand``, ``function``, ``not``, ``negate``, or an operator or keyword with its parts.

    ``first`` and ``last`` are the indexes of the items it covers, ``last`` included, its own brackets too.
    ``negated`` is ``not in``, ``is not null`` and so on.
    """

    kind: str
    parts: tuple[Syntax, ...]
    first: int
    last: int
    negated: bool = False
    bracketed: bool = False


class NotArranged(Exception):
    """No arrangement of the items; ``index`` is the item to blame (their number when the end came too early)."""

    def __init__(self, index: int, message: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.message = message


_KINDS = {
    TokenType.STRING: TokenKind.STRING,
    TokenType.RAW_STRING: TokenKind.RAW,
    TokenType.NUMBER: TokenKind.NUMBER,
    TokenType.IDENTIFIER: TokenKind.QUOTED,
}


def tokenise(text: str) -> list[Token]:
    """Tokens of Spark SQL, comments left out. ``ValueError`` when the text cannot be cut."""
    try:
        return [
            Token(_KINDS.get(t.token_type, TokenKind.OTHER), t.text, t.start, t.end + 1)
            for t in _DIALECT.tokenize(text)
        ]
    except Exception as error:  # the tokenizer is not ours, and a rule's text must not find its gaps
        raise ValueError(str(error)) from error


def arrange(items: Sequence[str], partners: Sequence[int], depth: int) -> Syntax:
    """The tree of a sequence of items. ``partners[i]`` is the index of the bracket that closes or opens item i."""
    try:
        trees = _parser().parse_into(exp.Condition, [_token(i, item) for i, item in enumerate(items)], "")
    except ParseError as error:
        col = (error.errors or [{}])[0].get("col")
        raise NotArranged(col - 1 if isinstance(col, int) else len(items)) from error
    except Exception as error:  # RecursionError included
        raise NotArranged(0, "the expression cannot be parsed") from error
    if len(trees) != 1 or trees[0] is None:
        raise NotArranged(0)
    return _Arrangement(items, partners, depth).node(trees[0], 0)


def _parser() -> SparkParser:
    return SparkParser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)


def _token(index: int, item: str) -> SqlToken:
    """``col`` carries the index plus one, so that errors point at the item; 0 would be taken for "no place"."""
    kind = {OPERAND: TokenType.IDENTIFIER, FUNCTION: TokenType.VAR}.get(item) or _TYPES[item]
    text = f"{item[0]}{index}" if item in (OPERAND, FUNCTION) else item
    return SqlToken(kind, text, line=1, col=index + 1, start=0, end=0)


class _Arrangement:
    """Turns sqlglot's nodes into ours, by an allow-list."""

    def __init__(self, items: Sequence[str], partners: Sequence[int], depth: int) -> None:
        self.items, self.partners, self.depth = items, partners, depth

    def node(self, tree: object, depth: int) -> Syntax:  # noqa: PLR0912 - one line per kind of node
        """The node for ``tree``; None, for a missing operand, is refused like anything unknown."""
        if depth > self.depth:
            raise NotArranged(_some_item(tree), f"nested more than {self.depth} deep")
        match tree:
            case exp.Paren():
                return self._paren(tree, depth)
            case exp.Column():
                index = _index(tree.name)
                return Syntax(OPERAND, (), index, index)
            case exp.Anonymous():
                return self._function(tree, depth)
            case exp.And() | exp.Or():
                return self._terms(tree, depth)
            case exp.Not() | exp.Neg():
                return self._prefix(tree, depth)
            case exp.Is() if isinstance(tree.expression, exp.Null):
                operand = self.node(tree.this, depth + 1)
                negated = bool(tree.args.get("negate"))
                return Syntax("is", (operand,), operand.first, operand.last + 2 + negated, negated)
            case exp.In() if tree.expressions and not (tree.args.get("query") or tree.args.get("unnest")):
                return self._in(tree, depth)
            case exp.In() if isinstance(tree.args.get("field"), exp.Anonymous):
                return self._joined("in_list", depth, tree.this, tree.args["field"])
            case exp.Between() if tree.args.get("symmetric") is None:
                return self._joined("between", depth, tree.this, tree.args.get("low"), tree.args.get("high"))
            case exp.Like():
                return self._joined("like", depth, tree.this, tree.expression, negated=bool(tree.args.get("negate")))
            case exp.Case() if tree.this is None:
                return self._case(tree, depth)
            case exp.Binary() if type(tree) in _BINARY:
                return self._joined(_BINARY[type(tree)], depth, tree.this, tree.expression)
            case exp.RegexpLike():
                return self._joined("rlike", depth, tree.this, tree.expression)
        raise NotArranged(_some_item(tree), _REFUSED.get(type(tree).__name__, ""))

    def _joined(self, kind: str, depth: int, *trees: object, negated: bool = False) -> Syntax:
        parts = tuple(self.node(tree, depth + 1) for tree in trees)
        return Syntax(kind, parts, parts[0].first, parts[-1].last, negated)

    def _paren(self, tree: exp.Paren, depth: int) -> Syntax:
        """sqlglot adds brackets of its own where precedence may surprise: those are not ``bracketed``."""
        inner = self.node(tree.this, depth)
        first, last = inner.first - 1, inner.last + 1
        if first < 0 or self.partners[first] != last:
            return inner
        return Syntax(inner.kind, inner.parts, first, last, inner.negated, bracketed=True)

    def _function(self, tree: exp.Anonymous, depth: int) -> Syntax:
        index = _index(str(tree.this))
        parts = tuple(self.node(argument, depth + 1) for argument in tree.expressions)
        return Syntax(FUNCTION, parts, index, self.partners[index + 1])

    def _terms(self, tree: exp.Connector, depth: int) -> Syntax:
        """``a and b and c``, which comes nested to the left, as one node."""
        kind, trees, left = type(tree), [], tree
        while isinstance(left, kind):
            trees.append(left.expression)
            left = left.this
        parts = tuple(self.node(term, depth + 1) for term in [left, *reversed(trees)])
        return Syntax("and" if kind is exp.And else "or", parts, parts[0].first, parts[-1].last)

    def _prefix(self, tree: exp.Unary, depth: int) -> Syntax:
        operand = self.node(tree.this, depth + 1)
        is_not = isinstance(tree, exp.Not)
        if is_not and self._not_inside(operand):
            last = operand.last + (operand.kind == "is")
            return Syntax(operand.kind, operand.parts, operand.first, last, negated=True)
        return Syntax("not" if is_not else "negate", (operand,), operand.first - 1, operand.last)

    def _not_inside(self, operand: Syntax) -> bool:
        """``x not in ...`` and not ``not x in ...``: the word comes after the first part (and after ``is``)."""
        if operand.bracketed or operand.negated or operand.kind not in _NEGATABLE:
            return False
        at = operand.parts[0].last + 1 + (operand.kind == "is")
        return at < len(self.items) and self.items[at] == "not"

    def _in(self, tree: exp.In, depth: int) -> Syntax:
        parts = tuple(self.node(part, depth + 1) for part in [tree.this, *tree.expressions])
        return Syntax("in", parts, parts[0].first, parts[-1].last + 1)

    def _case(self, tree: exp.Case, depth: int) -> Syntax:
        """Parts: condition, result, condition, result, ..., and the default when their number is odd."""
        trees = [part for branch in tree.args["ifs"] for part in (branch.this, branch.args.get("true"))]
        default = tree.args.get("default")
        parts = tuple(self.node(part, depth + 1) for part in [*trees, *([default] if default else [])])
        return Syntax("case", parts, parts[0].first - 2, parts[-1].last + 1)


def _index(name: str) -> int:
    """The index in a numbered name. A keyword that sqlglot took for a name has none."""
    if not name[1:].isdecimal():
        raise NotArranged(0, f"{name} is not accepted as a name")
    return int(name[1:])


def _some_item(tree: object) -> int:
    """The first item of a tree that is refused; sqlglot walks without recursion."""
    if not isinstance(tree, exp.Expr):
        return 0
    names = [c.name for c in tree.find_all(exp.Column)] + [str(f.this) for f in tree.find_all(exp.Anonymous)]
    return min((int(name[1:]) for name in names if name[1:].isdecimal()), default=0)


_REFUSED = {
    "Case": "case takes conditions: case when x = 1 then ...",
    "Tuple": "a list is accepted only after in",
    "In": "in takes a list in brackets, or list('name')",
    "Is": "is takes null or not null",
}
