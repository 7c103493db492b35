"""Checks lexemes before they are parsed: matching brackets, nesting, and which lexemes may be neighbours.

Matched brackets and bounded nesting bound the recursion of the parser, and the best message about a fault between two
neighbours names these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rulecore.errors import ExpressionError
from rulecore.language.parsing.lexemes import FOREIGN, OPERANDS, Lexeme, LexemeKind, foreign_hint, words

MakeError = Callable[[str, int, int, str], ExpressionError]

_BEFORE_NOT = words("( [ -> and or not when then else") | {","}
_AFTER_NOT = words("in between like rlike")
_AFTER_OPERAND = words("* / % = <> < <= > >= <=> || -> [ and or in between like rlike is when then else end") | {","}
_CLOSING = {"(": ")", "[": "]", "case": "end"}
_OPERAND_HINT = "accepted here: a column, a constant or a function"
_CONSTANTS_HINT = "accepted here: constants in round brackets: x in ('a', 'b')"


class BracketChecker:
    """Checks the lexemes of one text. ``error`` makes an error from message, start, end and hint."""

    def __init__(self, text: str, lexemes: list[Lexeme], depth: int, error: MakeError) -> None:
        self.text, self.lexemes, self.depth, self.error = text, lexemes, depth, error

    def match_brackets(self) -> None:
        """Reject unmatched brackets and too deep nesting of brackets, ``case`` and prefix operators."""
        opened: list[int] = []
        prefixes = [0]
        for index, lexeme in enumerate(self.lexemes):
            if lexeme.is_operator(*_CLOSING):
                opened.append(index)
                prefixes.append(0)
            elif lexeme.is_operator(*_CLOSING.values()):
                self._close(opened, index)
                prefixes.pop()
                prefixes[-1] = 0
            elif lexeme.is_operator("not", "-", "+") and self._is_prefix(index):
                prefixes[-1] += 1
            elif lexeme.kind in OPERANDS:
                prefixes[-1] = 0
            if len(opened) + sum(prefixes) > self.depth:
                message = f"nested more than {self.depth} deep"
                raise self.error(message, lexeme.start, lexeme.end, "fewer brackets")
        if opened:
            lexeme = self.lexemes[opened[-1]]
            hint = f"accepted here: a matching {_CLOSING[lexeme.text]}"
            raise self.error(f"{lexeme.text} is never closed", lexeme.start, lexeme.end, hint)

    def _close(self, opened: list[int], index: int) -> None:
        lexeme = self.lexemes[index]
        wanted = next(opening for opening, closing in _CLOSING.items() if closing == lexeme.text)
        if not opened or self.lexemes[opened[-1]].text != wanted:
            raise self.error(f"{lexeme.text} without {wanted}", lexeme.start, lexeme.end, "")
        opened.pop()

    def _is_prefix(self, index: int) -> bool:
        """Return whether ``not``, ``-`` or ``+`` at this index has no operand before it."""
        return index == 0 or not self.lexemes[index - 1].ends_operand()

    def check_neighbours(self) -> None:
        """Reject operands without an operator between them, operators without an operand, and a misplaced ``not``."""
        for before, lexeme, after in _with_neighbours(self.lexemes):
            starts = lexeme.kind in OPERANDS or lexeme.kind is LexemeKind.FUNCTION or lexeme.is_operator("(", "case")
            if before is not None and starts and before.ends_operand():
                raise self._missing_operator(before, lexeme)
            if lexeme.is_operator(*_AFTER_OPERAND) and not self._follows_operand(before, lexeme):
                shown = self.text[lexeme.start : lexeme.end]
                in_brackets = shown == "[" and before is not None and before.is_operator("in")
                hint = _CONSTANTS_HINT if in_brackets else _OPERAND_HINT
                raise self.error(f"something is missing before {shown}", lexeme.start, lexeme.end, hint)
            if lexeme.is_operator("not") and before is not None and not before.is_operator("is", *_BEFORE_NOT):
                if not before.ends_operand():
                    hint = "write it in brackets: (not ...)"
                    raise self.error("not is not accepted here", lexeme.start, lexeme.end, hint)
                if after is None or not after.is_operator(*_AFTER_NOT):
                    hint = "accepted here: not in, not between, not like"
                    raise self.error("not is not accepted here", lexeme.start, lexeme.end, hint)

    def _follows_operand(self, before: Lexeme | None, lexeme: Lexeme) -> bool:
        if before is None:
            return False
        if lexeme.text == "when" and before.is_operator("case"):
            return True
        return before.ends_operand() or (before.is_operator("not") and lexeme.text in _AFTER_NOT)

    def _missing_operator(self, before: Lexeme, lexeme: Lexeme) -> ExpressionError:
        if before.kind is LexemeKind.NAME and before.text in FOREIGN:
            return self.error(f"{before.text} is not accepted", before.start, before.end, foreign_hint(before.text))
        if lexeme.kind is LexemeKind.NAME and lexeme.text in FOREIGN:
            return self.error(f"{lexeme.text} is not accepted", lexeme.start, lexeme.end, foreign_hint(lexeme.text))
        shown = self.text[lexeme.start : lexeme.end]
        hint = "accepted here: and, or, a comparison, + - * / %"
        if lexeme.kind is LexemeKind.FUNCTION and lexeme.text == "filter":
            hint = foreign_hint(lexeme.text)
        return self.error(f"an operator is missing before {shown}", lexeme.start, lexeme.end, hint)


def _with_neighbours(lexemes: list[Lexeme]) -> Iterator[tuple[Lexeme | None, Lexeme, Lexeme | None]]:
    for index, lexeme in enumerate(lexemes):
        before = lexemes[index - 1] if index else None
        yield before, lexeme, lexemes[index + 1] if index + 1 < len(lexemes) else None
