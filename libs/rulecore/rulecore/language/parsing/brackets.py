"""The structure that can be seen without a grammar: brackets, nesting, and which pieces may be neighbours.

Checked before anything is arranged, for two reasons: recursion must be bounded, and a mistake between two neighbours is
explained best by looking at the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rulecore.errors import ExpressionError
from rulecore.language.parsing.lexemes import FOREIGN, OPERANDS, Lexeme, LexemeKind, foreign_hint, words

MakeError = Callable[[str, int, int, str], ExpressionError]

_NOT_AFTER = words("( and or not when then else") | {","}
_NOT_BEFORE = words("in between like rlike")
_AFTER_OPERAND = words("* / % = <> < <= > >= <=> || and or in between like rlike is when then else end") | {","}
_OPERAND_HINT = "accepted here: a column, a constant or a function"


class BracketChecker:
    """The pieces of one text. ``error`` makes an error of message, start, end and hint."""

    def __init__(self, text: str, pieces: list[Lexeme], depth: int, error: MakeError) -> None:
        self.text, self.pieces, self.depth, self.error = text, pieces, depth, error

    def match_brackets(self) -> None:
        """Refuse brackets without a partner and too much nesting, prefix operators counted."""
        opened: list[int] = []
        prefixes = [0]
        for index, piece in enumerate(self.pieces):
            if piece.is_operator("(", "case"):
                opened.append(index)
                prefixes.append(0)
            elif piece.is_operator(")", "end"):
                self._close(opened, index)
                prefixes.pop()
                prefixes[-1] = 0
            elif piece.is_operator("not", "-", "+") and self._is_prefix(index):
                prefixes[-1] += 1
            elif piece.kind in OPERANDS:
                prefixes[-1] = 0
            if len(opened) + sum(prefixes) > self.depth:
                message = f"nested more than {self.depth} deep"
                raise self.error(message, piece.start, piece.end, "fewer brackets")
        if opened:
            piece = self.pieces[opened[-1]]
            close = ")" if piece.text == "(" else "end"
            hint = f"accepted here: a matching {close}"
            raise self.error(f"{piece.text} is never closed", piece.start, piece.end, hint)

    def _close(self, opened: list[int], index: int) -> None:
        piece = self.pieces[index]
        wanted = "(" if piece.text == ")" else "case"
        if not opened or self.pieces[opened[-1]].text != wanted:
            raise self.error(f"{piece.text} without {wanted}", piece.start, piece.end, "")
        opened.pop()

    def _is_prefix(self, index: int) -> bool:
        """Return whether no operand stands before it."""
        return index == 0 or not self.pieces[index - 1].ends_operand()

    def check_neighbours(self) -> None:
        """Refuse two operands without an operator between them, and ``not`` where it would bind surprisingly."""
        for before, piece, after in _threes(self.pieces):
            starts = piece.kind in OPERANDS or piece.kind is LexemeKind.FUNCTION or piece.is_operator("(", "case")
            if before is not None and starts and before.ends_operand():
                raise self._missing_operator(before, piece)
            if piece.is_operator(*_AFTER_OPERAND) and not self._follows_operand(before, piece):
                shown = self.text[piece.start : piece.end]
                raise self.error(f"something is missing before {shown}", piece.start, piece.end, _OPERAND_HINT)
            if piece.is_operator("not") and before is not None and not before.is_operator("is", *_NOT_AFTER):
                if not before.ends_operand():
                    raise self.error("not is not accepted here", piece.start, piece.end, "put brackets: (not ...)")
                if after is None or not after.is_operator(*_NOT_BEFORE):
                    hint = "accepted here: not in, not between, not like"
                    raise self.error("not is not accepted here", piece.start, piece.end, hint)

    def _follows_operand(self, before: Lexeme | None, piece: Lexeme) -> bool:
        if before is None:
            return False
        if piece.text == "when" and before.is_operator("case"):
            return True
        return before.ends_operand() or (before.is_operator("not") and piece.text in _NOT_BEFORE)

    def _missing_operator(self, before: Lexeme, piece: Lexeme) -> ExpressionError:
        if before.kind is LexemeKind.NAME and before.text in FOREIGN:
            return self.error(f"{before.text} is not accepted", before.start, before.end, foreign_hint(before.text))
        if piece.kind is LexemeKind.NAME and piece.text in FOREIGN:
            return self.error(f"{piece.text} is not accepted", piece.start, piece.end, foreign_hint(piece.text))
        shown = self.text[piece.start : piece.end]
        hint = "accepted here: and, or, a comparison, + - * / %"
        return self.error(f"an operator is missing before {shown}", piece.start, piece.end, hint)


def _threes(pieces: list[Lexeme]) -> Iterator[tuple[Lexeme | None, Lexeme, Lexeme | None]]:
    for index, piece in enumerate(pieces):
        before = pieces[index - 1] if index else None
        yield before, piece, pieces[index + 1] if index + 1 < len(pieces) else None
