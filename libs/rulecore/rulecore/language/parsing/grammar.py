"""Parses a sequence of operands, functions, operators and keywords to a tree, by recursive descent.

::

    condition      conjunction ("or" conjunction)*
    conjunction    negation ("and" negation)*
    negation       "not" negation  |  predicate
    predicate      concatenation ( comparison concatenation  |  "is" ["not"] "null"
                                 | ["not"] ("like"  |  "rlike") concatenation
                                 | ["not"] "between" concatenation "and" concatenation
                                 | ["not"] "in" ("(" list ")"  |  call) )*
    concatenation  sum ("||" sum)*
    sum            product (("+"  |  "-") product)*
    product        unary (("*"  |  "/"  |  "%") unary)*
    unary          ("+"  |  "-") unary  |  primary
    primary        ( operand  |  call  |  "(" condition ")"  |  case ) ( member  |  "[" condition "]" )*
    call           function "(" list ")"
    list           [part ("," part)* [","]]
    part           condition  |  operand "->" condition
    case           "case" ("when" condition "then" condition)+ ["else" condition] "end"

An item that fits no rule raises ``GrammarError`` with its index. ``brackets`` has matched the brackets and limited
their depth before, so the recursion is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

#: An item of the sequence: ``"operand"``, ``"function"``, ``"member"``, or an operator, keyword, bracket or comma.
OPERAND, FUNCTION, MEMBER = "operand", "function", "member"
INDEX, LAMBDA = "index", "lambda"

COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>"})
_NEGATABLE = frozenset({"in", "between", "like", "rlike"})
PREDICATES = COMPARISONS | _NEGATABLE | {"is", "in_list"}


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A node of kind ``operand``, ``function``, ``not``, ``negate``, or that of its operator or keyword.

    Others are ``member`` (its last item is the name), ``index`` and ``lambda`` (its first item is the parameter).
    ``parts``: its operands; of ``case``: condition, result, condition, result, ..., and the default if their number is
    odd. ``first``, ``last``: the indexes of its first and last item, brackets around it included. ``negated``: of
    ``not in``, ``is not null`` and the like. ``bracketed``: it is in brackets.
    """

    kind: str
    parts: tuple[SyntaxNode, ...]
    first: int
    last: int
    negated: bool = False
    bracketed: bool = False


class GrammarError(Exception):
    """The items fit no rule. ``index``: the faulty item; the number of items if one is missing at the end."""

    def __init__(self, index: int, message: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.message = message


def parse_grammar(items: Sequence[str], depth: int) -> SyntaxNode:
    """Return the tree of the items; raise ``GrammarError`` for a fault, and for more than ``depth`` levels."""
    parser = _Parser(items)
    tree = parser.condition()
    if parser.at < len(items):
        raise GrammarError(parser.at)
    _check_depth(tree, depth)
    return tree


def _check_depth(tree: SyntaxNode, limit: int, depth: int = 0) -> None:
    if depth > limit:
        raise GrammarError(tree.first, f"nested more than {limit} deep")
    for part in tree.parts:
        _check_depth(part, limit, depth + 1)


class _Parser:
    """A recursive-descent parser with a method for each rule. ``at``: the index of the next item."""

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items
        self.at = 0

    def condition(self) -> SyntaxNode:
        return self._terms("or", self._conjunction)

    def _conjunction(self) -> SyntaxNode:
        return self._terms("and", self._negation)

    def _terms(self, kind: str, term: Callable[[], SyntaxNode]) -> SyntaxNode:
        """Parse ``a and b and c`` as one node."""
        parts = [term()]
        while self._take(kind):
            parts.append(term())
        return parts[0] if len(parts) == 1 else _node_over(kind, *parts)

    def _negation(self) -> SyntaxNode:
        first = self.at
        if not self._take("not"):
            return self._predicate()
        operand = self._negation()
        return SyntaxNode("not", (operand,), first, operand.last)

    def _predicate(self) -> SyntaxNode:
        """Parse several predicates in a row as ``((a = b) = c)``; the type checker rejects them without brackets."""
        left = self._concatenation()
        while True:
            if (kind := self._next()) in COMPARISONS:
                self.at += 1
                left = _node_over(kind, left, self._concatenation())
            elif kind == "is":
                left = self._is(left)
            elif kind in _NEGATABLE or (kind == "not" and self._next(1) in _NEGATABLE):
                negated = self._take("not")
                left = replace(self._negatable(left), negated=negated)
            else:
                return left

    def _is(self, left: SyntaxNode) -> SyntaxNode:
        self.at += 1
        negated = self._take("not")
        if not self._take("null"):
            raise GrammarError(left.first, "is takes null or not null") if self._next() else GrammarError(self.at)
        return SyntaxNode("is", (left,), left.first, self.at - 1, negated)

    def _negatable(self, left: SyntaxNode) -> SyntaxNode:
        kind = self._next()
        self.at += 1
        if kind == "in":
            return self._in(left)
        if kind != "between":
            return _node_over(kind, left, self._concatenation())
        low = self._concatenation()
        self._expect("and")
        return _node_over("between", left, low, self._concatenation())

    def _in(self, left: SyntaxNode) -> SyntaxNode:
        if self._next() == FUNCTION:
            return _node_over("in_list", left, self._call())
        if not self._take("(") or self._next() == ")":
            raise GrammarError(left.first, "in takes a list in brackets, or list('name')")
        members = self._list()
        return SyntaxNode("in", (left, *members), left.first, self.at - 1)

    def _concatenation(self) -> SyntaxNode:
        return self._left_associative(("||",), self._sum)

    def _sum(self) -> SyntaxNode:
        return self._left_associative(("+", "-"), self._product)

    def _product(self) -> SyntaxNode:
        return self._left_associative(("*", "/", "%"), self._unary)

    def _left_associative(self, kinds: Sequence[str], part: Callable[[], SyntaxNode]) -> SyntaxNode:
        """Parse ``a - b - c`` as ``(a - b) - c``."""
        left = part()
        while (kind := self._next()) in kinds:
            self.at += 1
            left = _node_over(kind, left, part())
        return left

    def _unary(self) -> SyntaxNode:
        first = self.at
        if self._take("+"):
            return self._unary()
        if not self._take("-"):
            return self._primary()
        operand = self._unary()
        return SyntaxNode("negate", (operand,), first, operand.last)

    def _primary(self) -> SyntaxNode:
        node = self._atom()
        while True:
            if self._take(MEMBER):
                node = SyntaxNode(MEMBER, (node,), node.first, self.at - 1)
            elif self._take("["):
                index = self.condition()
                self._expect("]")
                node = SyntaxNode(INDEX, (node, index), node.first, self.at - 1)
            else:
                return node

    def _atom(self) -> SyntaxNode:
        first = self.at
        match self._next():
            case "operand":
                self.at += 1
                return SyntaxNode(OPERAND, (), first, first)
            case "function":
                return self._call()
            case "(":
                return self._parentheses()
            case "case":
                return self._case()
        raise GrammarError(first)

    def _parentheses(self) -> SyntaxNode:
        first = self.at
        self.at += 1
        if self._next() == ")":
            raise GrammarError(first, _LIST_MESSAGE)
        inner = self.condition()
        if self._next() == ",":
            raise GrammarError(inner.first, _LIST_MESSAGE)
        self._expect(")")
        return replace(inner, first=first, last=self.at - 1, bracketed=True)

    def _call(self) -> SyntaxNode:
        first = self.at
        self.at += 1
        self._expect("(")
        parts = self._list()
        return SyntaxNode(FUNCTION, parts, first, self.at - 1)

    def _list(self) -> tuple[SyntaxNode, ...]:
        """Parse the parts of a list and its closing bracket."""
        parts = list[SyntaxNode]()
        while not self._take(")"):
            parts.append(self._lambda() if self._next(1) == "->" else self.condition())
            if self._next() != ")":
                self._expect(",")
        return tuple(parts)

    def _lambda(self) -> SyntaxNode:
        first = self.at
        if not self._take(OPERAND):
            raise GrammarError(first)
        self._expect("->")
        body = self.condition()
        return SyntaxNode(LAMBDA, (body,), first, body.last)

    def _case(self) -> SyntaxNode:
        first = self.at
        self.at += 1
        if self._next() != "when":
            raise GrammarError(self.at, "case takes conditions: case when x = 1 then ...")
        parts = list[SyntaxNode]()
        while self._take("when"):
            parts.append(self.condition())
            self._expect("then")
            parts.append(self.condition())
        if self._take("else"):
            parts.append(self.condition())
        self._expect("end")
        return SyntaxNode("case", tuple(parts), first, self.at - 1)

    def _next(self, ahead: int = 0) -> str:
        """Return the item ``ahead`` places behind the next one; "" behind the last."""
        at = self.at + ahead
        return self.items[at] if at < len(self.items) else ""

    def _take(self, item: str) -> bool:
        """Go past the item if it is the next one, and return whether it is."""
        taken = self._next() == item
        self.at += taken
        return taken

    def _expect(self, item: str) -> None:
        if not self._take(item):
            raise GrammarError(self.at)


_LIST_MESSAGE = "a list is accepted only after in"


def _node_over(kind: str, *parts: SyntaxNode) -> SyntaxNode:
    """Return a node that covers the items from its first to its last part."""
    return SyntaxNode(kind, parts, parts[0].first, parts[-1].last)
