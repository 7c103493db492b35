"""Turns text into lexemes: the first half of parsing.

Tokens become operands (column names, constants, intervals), function names, and a fixed set of operators and keywords.
Everything else is rejected at its position: comments, semicolons, subqueries, casts, hints. Brackets
and nesting are checked too (``brackets``), before the recursive parser runs. Names are resolved by ``type_checker``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

from rulecore.errors import ExpressionError
from rulecore.language.limits import ExpressionLimits
from rulecore.language.parsing.brackets import BracketChecker
from rulecore.language.parsing.lexemes import KEYWORDS, SYMBOLS, Lexeme, LexemeKind, foreign_hint
from rulecore.language.parsing.literals import interval_ms, parse_number, string_value, timestamp_ms
from rulecore.language.parsing.tokenizer import Token, TokenKind, tokenize

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPACE = " \t\r\n"
_WORD_HINTS = {
    "escape": "accepted after a like pattern: like 'text!%' escape '!'",
    "distinct": "accepted here: count(distinct x)",
}


class Lexer:
    """Turns one text into lexemes."""

    def __init__(self, text: str, field: str, limits: ExpressionLimits) -> None:
        self.text, self.field, self.limits = text, field, limits
        self.lexemes: list[Lexeme] = []

    def error(self, message: str, start: int, end: int, hint: str = "") -> ExpressionError:
        """Return an error at the characters from ``start`` to ``end``."""
        return ExpressionError(
            message, field=self.field, text=self.text, start=start, length=max(1, end - start), hint=hint
        )

    def scan(self) -> list[Lexeme]:
        """Return all lexemes; raise ``ExpressionError`` for text that is not of the language."""
        self._check_text()
        tokens = self._tokens()
        index = 0
        while index < len(tokens):
            index += self._add_lexeme(tokens, index)
        if not self.lexemes:
            raise self.error("the expression is empty", 0, 1, "accepted here: a condition, such as amount > 100")
        checker = BracketChecker(self.text, self.lexemes, self.limits.depth, self.error)
        checker.match_brackets()
        checker.check_neighbours()
        return self.lexemes

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
            tokens = tokenize(self.text)
        except ValueError:
            raise self._unclosed_quote() from None
        end = 0
        for token in tokens:
            self._check_gap(end, token.start)
            end = max(end, token.end)
        self._check_gap(end, len(self.text))
        return tokens

    def _unclosed_quote(self) -> ExpressionError:
        """Return the error for text that the tokenizer rejects: it has a quote that is not closed."""
        for quote in ("'", '"', "`"):
            if self.text.count(quote) % 2:
                start = self.text.rfind(quote)
                return self.error(f"the quote {quote} is never closed", start, len(self.text))
        return self.error("the text cannot be split into words", 0, len(self.text))

    def _check_gap(self, start: int, end: int) -> None:
        gap = self.text[start:end]
        if rest := gap.strip(_SPACE):
            at = start + gap.index(rest)
            raise self.error("comments are not accepted", at, at + len(rest), "a minus before a minus: a - (-1)")

    def _add_lexeme(self, tokens: list[Token], index: int) -> int:
        """Add the lexeme that begins with the token at ``index``, and return the number of its tokens."""
        token = tokens[index]
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        match token.kind:
            case TokenKind.STRING | TokenKind.RAW:
                return self._add_string(tokens, index)
            case TokenKind.NUMBER:
                self._add_constant(token, parse_number(self.text[token.start : token.end]))
            case TokenKind.QUOTED:
                self._add(LexemeKind.NAME, token.text.lower(), token.start, token.end)
            case _ if (member := self._member(tokens, index)) is not None:
                self._add(LexemeKind.MEMBER, member.text, token.start, member.end)
                return 2
            case _ if _WORD.match(token.text):
                return self._add_word(token, following, tokens, index)
            case _:
                self._add_symbol(token)
        return 1

    def _add_symbol(self, token: Token) -> None:
        if token.text in ("(", ")", ","):
            self._add(LexemeKind.OPERATOR, token.text, token.start, token.end)
            return
        if token.text == "*" and self.lexemes and self.lexemes[-1].text == "(" and self._opened_function() == "count":
            self._add(LexemeKind.STAR, "*", token.start, token.end)
            return
        if token.text not in SYMBOLS:
            shown = self.text[token.start : token.end]
            raise self.error(f"{shown} is not accepted", token.start, token.end, foreign_hint(token.text))
        self._add(LexemeKind.OPERATOR, SYMBOLS[token.text], token.start, token.end)

    def _add_word(self, token: Token, following: Token | None, tokens: list[Token], index: int) -> int:
        word = token.text.lower()
        is_string = following is not None and following.kind in (TokenKind.STRING, TokenKind.RAW)
        if word == "escape" and is_string:
            return self._add_escape(tokens, index)
        if word == "timestamp" and is_string:
            return self._add_timestamp(tokens, index)
        if word == "interval" and (is_string or (following is not None and following.kind is TokenKind.NUMBER)):
            return self._add_interval(tokens, index)
        if word == "as" and self._enclosing_function() in ("cast", "try_cast"):
            return self._add_type(tokens, index)
        if word == "distinct" and self.lexemes and self.lexemes[-1].text == "(" and self._opened_function() == "count":
            self.lexemes[-2] = replace(self.lexemes[-2], distinct=True)
        elif word in ("true", "false"):
            self._add_constant(token, word == "true")
        elif word == "null" and not self._after_is():
            self._add(LexemeKind.NULL, word, token.start, token.end)
        elif word in KEYWORDS - {"escape", "distinct"}:
            self._add(LexemeKind.OPERATOR, word, token.start, token.end)
        elif word in KEYWORDS:
            raise self.error(f"{word} is not accepted here", token.start, token.end, _WORD_HINTS[word])
        elif following is not None and following.text == "(" and following.kind is TokenKind.OTHER:
            self._add(LexemeKind.FUNCTION, word, token.start, token.end)
        else:
            self._add(LexemeKind.NAME, word, token.start, token.end)
        return 1

    def _member(self, tokens: list[Token], index: int) -> Token | None:
        """Return the token of the name in ``.name`` behind an operand, if the token at ``index`` is that dot."""
        if index == 0 or index + 1 >= len(tokens) or tokens[index].text != "." or not self.lexemes:
            return None
        before, dot, name = tokens[index - 1 : index + 2]
        adjacent = before.end == dot.start and dot.end == name.start and self.lexemes[-1].ends_operand()
        is_name = name.kind is TokenKind.QUOTED or (name.kind is TokenKind.OTHER and _WORD.match(name.text))
        return name if adjacent and is_name else None

    def _opened_function(self) -> str:
        """Return the name of the function before the bracket that the last lexeme opens, else ""."""
        return self.lexemes[-2].text if len(self.lexemes) > 1 and self.lexemes[-2].kind is LexemeKind.FUNCTION else ""

    def _enclosing_function(self) -> str:
        """Return the name of the function whose brackets are open, else ""."""
        closed = 0
        for place in range(len(self.lexemes) - 1, 0, -1):
            closed += self.lexemes[place].is_operator(")") - self.lexemes[place].is_operator("(")
            if closed < 0:
                before = self.lexemes[place - 1]
                return before.text if before.kind is LexemeKind.FUNCTION else ""
        return ""

    def _add_type(self, tokens: list[Token], index: int) -> int:
        """Add the type of ``cast(x as type)`` as a second argument: the text up to the bracket that ends the call."""
        opened, count = 0, 1
        for token in tokens[index + 1 :]:
            if token.text == ")" and not opened:
                break
            opened += (token.text == "(") - (token.text == ")")
            count += 1
        of_type = tokens[index + 1 : index + count]
        if not of_type:
            raise self.error("a type is missing after as", tokens[index].start, tokens[index].end, "such as long")
        start, end = of_type[0].start, of_type[-1].end
        self._add(LexemeKind.OPERATOR, ",", tokens[index].start, tokens[index].end)
        self._add(LexemeKind.CONSTANT, self.text[start:end], start, end, self.text[start:end])
        return count

    def _after_is(self) -> bool:
        last = self.lexemes[-2:]
        return bool(last) and (last[-1].is_operator("is") or (len(last) > 1 and last[0].is_operator("is")))

    def _read_string(self, tokens: list[Token], index: int) -> tuple[str, int, int]:
        """Return value, end and number of tokens of a string; two quotes in it are one quote, as in Spark 4."""
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

    def _add_string(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._read_string(tokens, index)
        self._add(LexemeKind.CONSTANT, self.text[tokens[index].start : end], tokens[index].start, end, value)
        return count

    def _add_escape(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._read_string(tokens, index + 1)
        last = self.lexemes[-1] if self.lexemes else None
        if last is None or not isinstance(last.value, str) or len(value) != 1 or last.escape is not None:
            raise self.error(
                "escape takes one character", tokens[index].start, end, "accepted here: like 'text!%' escape '!'"
            )
        self.lexemes[-1] = replace(last, escape=value, end=end)
        return 1 + count

    def _add_timestamp(self, tokens: list[Token], index: int) -> int:
        value, end, count = self._read_string(tokens, index + 1)
        ms = timestamp_ms(value)
        start = tokens[index].start
        if ms is None:
            raise self.error(f"{value!r} is no timestamp", start, end, "accepted here: timestamp '2011-01-31 12:00:00'")
        self._add(LexemeKind.TIMESTAMP, self.text[start:end], start, end, ms)
        return 1 + count

    def _add_interval(self, tokens: list[Token], index: int) -> int:
        start, amount = tokens[index].start, tokens[index + 1]
        end, count = amount.end, 1
        words = [self.text[amount.start : amount.end]]
        if amount.kind is not TokenKind.NUMBER:
            value, end, count = self._read_string(tokens, index + 1)
            words = value.split()
        if len(words) == 1 and index + 1 + count < len(tokens):
            unit = tokens[index + 1 + count]
            words.append(unit.text)
            end, count = unit.end, count + 1
        ms = interval_ms(words)
        if ms is None:
            hint = "accepted here: interval 5 minutes (milliseconds to weeks)"
            raise self.error(f"{self.text[start:end]} is no interval", start, end, hint)
        self._add(LexemeKind.INTERVAL, self.text[start:end], start, end, ms)
        return 1 + count

    def _add_constant(self, token: Token, value: bool | int | float | Decimal | None) -> None:
        shown = self.text[token.start : token.end]
        if value is None:
            hint = "accepted here: 100, 10.5 or 1.5e3; a time is interval 90 days"
            raise self.error(f"{shown} is no number", token.start, token.end, hint)
        self._add(LexemeKind.CONSTANT, shown, token.start, token.end, value)

    def _add(
        self, kind: LexemeKind, text: str, start: int, end: int, value: bool | int | float | Decimal | str | None = None
    ) -> None:
        self.lexemes.append(Lexeme(kind, text, start, end, value))
