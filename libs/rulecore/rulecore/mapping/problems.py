"""The problems of a document, collected, so that a user reads all of them at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rulecore.errors import ExpressionError
from rulecore.language import ListType, Scope, parse
from streamcore.errors import ConfigError
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type, array_of
from streamcore.service.config.faults import DocumentFault

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN = re.compile(r"unknown \w+ ([A-Za-z_][A-Za-z0-9_]*)")
#: The types that a field may have whose declaration is wrong, and how many combinations of them are tried.
_TYPES = (STRING, LONG, Type(Kind.DECIMAL, 9, 2), TIMESTAMP, BOOLEAN, DOUBLE, array_of(STRING), array_of(LONG))
_MOST_SCOPES = 512


@dataclass
class Problems:
    """Collects the problems of a document.

    ``unclear``: fields whose own declaration is wrong. An expression or an entry about one of them may be wrong for
    this reason alone, so it gives no further problem.
    """

    faults: list[DocumentFault] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)

    @property
    def lines(self) -> list[str]:
        """The problems as text, one line each; of an expression also the line with the mark below its wrong part."""
        return [f"  {line}" for fault in self.faults for line in fault.lines()]

    def add(self, path: str, message: str, *, about: str | None = None) -> None:
        """Add a problem. ``path``: the entry of the document, such as ``inputs.0.map.price``. ``about``: the name of
        the field that it is about; None for the last part of the path.
        """
        before, _, name = path.rpartition(".")
        if not before or (about or name) not in self.unclear:
            self.faults.append(DocumentFault(path, message))

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Add an ``ExpressionError`` or ``ConfigError`` raised in the block as a problem, and leave the block."""
        try:
            yield
        except ExpressionError as error:
            if (own := self._own_mistake(path, error)) is not None:
                self.faults.append(DocumentFault(path, own.message, own.hint, own.line, own.column, own.render()))
        except ConfigError as error:
            if path.startswith(("model.", "lists.")):  # a declaration, which is no consequence
                self.faults.append(DocumentFault(path, str(error)))
            else:
                self.add(path, str(error))

    def _own_mistake(self, path: str, error: ExpressionError) -> ExpressionError | None:
        """Return the mistake that an expression has whatever the unclear fields are; None if it may have none.

        The expression is parsed again with other types of these fields. If it is right with one of them, its error is
        a consequence of the wrong declaration.
        """
        names = sorted(self.unclear.intersection(_NAME.findall(error.text)))
        if not isinstance(error.scope, Scope):  # parsed, and of a type that does not fit
            return None if names or path.rpartition(".")[2] in self.unclear else error
        if not names:
            return error
        found: list[ExpressionError] = []
        for scope in _possible_scopes(error.scope, names, error.text):
            try:
                parse(error.text, scope, field=error.field, expect=None)
            except ExpressionError as again:
                found.append(again)
            else:
                return None
        unknown = [one for one in found if (match := _UNKNOWN.match(one.message)) and match[1] not in self.unclear]
        if unknown:
            return unknown[0]
        are_all = len(found) < _MOST_SCOPES and not any(re.search(rf"\b{name}\s*[.\[]", error.text) for name in names)
        certain = [one for one in found if are_all or _needs_no_types(one)]
        return max(certain, key=lambda one: one.start, default=None)

    def raise_if_any(self) -> None:
        """Raise ``ConfigError`` with all problems, if there are any."""
        if self.faults:
            raise ConfigError("\n".join(self.lines))


def _possible_scopes(scope: Scope, names: Sequence[str], text: str) -> Iterator[Scope]:
    """Yield scopes in which columns and lists of these names have one type after another, at most ``_MOST_SCOPES``."""
    listed = [name for name in names if f"'{name}'" in text]
    for kinds in itertools.islice(itertools.product(_TYPES, repeat=len(names) + len(listed)), _MOST_SCOPES):
        types = dict(zip(names, kinds, strict=False))
        values = dict(zip(listed, kinds[len(names) :], strict=True))
        lists = {**scope.lists, **{name: ListType(name, types[name], value) for name, value in values.items()}}
        if scope.arguments is None:
            yield replace(scope, columns={**scope.columns, **types}, lists=lists)
        else:
            outer = {name: types.get(name, kind) for name, kind in scope.columns.items()}
            yield replace(scope, columns=outer, arguments={**scope.arguments, **types}, lists=lists)


def _needs_no_types(error: ExpressionError) -> bool:
    """Whether the error is there without any columns, too, as that of a bracket that is not closed."""
    try:
        parse(error.text, Scope({}), expect=None)
    except ExpressionError as again:
        return (again.message, again.start) == (error.message, error.start)
    return False
