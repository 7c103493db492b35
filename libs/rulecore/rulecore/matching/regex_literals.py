"""The texts of which a match of a regular expression must contain one.

The reader takes the part of Rust's syntax that RE2 reads with the same meaning: characters, escapes, classes without
nesting, groups, ``|``, repetition, anchors, and the flags i, m and s at the start. Of other patterns it says nothing.
It follows the prefilter of RE2 and the literal extraction of ``regex-syntax``, with small limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Final

_MOST: Final = 16  # texts that a part of a pattern is expanded to
_MOST_ALTERNATIVES: Final = 64
_PUNCTUATION: Final = frozenset("!\"#%&',-/:;=@_`~ \\.+*?()|[]{}^$")
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_COUNTED: Final = re.compile(r"\{([0-9]{1,4})(,?)([0-9]{0,4})\}")
_START: Final = re.compile(r"\(\?([ims]{1,3})\)")
_GROUP: Final = re.compile(r"\((?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")


@dataclass(frozen=True, slots=True)
class RequiredTexts:
    """The literals that a pattern needs. ``texts``: a match contains one of them; empty: nothing is known.

    ``folded``: they are in lower case, and the lower case of a text with a match contains one.
    """

    texts: tuple[str, ...]
    folded: bool


def required_texts(pattern: str) -> RequiredTexts | None:
    """Return the literals that a pattern needs; None if the reader does not know its syntax."""
    flags = ""
    while (match := _START.match(pattern)) is not None:
        flags += match[1]
        pattern = pattern[match.end() :]
    reader = _PatternReader(pattern, fold="i" in flags)
    try:
        part = reader.alternatives()
    except _UnknownSyntaxError:
        return None
    if reader.at < len(pattern) or not pattern.isascii():
        return None
    return RequiredTexts(part.must_contain or (), "i" in flags)


class _UnknownSyntaxError(Exception):
    """The pattern has syntax that is not read."""


@dataclass(frozen=True, slots=True)
class _PatternPart:
    """A part of a pattern. ``exact``: all texts that it matches, if they are few; ``needs``: texts of which it contains
    one."""

    exact: tuple[str, ...] | None
    needs: tuple[str, ...] | None = None

    @property
    def must_contain(self) -> tuple[str, ...] | None:
        """The better of both as texts of which one must be there; None if there are none."""
        return _better(self.needs, self.exact)


_ANYTHING: Final = _PatternPart(None)
_NOTHING: Final = _PatternPart(("",))


def _better(left: tuple[str, ...] | None, right: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the texts whose shortest one is longer. The empty text is always there, so it requires nothing."""
    usable = [texts for texts in (left, right) if texts and "" not in texts]
    return max(usable, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)


@dataclass(slots=True)
class _PatternReader:
    """Reads a pattern from ``at``."""

    pattern: str
    fold: bool
    at: int = 0

    def alternatives(self) -> _PatternPart:
        parts = [self.sequence()]
        while self.pattern.startswith("|", self.at):
            self.at += 1
            parts.append(self.sequence())
        if len(parts) == 1:
            return parts[0]
        exact: tuple[str, ...] | None = tuple(dict.fromkeys(text for part in parts for text in part.exact or ()))
        if any(part.exact is None for part in parts) or len(exact or ()) > _MOST:
            exact = None
        each = [part.must_contain for part in parts]
        needs = tuple(dict.fromkeys(text for texts in each for text in texts or ()))
        return _PatternPart(exact, needs if all(each) and len(needs) <= _MOST_ALTERNATIVES else None)

    def sequence(self) -> _PatternPart:
        run: tuple[str, ...] = ("",)
        best: tuple[str, ...] | None = None
        whole = True
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self.repeated()
            if part.exact is not None and len(part.exact) * len(run) <= _MOST:
                run = tuple(dict.fromkeys(left + right for left, right in product(run, part.exact)))
                continue
            whole = False
            best = _better(best, run)
            best = _better(best, part.must_contain)
            run = part.exact if part.exact is not None else ("",)
        return _PatternPart(run if whole else None, None if whole else _better(best, run))

    def repeated(self) -> _PatternPart:
        part = self.atom()
        while self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            sign = self.pattern[self.at]
            least, most = {"*": (0, 2), "+": (1, 2), "?": (0, 1), "{": (0, 0)}[sign]
            self.at += sign != "{"
            if sign == "{":
                match = _COUNTED.match(self.pattern, self.at)
                if match is None or (match[3] and not match[2]):
                    raise _UnknownSyntaxError
                self.at = match.end()
                least = int(match[1])
                most = least if not match[2] else int(match[3]) if match[3] else least + 2
            if self.pattern.startswith("?", self.at):
                self.at += 1
            elif self.at < len(self.pattern) and self.pattern[self.at] in "*+{":
                raise _UnknownSyntaxError
            if (least, most) == (0, 1) and part.exact is not None:
                part = _PatternPart(tuple(dict.fromkeys((*part.exact, ""))))
            elif (least, most) != (1, 1):
                part = _PatternPart(None, part.must_contain if least else None)
        return part

    def atom(self) -> _PatternPart:
        sign = self.pattern[self.at]
        if sign == "(":
            match = _GROUP.match(self.pattern, self.at)
            if match is None:
                raise _UnknownSyntaxError
            self.at = match.end()
            part = self.alternatives()
            if not self.pattern.startswith(")", self.at):
                raise _UnknownSyntaxError
            self.at += 1
            return part
        if sign == "[":
            return self.char_class()
        self.at += 1
        if sign == "\\":
            found = self.escape()
            return _ANYTHING if found is None else _NOTHING if found == "" else self.char(found)
        if sign in "*+?{}])":
            raise _UnknownSyntaxError
        return _NOTHING if sign in "^$" else _ANYTHING if sign == "." else self.char(sign)

    def char(self, char: str) -> _PatternPart:
        """Return a character; of one that ignores case, what stands for it in the lower case of a text."""
        if not self.fold:
            return _PatternPart((char,))
        # A long s is an s without regard to case, and is its own lower case. The lower case of the Kelvin sign is k.
        return _PatternPart(("s", "\u017f")) if char in "sS" else _PatternPart((char.lower(),))

    def escape(self) -> str | None:
        """Return the character of an escape behind its backslash, "" for a place, None for a class."""
        sign = self.pattern[self.at : self.at + 1]
        self.at += 1
        if sign in "dDwWsS" and sign:
            return None
        if sign in "AzbB" and sign:
            if self.pattern.startswith("{", self.at):
                raise _UnknownSyntaxError
            return ""
        if sign in _CONTROL:
            return _CONTROL[sign]
        if sign == "x" and (match := re.compile(r"[0-7][0-9A-Fa-f]").match(self.pattern, self.at)):
            self.at = match.end()
            return chr(int(match[0], 16))
        if sign not in _PUNCTUATION:
            raise _UnknownSyntaxError
        return sign

    def char_class(self) -> _PatternPart:
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        chars: list[str] | None = []
        first = True
        while not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern) or self.pattern[self.at] == "[":
                raise _UnknownSyntaxError
            if self.pattern[self.at : self.at + 2] in ("&&", "--", "~~"):
                raise _UnknownSyntaxError
            char: str | None = self.pattern[self.at]
            self.at += 1
            if char == "\\":
                char = self.escape()
                if char == "":
                    raise _UnknownSyntaxError
            elif char == "-" and not first and not self.pattern.startswith("]", self.at):
                char = None  # a range
            chars = None if chars is None or char is None or len(chars) == _MOST else [*chars, char]
            first = False
        if first:
            raise _UnknownSyntaxError
        self.at += 1
        if negated or chars is None:
            return _ANYTHING
        texts = [text for char in chars for text in self.char(char).exact or ()]
        return _PatternPart(tuple(dict.fromkeys(texts))) if len(texts) <= _MOST else _ANYTHING
