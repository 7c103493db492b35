"""From text to pieces: the first half of parsing, and the gate that everything has to pass.

The text is cut by sqlglot's Spark tokenizer and sorted here into *pieces*: operands (column names, constants,
intervals), function names, and a closed list of operators and keywords. Whatever is not on the list is refused at its
place: comments, semicolons, subqueries, casts, lambdas, hints, indexing. Nesting is measured here too, before any
recursion sees the text. What an operand means (is there such a column?) is for ``check``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from rulecore.errors import ExpressionError
from rulecore.lang.limits import Limits
from rulecore.lang.literals import interval_ms, number, string_value, timestamp_ms
from rulecore.lang.sql import Token, TokenKind, tokenise

SYMBOLS = {"==": "=", "!=": "<>"} | {s: s for s in ["+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>", "||"]}
KEYWORDS = frozenset(
    ["and", "or", "not", "in", "between", "like", "rlike", "is", "null", "true", "false", "case", "when", "then", "else", "end", "escape", "distinct"]
)
RESERVED = KEYWORDS
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPACE = " \t\r\n"
_NOT_AFTER = frozenset({"(", ",", "and", "or", "not", "when", "then", "else"})
_NOT_BEFORE = frozenset({"in", "between", "like", "rlike"})
_AFTER_OPERAND = frozenset(["*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>", "||", "and", "or", "in", "between", "like", "rlike", "is", "when", "then", "else", "end"]) | {","}
_FOREIGN = frozenset(["select", "from", "where", "with", "union", "cast", "try_cast", "exists", "over", "lateral", "join", "values", "order", "group"])


class Kind(enum.Enum):
    """What a piece is to the grammar."""

    NAME = "name"
    CONSTANT = "constant"
    NULL = "null"
    INTERVAL = "interval"
    TIMESTAMP = "timestamp"
    STAR = "star"
    FUNCTION = "function"
    OPERATOR = "operator"  # and keywords, brackets and the comma


OPERANDS = frozenset({Kind.NAME, Kind.CONSTANT, Kind.NULL, Kind.INTERVAL, Kind.TIMESTAMP, Kind.STAR})


@dataclass(frozen=True, slots=True)
class Piece:
    """``start`` and ``end`` count characters of the text, ``end`` excluded; ``partner`` is the other bracket."""

    kind: Kind
    text: str
    start: int
    end: int
    value: bool | int | float | Decimal | str | None = None
    escape: str | None = None
    distinct: bool = False
    partner: int = -1

    def is_operator(self, *texts: str) -> bool:
        """One of these operators or keywords."""
        return self.kind is Kind.OPERATOR and self.text in texts


class Scanner:
    """One text on its way to pieces."""

    def __init__(self, text: str, field: str, limits: Limits) -> None:
        self.text, self.field, self.limits = text, field, limits
        self.pieces: list[Piece] = []

    def error(self, message: str, start: int, end: int, hint: str = "") -> ExpressionError:
        """An error at that place."""
        return ExpressionError(
            message, field=self.field, text=self.text, start=start, length=max(1, end - start), hint=hint
        )

    def scan(self) -> list[Piece]:
        """All pieces, with brackets matched. ``ExpressionError`` for anything outside of the language."""
        self._check_text()
        tokens = self._tokens()
        index = 0
        while index < len(tokens):
            index += self._take(tokens, index)
        if not self.pieces:
            raise self.error("the expression is empty", 0, 1, "accepted here: a condition, such as amount > 100")
        self._match_brackets()
        self._check_neighbours()
        return self.pieces

    def _check_text(self) -> None:
        size = len(self.text.encode("utf-8", "surrogatepass"))
        if size > self.limits.text_bytes:
            message = f"the text has {size} bytes, at most {self.limits.text_bytes} are accepted"
            raise ExpressionError(message, field=self.field, text=self.text[:200], hint="split the rule")
        for index, character in enumerate(self.text):
            control = character < " " and character not in _SPACE
            if control or character == "\x7f" or "\ud800" <= character <= "\udfff":
                raise self.error(f"character U+{ord(character):04X} is not accepted", index, index + 1)

    def _tokens(self) -> list[Token]:
        try:
            tokens = tokenise(self.text)
        except ValueError:
            raise self._unclosed() from None
        end = 0
        for token in tokens:
            self._check_gap(end, token.start)
            end = max(end, token.end)
        self._check_gap(end, len(self.text))
        return tokens

    def _unclosed(self) -> ExpressionError:
        """The tokenizer gave up: nearly always a quote that is not closed."""
        for quote in ("'", '"', "`"):
            if self.text.count(quote) % 2:
                start = self.text.rfind(quote)
                return self.error(f"the quote {quote} is never closed", start, start + 1)
        return self.error("the text cannot be split into words", 0, len(self.text))

    def _check_gap(self, start: int, end: int) -> None:
        gap = self.text[start:end]
        if rest := gap.strip(_SPACE):
            at = start + gap.index(rest)
            raise self.error("comments are not accepted", at, at + len(rest), "a minus before a minus: a - (-1)")

    def _take(self, tokens: list[Token], index: int) -> int:
        """Make one piece of the tokens from ``index`` on; the number of tokens used up."""
        token = tokens[index]
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        match token.kind:
            case TokenKind.STRING | TokenKind.RAW:
                return self._take_string(tokens, index)
            case TokenKind.NUMBER:
                self._constant(token, number(self.text[token.start : token.end]))
            case TokenKind.QUOTED:
                self._add(Kind.NAME, token.text.lower(), token.start, token.end)
            case _ if _WORD.match(token.text):
                return self._take_word(token, following, tokens, index)
            case _:
                self._take_symbol(token)
        return 1

    def _take_symbol(self, token: Token) -> None:
        if token.text in ("(", ")", ","):
            self._add(Kind.OPERATOR, token.text, token.start, token.end)
            return
        if token.text == "*" and self.pieces and self.pieces[-1].text == "(" and self._function() == "count":
            self._add(Kind.STAR, "*", token.start, token.end)
            return
        if token.text not in SYMBOLS:
            shown = self.text[token.start : token.end]
            raise self.error(f"{shown} is not accepted", token.start, token.end, _hint(token.text))
        self._add(Kind.OPERATOR, SYMBOLS[token.text], token.start, token.end)

    def _take_word(self, token: Token, following: Token | None, tokens: list[Token], index: int) -> int:
        word = token.text.lower()
        is_string = following is not None and following.kind in (TokenKind.STRING, TokenKind.RAW)
        if word == "escape" and is_string:
            return self._take_escape(tokens, index)
        if word == "timestamp" and is_string:
            return self._take_timestamp(tokens, index)
        if word == "interval" and (is_string or (following is not None and following.kind is TokenKind.NUMBER)):
            return self._take_interval(tokens, index)
        if word == "distinct" and self.pieces and self.pieces[-1].text == "(" and self._function() == "count":
            self.pieces[-2] = replace(self.pieces[-2], distinct=True)
        elif word in ("true", "false"):
            self._constant(token, word == "true")
        elif word == "null" and not self._after_is():
            self._add(Kind.NULL, word, token.start, token.end)
        elif word in KEYWORDS - {"escape", "distinct"}:
            self._add(Kind.OPERATOR, word, token.start, token.end)
        elif word in KEYWORDS:
            raise self.error(f"{word} is not accepted here", token.start, token.end, _WORD_HINTS[word])
        elif following is not None and following.text == "(" and following.kind is TokenKind.OTHER:
            self._add(Kind.FUNCTION, word, token.start, token.end)
        else:
            self._add(Kind.NAME, word, token.start, token.end)
        return 1

    def _function(self) -> str:
        """The function whose bracket was just opened."""
        return self.pieces[-2].text if len(self.pieces) > 1 and self.pieces[-2].kind is Kind.FUNCTION else ""

    def _after_is(self) -> bool:
        last = self.pieces[-2:]
        return bool(last) and (last[-1].is_operator("is") or (len(last) > 1 and last[0].is_operator("is")))

    def _string(self, tokens: list[Token], index: int) -> tuple[str, int, int]:
        """Value, end and number of tokens of a string; two quotes in a row are one quote, as in Spark 4."""
        value, end, count = "", tokens[index].start, 0
        quote = self.text[end]
        for token in tokens[index:]:
            raw = self.text[token.start : token.end]
            if token.start != end or raw[0] != quote or (count and quote not in "\"'"):
                break
            try:
                part = string_value(raw)
            except ValueError as error:
                raise self.error(str(error), token.start, token.end, "write \\\\ for a backslash, or r'...'") from None
            value += (raw[0] if count else "") + part
            end, count = token.end, count + 1
        return value, end, count

    def _take_string(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._string(tokens, index)
        self._add(Kind.CONSTANT, self.text[tokens[index].start : end], tokens[index].start, end, value)
        return count

    def _take_escape(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._string(tokens, index + 1)
        last = self.pieces[-1] if self.pieces else None
        if last is None or not isinstance(last.value, str) or len(value) != 1 or last.escape is not None:
            raise self.error(
                "escape takes one character", tokens[index].start, end, "accepted here: like 'text!%' escape '!'"
            )
        self.pieces[-1] = replace(last, escape=value, end=end)
        return 1 + count

    def _take_timestamp(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._string(tokens, index + 1)
        ms = timestamp_ms(value)
        start = tokens[index].start
        if ms is None:
            raise self.error(f"{value!r} is no timestamp", start, end, "accepted here: timestamp '2011-01-31 12:00:00'")
        self._add(Kind.TIMESTAMP, self.text[start:end], start, end, ms)
        return 1 + count

    def _take_interval(self, tokens: list[Token], index: int) -> int:
        start, amount = tokens[index].start, tokens[index + 1]
        end, count = amount.end, 1
        words = [self.text[amount.start : amount.end]]
        if amount.kind is not TokenKind.NUMBER:
            value, end, count = self._string(tokens, index + 1)
            words = value.split()
        if len(words) == 1 and index + 1 + count < len(tokens):
            unit = tokens[index + 1 + count]
            words.append(unit.text)
            end, count = unit.end, count + 1
        ms = interval_ms(words)
        if ms is None:
            raise self.error("no interval", start, end, "accepted here: interval 5 minutes (milliseconds to weeks)")
        self._add(Kind.INTERVAL, self.text[start:end], start, end, ms)
        return 1 + count

    def _constant(self, token: Token, value: bool | int | float | Decimal | None) -> None:
        shown = self.text[token.start : token.end]
        if value is None:
            raise self.error(f"{shown} is no number", token.start, token.end, "accepted here: 100, 10.5 or 1.5e3")
        self._add(Kind.CONSTANT, shown, token.start, token.end, value)

    def _add(
        self, kind: Kind, text: str, start: int, end: int, value: bool | int | float | Decimal | str | None = None
    ) -> None:
        self.pieces.append(Piece(kind, text, start, end, value))

    def _match_brackets(self) -> None:
        """Give each bracket its partner; refuse too much nesting, prefix operators counted."""
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
            if len(opened) + sum(prefixes) > self.limits.depth:
                message = f"nested more than {self.limits.depth} deep"
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
            raise self.error(f"{piece.text} without {wanted}", piece.start, piece.end)
        partner = opened.pop()
        self.pieces[partner] = replace(self.pieces[partner], partner=index)
        self.pieces[index] = replace(piece, partner=partner)

    def _is_prefix(self, index: int) -> bool:
        """No operand stands before it."""
        return index == 0 or not _ends_operand(self.pieces[index - 1])

    def _check_neighbours(self) -> None:
        """Refuse two operands without an operator between them, and ``not`` where it would bind surprisingly."""
        for before, piece, after in _threes(self.pieces):
            starts = piece.kind in OPERANDS or piece.kind is Kind.FUNCTION or piece.is_operator("(", "case")
            if before is not None and starts and _ends_operand(before):
                raise self._missing_operator(before, piece)
            if piece.is_operator(*_AFTER_OPERAND) and not self._follows_operand(before, piece):
                shown = self.text[piece.start : piece.end]
                raise self.error(f"something is missing before {shown}", piece.start, piece.end, _OPERAND_HINT)
            if piece.is_operator("not") and before is not None and not before.is_operator("is", *_NOT_AFTER):
                if not _ends_operand(before):
                    raise self.error("not is not accepted here", piece.start, piece.end, "put brackets: (not ...)")
                if after is None or not after.is_operator(*_NOT_BEFORE):
                    hint = "accepted here: not in, not between, not like"
                    raise self.error("not is not accepted here", piece.start, piece.end, hint)

    def _follows_operand(self, before: Piece | None, piece: Piece) -> bool:
        if before is None:
            return False
        if piece.text == "when" and before.is_operator("case"):
            return True
        return _ends_operand(before) or (before.is_operator("not") and piece.text in _NOT_BEFORE)

    def _missing_operator(self, before: Piece, piece: Piece) -> ExpressionError:
        if before.kind is Kind.NAME and before.text in _FOREIGN:
            return self.error(f"{before.text} is not accepted", before.start, before.end, _hint(before.text))
        if piece.kind is Kind.NAME and piece.text in _FOREIGN:
            return self.error(f"{piece.text} is not accepted", piece.start, piece.end, _hint(piece.text))
        shown = self.text[piece.start : piece.end]
        hint = "accepted here: and, or, a comparison, + - * / %"
        return self.error(f"an operator is missing before {shown}", piece.start, piece.end, hint)


def _ends_operand(piece: Piece) -> bool:
    return piece.kind in OPERANDS or piece.is_operator(")", "end", "null")


def _threes(pieces: list[Piece]) -> Iterator[tuple[Piece | None, Piece, Piece | None]]:
    for index, piece in enumerate(pieces):
        before = pieces[index - 1] if index else None
        yield before, piece, pieces[index + 1] if index + 1 < len(pieces) else None


def _hint(text: str) -> str:
    if text.lower() in _FOREIGN:
        return "an expression of columns, constants and functions; no queries, casts or windows"
    return "accepted here: + - * / % = <> < <= > >= <=> || ( ) , and words"


_OPERAND_HINT = "accepted here: a column, a constant or a function"
_WORD_HINTS = {
    "escape": "accepted after a like pattern: like 'text!%' escape '!'",
    "distinct": "accepted here: count(distinct x)",
}
