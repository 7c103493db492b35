"""``parse``: text to typed tree, or one error with its place."""

from __future__ import annotations

from rulecore.errors import ExpressionError
from rulecore.lang.check import Checker
from rulecore.lang.limits import Limits
from rulecore.lang.pieces import Kind, Piece
from rulecore.lang.scan import Scanner
from rulecore.lang.scope import Scope
from rulecore.lang.syntax import FUNCTION, OPERAND, NotArranged, arrange
from rulecore.lang.tree import Expr
from streamcore.schema import BOOLEAN, Type

__all__ = ["Scope", "parse"]

_DEFAULT = Limits()


def parse(
    text: str, scope: Scope, *, field: str = "where", limits: Limits = _DEFAULT, expect: Type | None = BOOLEAN
) -> Expr:
    """The typed tree of ``text``; ``ExpressionError`` for everything that is not of the language.

    ``expect`` is the type that the whole must have, None for any.
    """
    pieces = Scanner(text, field, limits).scan()
    try:
        syntax = arrange([_item(p) for p in pieces], limits.depth)
    except NotArranged as error:
        raise _refused(text, field, pieces, error) from None
    return Checker(text, field, pieces, scope, limits).root(syntax, expect)


def _item(piece: Piece) -> str:
    if piece.kind is Kind.OPERATOR:
        return piece.text
    return FUNCTION if piece.kind is Kind.FUNCTION else OPERAND


def _refused(text: str, field: str, pieces: list[Piece], error: NotArranged) -> ExpressionError:
    if error.index >= len(pieces) or (not error.message and error.index == len(pieces) - 1 and _wants_more(pieces[-1])):
        last = pieces[-1]
        message = error.message or f"something is missing after {last.text}"
        hint = "accepted here: a column, a constant or a function"
        return _error(text, field, last, message, hint)
    piece = pieces[error.index]
    return _error(text, field, piece, error.message or f"{piece.text} is not accepted here", "")


def _error(text: str, field: str, piece: Piece, message: str, hint: str) -> ExpressionError:
    length = piece.end - piece.start
    return ExpressionError(message, field=field, text=text, start=piece.start, length=length, hint=hint)


def _wants_more(piece: Piece) -> bool:
    return piece.kind is Kind.OPERATOR and piece.text not in (")", "end", "null")
