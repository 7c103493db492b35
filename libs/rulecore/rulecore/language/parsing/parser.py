"""``parse``: text to typed tree, or one error with its place."""

from __future__ import annotations

from rulecore.errors import ExpressionError
from rulecore.language.ast import Expr
from rulecore.language.limits import ExpressionLimits
from rulecore.language.parsing.grammar import FUNCTION, OPERAND, GrammarError, parse_grammar
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
    """Return the typed tree of ``text``; ``ExpressionError`` for everything that is not of the language.

    ``expect`` is the type that the whole must have, None for any.
    """
    pieces = Lexer(text, field, limits).scan()
    try:
        syntax = parse_grammar([_item(p) for p in pieces], limits.depth)
    except GrammarError as error:
        raise _syntax_error(text, field, pieces, error) from None
    return TypeChecker(text, field, pieces, scope, limits).root(syntax, expect)


def _item(piece: Lexeme) -> str:
    if piece.kind is LexemeKind.OPERATOR:
        return piece.text
    return FUNCTION if piece.kind is LexemeKind.FUNCTION else OPERAND


def _syntax_error(text: str, field: str, pieces: list[Lexeme], error: GrammarError) -> ExpressionError:
    if error.index >= len(pieces) or (not error.message and error.index == len(pieces) - 1 and _wants_more(pieces[-1])):
        last = pieces[-1]
        message = error.message or f"something is missing after {last.text}"
        hint = "accepted here: a column, a constant or a function"
        return _error(text, field, last, message, hint)
    piece = pieces[error.index]
    return _error(text, field, piece, error.message or f"{piece.text} is not accepted here", "")


def _error(text: str, field: str, piece: Lexeme, message: str, hint: str) -> ExpressionError:
    length = piece.end - piece.start
    return ExpressionError(message, field=field, text=text, start=piece.start, length=length, hint=hint)


def _wants_more(piece: Lexeme) -> bool:
    return piece.kind is LexemeKind.OPERATOR and piece.text not in (")", "end", "null")
