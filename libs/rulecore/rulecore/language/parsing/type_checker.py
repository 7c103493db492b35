"""Builds the typed tree from the syntax: the second half of parsing.

Names are resolved, types are checked, and limits are enforced. Each error has its position and a message; most have a
hint with the accepted form.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TypeVar

from rulecore.errors import ExpressionError, ExpressionTypeError
from rulecore.language import functions, types
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
    operand_for,
)
from rulecore.language.limits import MAX_PRODUCTS, ExpressionLimits
from rulecore.language.parsing.coercion import convert, growth
from rulecore.language.parsing.grammar import COMPARISONS, INDEX, LAMBDA, MEMBER, OPERAND, PREDICATES, SyntaxNode
from rulecore.language.parsing.lexemes import Lexeme, LexemeKind
from rulecore.language.scope import OF_STEP, ListType, Scope
from rulecore.language.suggestions import format_list, suggest
from rulecore.language.text_signatures import read_cast_type
from rulecore.language.traversal import count_products, free_leaves, normal_parameter
from streamcore.schema import BOOLEAN, DOUBLE, TIMESTAMP, Kind, Type

_Built = TypeVar("_Built")
#: The name of a parameter of a lambda.
_PARAMETER = re.compile(r"[^\W\d]\w*")


class TypeChecker:
    """Builds the typed tree of one expression."""

    def __init__(self, text: str, field: str, lexemes: list[Lexeme], scope: Scope, limits: ExpressionLimits) -> None:
        self.text, self.field, self.lexemes = text, field, lexemes
        self.scope, self.limits = scope, limits
        self.nodes = 0
        self.enclosing = ""  # the aggregate whose argument is being built
        self.parameters: dict[str, LambdaParameter] = {}  # of the enclosing lambdas, by name in lower case
        self.has_lambda = False

    def root(self, syntax: SyntaxNode, expect: Type | None) -> Expr:
        """Return the whole expression; raise ``ExpressionError`` unless it has the type ``expect`` (None: any)."""
        expr = self.expr(syntax)
        if self.has_lambda and count_products(expr) > MAX_PRODUCTS:
            hint = "an inner lambda may go over an array of the element, such as x.items"
            raise self.error(syntax, f"lambdas over more than {MAX_PRODUCTS} arrays inside each other", hint)
        if expect is not None and expr.type != expect:
            what = "a condition" if expect == BOOLEAN else str(expect)
            hint = f"accepted here: {types.ACCEPTED[expect.kind]}"
            if expect == BOOLEAN and types.is_numeric(expr.type):
                hint = "accepted here: a comparison, such as ... > 100"
            raise self.error(syntax, f"{what} is needed, this is {expr.type}", hint)
        return expr

    def error(self, syntax: SyntaxNode, message: str, hint: str = "") -> ExpressionError:
        """Return an error at the text of ``syntax``."""
        last = len(self.lexemes) - 1
        start, end = self.lexemes[min(max(0, syntax.first), last)].start, self.lexemes[min(syntax.last, last)].end
        return ExpressionError(message, field=self.field, text=self.text, start=start, length=end - start, hint=hint)

    def expr(self, syntax: SyntaxNode) -> Expr:
        """Return the typed node of ``syntax``."""
        self.nodes += 1
        if self.nodes > self.limits.nodes:
            raise self.error(syntax, f"more than {self.limits.nodes} nodes", "split the rule")
        return self._method_for(syntax.kind)(syntax)

    def _method_for(self, kind: str) -> Callable[[SyntaxNode], Expr]:
        if kind in COMPARISONS:
            return self._compare
        named: dict[str, Callable[[SyntaxNode], Expr]] = {
            OPERAND: self._operand,
            MEMBER: self._member,
            INDEX: self._index,
            LAMBDA: self._misplaced_lambda,
            "function": self._function,
            "and": self._terms,
            "or": self._terms,
            "not": self._not,
            "negate": self._negate,
            "is": self._is_null,
            "in": self._in,
            "in_list": self._in_list,
            "between": self._between,
            "like": self._like,
            "rlike": self._rlike,
            "case": self._case,
            "||": self._concat,
        }
        return named.get(kind, self._arithmetic)

    def _build(self, syntax: SyntaxNode, parts: tuple[SyntaxNode, ...], build: Callable[[], _Built]) -> _Built:
        """Return ``build()``; a type error becomes an ``ExpressionError`` at the faulty part, else at ``syntax``."""
        try:
            return build()
        except ExpressionTypeError as error:
            index = error.operand
            faulty = syntax if index is None or index >= len(parts) else parts[index]
            raise self.error(faulty, error.message, error.hint) from None

    # operands

    def _operand(self, syntax: SyntaxNode) -> Expr:
        lexeme = self._operand_lexeme(syntax)
        assert lexeme is not None
        match lexeme.kind:
            case LexemeKind.NAME:
                return self._column(syntax, lexeme.text)
            case LexemeKind.INTERVAL:
                return IntervalLiteral(ms=_int_value(lexeme))
            case LexemeKind.TIMESTAMP:
                return Literal.of(_int_value(lexeme), TIMESTAMP)
            case LexemeKind.NULL:
                raise self.error(
                    syntax,
                    "null is accepted only as a result of case or if",
                    "to test for null, write: is null, is not null or <=>",
                )
            case LexemeKind.STAR:
                raise self.error(syntax, "* is accepted only in count(*)")
        if lexeme.escape is not None:
            raise self.error(syntax, "escape is accepted only after like")
        return self._constant(syntax, lexeme, negative=False)

    def _operand_lexeme(self, syntax: SyntaxNode) -> Lexeme | None:
        """Return the lexeme of an operand, which may be in brackets; None if ``syntax`` is no operand."""
        if syntax.kind != OPERAND:
            return None
        return next(p for p in self.lexemes[syntax.first : syntax.last + 1] if p.kind is not LexemeKind.OPERATOR)

    def _constant(self, syntax: SyntaxNode, lexeme: Lexeme, *, negative: bool) -> Expr:
        value = lexeme.value
        if negative and isinstance(value, int | float | Decimal):
            value = -value
        if isinstance(value, int) and not types.MIN_LONG <= value <= types.MAX_LONG:
            raise self.error(syntax, "the number does not fit 64 bits", "a double has an exponent: 1e20")
        return self._build(syntax, (), lambda: Literal.of(value))

    def _column(self, syntax: SyntaxNode, name: str) -> Expr:
        """Return the column or the parameter of this name, which is in lower case."""
        found = self._find_name(name)
        if found is not None:
            return found
        arguments, names = self._arguments(), self._names()
        if (step := name.partition(".")[0]) in self.scope.later_steps:
            raise self._unreadable_step(syntax, step)
        if self.scope.steps:
            shown = [one.replace(OF_STEP, ".") for one in names]
            raise self.error(syntax, f"unknown column {name}", suggest(name, shown, shown))
        if name in arguments:
            if self.scope.more_aggregates:
                raise self.error(syntax, f"{name} has many values here", f"an aggregate, such as first({name})")
            hint = f"accepted here: {format_list(names)}, or an aggregate, such as max({name})"
            raise self.error(syntax, f"{name} is not in group_by", hint)
        raise self.error(syntax, f"unknown column {name}", suggest(name, list(names), list(names)))

    def _unreadable_step(self, syntax: SyntaxNode, step: str) -> ExpressionError:
        if not self.scope.steps:
            hint = "the rule's where is about each event alone; compare events in the where of a step"
            return self.error(syntax, f"{step} is a step", hint)
        hint = f"a condition reads its event, and those of the steps before it: {', '.join(self.scope.steps)}"
        return self.error(syntax, f"{step} is a later step", hint)

    def _arguments(self) -> Mapping[str, Type]:
        return self.scope.columns if self.scope.arguments is None else self.scope.arguments

    def _names(self) -> Mapping[str, Type]:
        return self._arguments() if self.enclosing else self.scope.columns

    def _find_name(self, name: str) -> Expr | None:
        """Return the parameter or column of a name in lower case, or None."""
        if name in self.parameters:
            return self.parameters[name]
        names = self._names()
        declared = name if name in names else next((one for one in names if one.lower() == name), None)
        return None if declared is None else ColumnRef(name=declared, type=names[declared])

    def _member(self, syntax: SyntaxNode) -> Expr:
        """Build ``a.b.c``: the longest beginning that is the name of a column, and members of structs behind it."""
        chain = [syntax]
        while (inner := chain[-1].parts[0]).kind == MEMBER and not inner.bracketed:
            chain.append(inner)
        members = [self.lexemes[node.last].text for node in reversed(chain)]
        base = chain[-1].parts[0]
        lexeme = self._operand_lexeme(base)
        if lexeme is None or lexeme.kind is not LexemeKind.NAME or base.bracketed:
            found, at = self.expr(base), 0
        else:
            found, at = self._longest_name(syntax, lexeme.text, members)
        for node, name in zip([*reversed(chain)][at:], members[at:], strict=True):
            found = self._build(node, (), functools.partial(MemberOf.of, found, name))
        return found

    def _longest_name(self, syntax: SyntaxNode, first: str, members: list[str]) -> tuple[Expr, int]:
        """Return the parameter or column that ``first.member. ...`` begins with, and the number of its members.

        A column of a step, and a member of a struct, come before a column with a dot in its name, which may be written
        in backquotes.
        """
        if first in self.parameters:
            return self.parameters[first], 0
        found: list[tuple[Expr, int]] = []
        for count in range(len(members) + 1):
            name = ".".join([first, *members[:count]]).lower()
            if count and first in self.scope.steps:
                of_step = self._find_name(f"{first}{OF_STEP}{'.'.join(members[:count])}".lower())
                found += [] if of_step is None else [(of_step, count)]
            column = self._find_name(name)
            found += [] if column is None else [(column, count)]
        for column, count in found:
            if _has_members(column.type, members[count:]):
                return column, count
        if found:
            return found[-1]
        return self._column(syntax, ".".join([first, *members]).lower()), 0

    def _index(self, syntax: SyntaxNode) -> Expr:
        operand, key = (self.expr(part) for part in syntax.parts)
        if not operand.type.is_nested or operand.type.kind is Kind.STRUCT:
            raise self.error(syntax.parts[0], f"[ ] takes an array or a map, not {operand.type}")
        function = "get" if operand.type.kind is Kind.ARRAY else "element_at"
        return self._build(syntax, syntax.parts, lambda: Call.of(function, (operand, key)))

    def _misplaced_lambda(self, syntax: SyntaxNode) -> Expr:
        raise self.error(syntax, "a lambda is accepted only in exists, forall, filter and transform")

    # conditions

    def _terms(self, syntax: SyntaxNode) -> Expr:
        terms: list[Expr] = []
        node: type[And] | type[Or] = And if syntax.kind == "and" else Or
        for part in syntax.parts:
            term = self._condition(part, syntax.kind)
            terms += term.terms if isinstance(term, node) else (term,)
        return node(terms=tuple(terms))

    def _condition(self, syntax: SyntaxNode, what: str) -> Expr:
        expr = self.expr(syntax)
        return self._build(syntax, (), functools.partial(_as_condition, expr, what))

    def _not(self, syntax: SyntaxNode) -> Expr:
        return Not(operand=self._condition(syntax.parts[0], "not"))

    def _compare(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        left, right = self._comparison_operand(syntax, 0), self._comparison_operand(syntax, 1)
        return self._build(syntax, syntax.parts, lambda: Compare.of(syntax.kind, left, right))  # type: ignore[arg-type]

    def _comparison_operand(self, syntax: SyntaxNode, index: int) -> Expr:
        part = syntax.parts[index]
        lexeme = self._operand_lexeme(part)
        if lexeme is not None and lexeme.kind is LexemeKind.NULL:
            hint = "write: is null" if syntax.kind in ("=", "<=>") else "write: is not null"
            raise self.error(part, "a comparison with null is never true", hint)
        return self.expr(part)

    def _reject_chains(self, syntax: SyntaxNode) -> None:
        """Reject ``a = b = c`` and ``a = b is null``, which SQL dialects group differently."""
        for part in syntax.parts:
            if part.kind in PREDICATES | {"not"} and not part.bracketed:
                raise self.error(part, "a condition inside a condition needs brackets", "write: (a = b) = c")

    def _is_null(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        node = IsNull(operand=self.expr(syntax.parts[0]))
        return Not(operand=node) if syntax.negated else node

    def _in(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        operand = self.expr(syntax.parts[0])
        values = syntax.parts[1:]
        if len(values) > self.limits.list_length:
            raise self.error(values[-1], f"more than {self.limits.list_length} values in a list")
        found = tuple(self._list_value(operand.type, value) for value in values)
        node = In(operand=operand, values=found)
        return Not(operand=node) if syntax.negated else node

    def _list_value(self, kind: Type, syntax: SyntaxNode) -> Literal:
        lexeme = self._operand_lexeme(syntax)
        if lexeme is not None and lexeme.kind is LexemeKind.NULL:
            raise self.error(syntax, "in is never false with null in its list", "add: or ... is null")
        nodes, self.nodes = self.nodes, 0  # the list has a limit of its own
        value = self.expr(syntax)
        self.nodes = nodes
        if not isinstance(value, Literal):
            raise self.error(syntax, "in takes constants", f"accepted here: {types.ACCEPTED[kind.kind]}")
        converted = convert(value, kind)
        if converted is None:
            accepted = f"accepted here: {types.ACCEPTED[kind.kind]}"
            raise self.error(syntax, f"a list for {kind} does not take this {value.type}", accepted)
        return converted

    def _in_list(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        operand, call = self.expr(syntax.parts[0]), syntax.parts[1]
        name = self._function_lexeme(call).text
        if name != "list" or len(call.parts) != 1:
            raise self.error(call, "in takes constants in brackets, or a list", "accepted here: x in list('name')")
        found = self._find_list(call.parts[0])
        self._reject_element(syntax.parts[0], operand)
        node = self._build(syntax, syntax.parts, lambda: InList.of_list(operand, found.name, found.of))
        return Not(operand=node) if syntax.negated else node

    def _lookup(self, syntax: SyntaxNode) -> Expr:
        if len(syntax.parts) != 2:
            hint = "accepted here: lookup('name', x)"
            raise self.error(syntax, f"lookup does not take {len(syntax.parts)} arguments", hint)
        found = self._find_list(syntax.parts[0])
        kind = found.value
        if kind is None:
            raise self.error(
                syntax.parts[0], f"the list {found.name} has no values", "accepted here: x in list('name')"
            )
        key, of = self.expr(syntax.parts[1]), found.of
        self._reject_element(syntax.parts[1], key)
        return self._build(syntax, (syntax.parts[1],), lambda: Lookup.of_list(found.name, key, of, kind))

    def _reject_element(self, syntax: SyntaxNode, operand: Expr) -> None:
        """Reject the element of a lambda as a key of a list: lists are looked up before lambdas are applied."""
        if any(isinstance(leaf, LambdaParameter) for leaf in free_leaves(operand)):
            hint = "declare the value as a field of its own, with from:"
            raise self.error(syntax, "a list is looked up for values of columns, not of elements", hint)

    def _secret(self, syntax: SyntaxNode) -> Expr:
        """Return the secret that ``secret('name')`` names."""
        is_call = syntax.kind == "function" and self._function_lexeme(syntax).text == "secret"
        lexeme = self._operand_lexeme(syntax.parts[0]) if is_call and len(syntax.parts) == 1 else None
        if lexeme is None or not isinstance(lexeme.value, str):
            raise self.error(syntax, "the key is a secret", _HMAC_USAGE)
        if lexeme.value not in self.scope.secrets:
            known = list(self.scope.secrets)
            hint = suggest(lexeme.value, known, known) if known else "there are none here; etl has them in `secrets`"
            raise self.error(syntax, f"there is no secret {lexeme.value[:80]!r}", hint)
        return SecretRef(name=lexeme.value, file=self.scope.secrets[lexeme.value])

    def _find_list(self, syntax: SyntaxNode) -> ListType:
        """Return the list that a constant names. ``having`` may name one only inside an aggregate; a step of a sequence
        is about one event."""
        lexeme = self._operand_lexeme(syntax)
        if lexeme is None or lexeme.kind is not LexemeKind.CONSTANT or not isinstance(lexeme.value, str):
            hint = "accepted here: its name in quotes, such as 'tor_exits'"
            raise self.error(syntax, "the name of a list must be a constant", hint)
        if self.scope.aggregates and not self.enclosing and not self.scope.steps:
            hint = "use it in an aggregate: max(lookup('name', x))"
            raise self.error(syntax, "a list can be used for events only, not for groups", hint)
        lists = self.scope.lists
        if lexeme.value not in lists:
            name = lexeme.value
            hint = suggest(name, sorted(lists), list(lists)) if lists else "there are no lists; publish it first"
            raise self.error(syntax, f"there is no list {name[:80]!r}", hint)
        return lists[lexeme.value]

    def _between(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        operand, low, high = (self._comparison_operand(syntax, index) for index in range(3))
        for index, bound in ((1, low), (2, high)):
            parts = (syntax.parts[0], syntax.parts[index])
            self._build(syntax, parts, functools.partial(Compare.of, "<=", operand, bound))
        node = Between(operand=operand, low=low, high=high)
        return Not(operand=node) if syntax.negated else node

    def _like(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        operand = self.expr(syntax.parts[0])
        pattern = self._constant_pattern(syntax.parts[1], "like", self.limits.like_bytes)
        escape = pattern.escape if pattern.escape is not None else "\\"

        def make() -> Expr:
            types.check_text(operand_for(operand), "like", 0)
            try:
                functions.like_tokens(str(pattern.value), escape)
            except ExpressionTypeError as error:
                raise ExpressionTypeError(error.message, error.hint, 1) from None
            return Like(operand=operand, pattern=str(pattern.value), escape=escape)

        node = self._build(syntax, syntax.parts, make)
        return Not(operand=node) if syntax.negated else node

    def _constant_pattern(self, syntax: SyntaxNode, what: str, limit: int) -> Lexeme:
        lexeme = self._operand_lexeme(syntax)
        if lexeme is None or lexeme.kind is not LexemeKind.CONSTANT or not isinstance(lexeme.value, str):
            raise self.error(syntax, f"{what} takes a constant pattern", "accepted here: text in quotes")
        if len(lexeme.value.encode()) > limit:
            raise self.error(syntax, f"the pattern has more than {limit} bytes")
        return lexeme

    def _rlike(self, syntax: SyntaxNode) -> Expr:
        self._reject_chains(syntax)
        node = self._call(syntax, "regexp_like")
        return Not(operand=node) if syntax.negated else node

    # values

    def _negate(self, syntax: SyntaxNode) -> Expr:
        lexeme = self._operand_lexeme(syntax.parts[0])
        if lexeme is not None and lexeme.kind is LexemeKind.CONSTANT and types.is_number(lexeme.value):
            return self._constant(syntax, lexeme, negative=True)
        operand = self.expr(syntax.parts[0])
        if isinstance(operand, Literal) and types.is_number(operand.value) and operand.value != types.MIN_LONG:
            return Literal.of(-operand.value)  # type: ignore[operator]
        return self._build(syntax, syntax.parts, lambda: Negate.of(operand))

    def _arithmetic(self, syntax: SyntaxNode) -> Expr:
        left, right = (self.expr(part) for part in syntax.parts)
        return self._build(
            syntax,
            syntax.parts,
            lambda: Arithmetic.of(syntax.kind, left, right),  # type: ignore[arg-type]
        )

    def _concat(self, syntax: SyntaxNode) -> Expr:
        """Build one ``concat`` call from ``a || b || c``."""
        parts: list[Expr] = []
        for part in syntax.parts:
            expr = self.expr(part)
            chained = part.kind == "||" and not part.bracketed and isinstance(expr, Call)
            parts += expr.arguments if chained and isinstance(expr, Call) else (expr,)
        return self._check_growth(syntax, self._build(syntax, (), lambda: Call.of("concat", tuple(parts))))

    def _case(self, syntax: SyntaxNode) -> Expr:
        pairs = [syntax.parts[i : i + 2] for i in range(0, len(syntax.parts), 2)]
        default = pairs.pop()[0] if len(pairs[-1]) == 1 else None
        conditions = [self._condition(condition, "when") for condition, _ in pairs]
        results = [result for _, result in pairs] + ([] if default is None else [default])
        return self._build_case(syntax, conditions, results)

    def _if(self, syntax: SyntaxNode) -> Expr:
        if len(syntax.parts) != 3:
            raise self.error(syntax, f"if does not take {len(syntax.parts)} arguments", "accepted here: if(a, b, c)")
        return self._build_case(syntax, [self._condition(syntax.parts[0], "if")], list(syntax.parts[1:]))

    def _build_case(self, syntax: SyntaxNode, conditions: list[Expr], parts: list[SyntaxNode]) -> Expr:
        """Build ``case``. ``parts``: the results, and the default if there is one; NULL gets the type of the others."""
        results = {index: self.expr(part) for index, part in enumerate(parts) if not self._is_null_constant(part)}
        if not results:
            raise self.error(syntax, "all results are null", "one result that is not null")
        shown = tuple(parts[index] for index in results)
        known = [operand_for(expr) for expr in results.values()]

        def make() -> Expr:
            null = Literal(value=None, type=types.unify(known, "case"))
            found = [results.get(index, null) for index in range(len(parts))]
            whens = tuple(When(condition=c, result=r) for c, r in zip(conditions, found, strict=False))
            return Case.of(whens, found[len(conditions)] if len(found) > len(conditions) else None)

        return self._build(syntax, shown, make)

    def _is_null_constant(self, syntax: SyntaxNode) -> bool:
        lexeme = self._operand_lexeme(syntax)
        return lexeme is not None and lexeme.kind is LexemeKind.NULL

    # functions

    def _function(self, syntax: SyntaxNode) -> Expr:
        lexeme = self._function_lexeme(syntax)
        name = functions.ALIASES.get(lexeme.text, lexeme.text)
        if name == "if":
            return self._if(syntax)
        if name == "lookup":
            return self._lookup(syntax)
        if name == "secret":
            raise self.error(syntax, "a secret is no value of a condition or a row", _HMAC_USAGE)
        if self.scope.steps and name in ("first", "last"):
            return self._of_step(syntax, name)
        if name in functions.HIGHER_ORDER:
            return self._higher_order(syntax, lexeme.text, name)
        if name in (*self._aggregates(), _COUNT_IF):
            of_array = self._of_array(syntax, name)
            return of_array or self._aggregate(syntax, "count_distinct" if lexeme.distinct else name)
        if name not in functions.FUNCTIONS and name not in functions.OF_ARRAYS:
            raise self._unknown_function(lexeme)
        return self._call(syntax, name)

    def _aggregates(self) -> tuple[str, ...]:
        return (*functions.AGGREGATES, *self.scope.more_aggregates)

    def _of_array(self, syntax: SyntaxNode, name: str) -> Expr | None:
        """Return ``sum(x)`` and the like of an array, where no aggregate is accepted; None if ``x`` is none."""
        accepted = self.scope.aggregates and not self.enclosing
        if accepted or name not in functions.OF_ARRAYS or len(syntax.parts) != 1:
            return None
        argument = self.expr(syntax.parts[0])
        if argument.type.kind is not Kind.ARRAY:
            return None
        return self._build(syntax, syntax.parts, lambda: Call.of(functions.OF_ARRAYS[name], (argument,)))

    def _higher_order(self, syntax: SyntaxNode, written: str, name: str) -> Expr:
        usage = f"accepted here: {written}(items, x -> ...)"
        if len(syntax.parts) != 2 or syntax.parts[1].kind != LAMBDA:
            raise self.error(syntax, f"{written} takes an array and a lambda", usage)
        array, function = self.expr(syntax.parts[0]), syntax.parts[1]
        element = self._build(syntax, syntax.parts, lambda: types.elements(array.type, written))
        lexeme = self.lexemes[function.first]
        at = replace(function, last=function.first)
        if lexeme.kind is not LexemeKind.NAME or not _PARAMETER.fullmatch(lexeme.text):
            raise self.error(at, "a parameter is a name of letters, digits and _, such as x", usage)
        if lexeme.text in self.parameters:
            raise self.error(at, f"{lexeme.text} is the parameter of a lambda around this one")
        self.parameters[lexeme.text] = LambdaParameter(name=lexeme.text, type=element)
        self.has_lambda = True
        body = self.expr(function.parts[0])
        del self.parameters[lexeme.text]
        if lexeme.text.startswith("__") and lexeme.text != normal_parameter(body):
            raise self.error(at, "the name of a parameter does not begin with __", usage)
        return self._build(
            syntax,
            syntax.parts,
            lambda: HigherOrderCall.of(name, array, lexeme.text, body),  # type: ignore[arg-type]
        )

    def _unknown_function(self, lexeme: Lexeme) -> ExpressionError:
        at = self.lexemes.index(lexeme)
        if lexeme.text == "list":
            hint = "write: x in list('name')"
            return self.error(SyntaxNode("function", (), at, at), "list is accepted only after in", hint)
        # aggregates first: they are what a place that takes them is about
        accepted = [*(self._aggregates() if self.scope.aggregates else ()), *functions.FUNCTIONS, "if", "lookup"]
        hint = _ELSEWHERE.get(lexeme.text) or suggest(lexeme.text, accepted, [*accepted, *functions.ALIASES])
        return self.error(SyntaxNode("function", (), at, at), f"unknown function {lexeme.text}", hint)

    def _function_lexeme(self, syntax: SyntaxNode) -> Lexeme:
        return next(p for p in self.lexemes[syntax.first :] if p.kind is LexemeKind.FUNCTION)

    def _call(self, syntax: SyntaxNode, name: str) -> Expr:
        if len(syntax.parts) > self.limits.arguments:
            raise self.error(syntax, f"{name}: more than {self.limits.arguments} arguments")
        if name in _WITH_REGEX and len(syntax.parts) > 1:
            self._constant_pattern(syntax.parts[1], name, self.limits.regex_bytes)
        is_secret = [name == "hmac_sha256" and number == 1 for number in range(len(syntax.parts))]
        parts = zip(syntax.parts, is_secret, strict=True)
        arguments = tuple(self._secret(part) if secret else self.expr(part) for part, secret in parts)
        if name in ("cast", "try_cast") and len(arguments) == 2:
            arguments = (arguments[0], self._build(syntax, syntax.parts, lambda: _canonical_type(name, arguments[1])))
        if arguments and arguments[0].type.kind is Kind.ARRAY:
            name = functions.OF_ARRAYS.get(name, name)
        return self._check_growth(syntax, self._build(syntax, syntax.parts, lambda: Call.of(name, arguments)))

    def _of_step(self, syntax: SyntaxNode, name: str) -> Expr:
        """Return ``first(step.column)`` or ``last(step.column)`` as a column of that name."""
        column = self.expr(syntax.parts[0]) if len(syntax.parts) == 1 else None
        members = list[str]()
        while isinstance(column, MemberOf):
            members.append(column.name)
            column = column.operand
        if not isinstance(column, ColumnRef) or OF_STEP not in column.name or column.name not in self.scope.columns:
            raise self.error(syntax, f"{name} takes a column of an earlier step", f"write such as {name}(step.column)")
        found: Expr = ColumnRef(name=f"{name}({column.name})", type=column.type)
        for member in reversed(members):
            found = MemberOf.of(found, member)
        return found

    def _aggregate(self, syntax: SyntaxNode, name: str) -> Expr:
        if not self.scope.aggregates:
            raise self.error(syntax, f"{name} is an aggregate", "aggregates are accepted only in having")
        if self.enclosing:
            raise self.error(syntax, f"{name} inside {self.enclosing}", "aggregates do not nest")
        if name == "time_since_last" and not syntax.parts:
            return AggregateCall.of("time_since_last", None)
        if name in functions.DECAYED_AGGREGATES:
            return self._decayed(syntax, name)
        if len(syntax.parts) != 1 or name == "time_since_last":
            argument = "" if name == "time_since_last" else "x"
            hint = f"accepted here: {'count(*) or ' if name == 'count' else ''}{name}({argument})"
            raise self.error(syntax, f"{name} does not take {len(syntax.parts)} arguments", hint)
        lexeme = self._operand_lexeme(syntax.parts[0])
        if lexeme is not None and lexeme.kind is LexemeKind.STAR and name == "count":
            return AggregateCall.of("count", None)
        value = self._aggregated(syntax.parts[0], name)
        if name == _COUNT_IF:
            return self._build(syntax, syntax.parts, lambda: AggregateCall.of("count", _one_if(value)))
        if name == "count" and self._counts_false(value):
            hint = "write count_if(...) for the events for which it is true"
            raise self.error(syntax, "count of a condition counts all events for which it is true or false", hint)
        if name in ("first", "last") and value.type == DOUBLE and "approx_count_distinct" in self._aggregates():
            hint = f"write: {name}(to_decimal(..., 18, 6))"  # a session takes the least of events at the same time
            raise self.error(syntax.parts[0], f"{name} takes no double", hint)
        return self._build(syntax, syntax.parts, lambda: AggregateCall.of(name, value))  # type: ignore[arg-type]

    def _counts_false(self, value: Expr) -> bool:
        """Return whether ``count(value)`` counts, against the author's intention, where the condition is false. In a
        session's columns it does not."""
        in_session = set(functions.SESSION_AGGREGATES) <= set(self.scope.more_aggregates)
        return value.type == BOOLEAN and not isinstance(value, ColumnRef | MemberOf) and not in_session

    def _aggregated(self, syntax: SyntaxNode, name: str) -> Expr:
        self.enclosing = name
        value = self.expr(syntax)
        self.enclosing = ""
        return value

    def _decayed(self, syntax: SyntaxNode, name: str) -> Expr:
        """Return an aggregate whose last argument is its half-life."""
        is_sum = name == "time_decayed_sum"
        hint = f"accepted here: {name}({'x, ' if is_sum else ''}interval 7 days), with the half-life"
        if len(syntax.parts) != 1 + is_sum:
            raise self.error(syntax, f"{name} does not take {len(syntax.parts)} arguments", hint)
        lexeme = self._operand_lexeme(syntax.parts[-1])
        half_life = _int_value(lexeme) if lexeme is not None and lexeme.kind is LexemeKind.INTERVAL else 0
        if not half_life:
            raise self.error(syntax.parts[-1], f"{name} takes a half-life, an interval above 0", hint)
        value = self._aggregated(syntax.parts[0], name) if is_sum else None
        return self._build(syntax, syntax.parts, lambda: AggregateCall.of(name, value, half_life))  # type: ignore[arg-type]

    def _check_growth(self, syntax: SyntaxNode, expr: Expr) -> Expr:
        if growth(expr) > self.limits.text_growth:
            raise self.error(syntax, f"the text may grow more than {self.limits.text_growth} times")
        return expr


#: Spark's ``count_if(x)``: ``count(case when x then 1 end)``.
_COUNT_IF = "count_if"
#: What stands in place of functions that other languages have.
_ELSEWHERE = {
    **dict.fromkeys(
        ("now", "current_timestamp", "getdate"), "the time of an event is a field of it: no rule has a clock"
    ),
    "lag": "a feature has the value of the event before: of: last(x)",
    "first": "the columns of sessions and features have it",
    "last": "the columns of sessions and features have it",
}
_WITH_REGEX = frozenset({"regexp_like", "regexp_extract", "regexp_replace", "split"})
_HMAC_USAGE = "accepted here: hmac_sha256(text, secret('name'))"


def _canonical_type(name: str, written: Expr) -> Expr:
    """Return the type of a cast with the name that streams have for it."""
    if not isinstance(written, Literal) or not isinstance(written.value, str):
        raise ExpressionTypeError(f"{name} takes a type", f"accepted here: {name}(x as long)", 1)
    return Literal.of(str(read_cast_type(name, written.value)))


def _has_members(kind: Type, members: list[str]) -> bool:
    """Return whether ``x.member. ...`` is accepted for ``x`` of this type."""
    try:
        for name in members:
            _, kind = types.member(kind, name)
    except ExpressionTypeError:
        return False
    return True


def _one_if(condition: Expr) -> Expr:
    """Return ``case when condition then 1 end``."""
    types.check_condition(operand_for(condition), _COUNT_IF, 0)
    return Case.of((When(condition=condition, result=Literal.of(1)),), None)


def _as_condition(expr: Expr, what: str) -> Expr:
    types.check_condition(operand_for(expr), what)
    return expr


def _int_value(lexeme: Lexeme) -> int:
    assert isinstance(lexeme.value, int)
    return lexeme.value
