"""Paths of fields in the records of a topic: ``customer.address.city``.

Names are separated by dots. A name that has a dot, a backquote or white space is in backquotes, as Spark SQL writes it;
a backquote in it is written twice. On its way a path goes through objects only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamcore.errors import ConfigError

MAX_DEPTH = 16
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_PLAIN = re.compile(r"[^`.\s]+\Z")

Path = tuple[str, ...]


def parse_path(text: str) -> Path:
    """Return the names of a path; ``ConfigError`` for a text that is none."""
    names: list[str] = []
    at = 0
    while match := _NAME.match(text, at):
        quoted, plain = match.groups()
        names.append(plain or quoted.replace("``", "`"))
        at = match.end()
        if at == len(text):
            if len(names) > MAX_DEPTH:
                raise ConfigError(f"path {text!r}: more than {MAX_DEPTH} names")
            return tuple(names)
        if text[at] != ".":
            break
        at += 1
    raise ConfigError(f"path {text!r}: at character {at + 1}: write names with dots between them, such as a.b or `a.b`")


def format_path(path: Sequence[str]) -> str:
    """Return the text of a path."""
    return ".".join(name if _PLAIN.match(name) else f"`{name.replace('`', '``')}`" for name in path)


@dataclass(frozen=True, slots=True)
class PathTree:
    """What is read of an object, by name: the field with this number, or what is read of the object inside."""

    inside: Mapping[str, int | PathTree] = field(default_factory=dict)

    def numbers(self) -> Iterator[int]:
        """Return the numbers of all fields."""
        for one in self.inside.values():
            if isinstance(one, PathTree):
                yield from one.numbers()
            else:
                yield one


def build_tree(paths: Iterable[Path]) -> PathTree:
    """Return the tree of the paths of fields 0, 1, ...; ``ConfigError`` if one equals another, or contains it."""
    known = [*paths]
    root: dict[str, int | PathTree] = {}
    for number, path in enumerate(known):
        node = root
        for name in path[:-1]:
            inner = node.setdefault(name, PathTree({}))
            if not isinstance(inner, PathTree):
                raise ConfigError(
                    f"path {format_path(path)} goes through {format_path(known[inner])}, which is a field"
                )
            assert isinstance(inner.inside, dict)
            node = inner.inside
        if path[-1] in node:
            found = node[path[-1]]
            other = known[found] if isinstance(found, int) else known[next(found.numbers())]
            raise ConfigError(
                f"path {format_path(path)} is that of another field, or contains one: {format_path(other)}"
            )
        node[path[-1]] = number
    return PathTree(root)
