"""Parses the text of an expression to a typed tree."""

from __future__ import annotations

from rulecore.errors import ExpressionError
from rulecore.language.ast import Expr
from rulecore.language.limits import ExpressionLimits
from rulecore.language.parsing.grammar import FUNCTION, MEMBER, OPERAND, GrammarError, parse_grammar
from rulecore.language.parsing.lexemes import Lexeme, LexemeKind
from rulecore.language.parsing.lexer import Lexer
from rulecore.language.parsing.type_checker import TypeChecker
from rulecore.language.scope import Scope
from streamcore.schema import BOOLEAN, Type

__all__ = ["Scope", "parse"]

_DEFAULT = ExpressionLimits()


def parse(
    text: str, scope: Scope, *, field: str = "where", limits: ExpressionLimits = _DEFAULT, expect: Type | None = BOOLEAN
) -> Expr:
    """Return the typed tree of ``text``; raise ``ExpressionError`` for text that is not of the language.

    ``field``: the entry of the rule, for errors. ``expect``: the type that the expression must have; None for any.
    """
    try:
        lexemes = Lexer(text, field, limits).scan()
        try:
            syntax = parse_grammar([_to_item(p) for p in lexemes], limits.depth)
        except GrammarError as error:
            raise _syntax_error(text, field, lexemes, error) from None
        return TypeChecker(text, field, lexemes, scope, limits).root(syntax, expect)
    except ExpressionError as error:
        error.scope = scope
        raise


def _to_item(lexeme: Lexeme) -> str:
    if lexeme.kind is LexemeKind.OPERATOR:
        return lexeme.text
    return {LexemeKind.FUNCTION: FUNCTION, LexemeKind.MEMBER: MEMBER}.get(lexeme.kind, OPERAND)


def _syntax_error(text: str, field: str, lexemes: list[Lexeme], error: GrammarError) -> ExpressionError:
    last = lexemes[-1]
    lacks_operand = not error.message and error.index == len(lexemes) - 1 and _needs_operand(last)
    if error.index >= len(lexemes) or lacks_operand:
        message = error.message or f"something is missing after {last.text}"
        hint = "accepted here: a column, a constant or a function"
        return _error(text, field, last, message, hint)
    lexeme = lexemes[error.index]
    return _error(text, field, lexeme, error.message or f"{lexeme.text} is not accepted here", "")


def _error(text: str, field: str, lexeme: Lexeme, message: str, hint: str) -> ExpressionError:
    length = lexeme.end - lexeme.start
    return ExpressionError(message, field=field, text=text, start=lexeme.start, length=length, hint=hint)


def _needs_operand(lexeme: Lexeme) -> bool:
    return lexeme.kind is LexemeKind.OPERATOR and lexeme.text not in (")", "]", "end", "null")
