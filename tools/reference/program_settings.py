"""The settings and limits that a program sets in code: dataclasses, each field with a comment ``#:`` above it."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from inspect import getsource, isclass
from textwrap import dedent
from types import ModuleType
from typing import Any  # the default of a field is anything

import rulecore
import streamcore
from tools.reference.markdown import code, plain, section, table

#: How the classes of settings are named. Those that are described by pydantic are among the settings of services.
_NAMES = re.compile(r"(Limits|Settings|Config|Policy|Retries|Caching)\Z")
_COLUMNS = ("field", "type", "default", "description")
_PACKAGES = {
    streamcore: "A program that uses `streamcore` sets these in code, such as `Limits(events_per_cut=10_000)`. The "
    "services set some of them by their settings and leave the others as they are.",
    rulecore: "A program that uses `rulecore` sets these in code, such as `RuleLimits(rules=100)`. The rules service "
    "sets some of them by its settings and leaves the others as they are.",
}


def sections() -> Iterator[str]:
    """Yield the lines of a section for each package. ``ValueError`` for a field without a comment ``#:``."""
    for package, introduction in _PACKAGES.items():
        yield from section(f"Programs with {package.__name__}", introduction)
        for one in _classes(package):
            yield from (f"### {one.__name__}", "", plain(one.__doc__ or ""), "", *table(_COLUMNS, _rows(one)))


def _classes(package: ModuleType) -> list[type[Any]]:
    """Return the public dataclasses of settings and those in their fields, by name."""
    found: dict[str, type[Any]] = {}
    waiting = [getattr(package, name) for name in package.__all__ if _NAMES.search(name)]
    while waiting:
        one = waiting.pop()
        if isclass(one) and dataclasses.is_dataclass(one) and not hasattr(one, "__pydantic_fields__"):
            found[one.__name__] = one
            waiting += [field.default_factory for field in dataclasses.fields(one)]
    return [found[name] for name in sorted(found)]


def _rows(one: type[Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each field."""
    source = dedent(getsource(one))
    lines = source.splitlines()
    (declared,) = ast.parse(source).body
    assert isinstance(declared, ast.ClassDef)
    annotations = {
        node.target.id: node
        for node in declared.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for field in dataclasses.fields(one):
        node = annotations[field.name]
        if not (description := _comment_above(lines, node.lineno - 1)):
            raise ValueError(f"{one.__qualname__}.{field.name} has no description: write a comment #: above it")
        yield code(field.name), code(ast.unparse(node.annotation)), _default(field), plain(description)


def _comment_above(lines: list[str], index: int) -> str:
    """Return the text of the comment ``#:`` that ends above a line."""
    start = index
    while lines[start - 1].lstrip().startswith("#:"):
        start -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[start:index])


def _default(field: dataclasses.Field[Any]) -> str:
    if isclass(field.default_factory):  # dict, or a class of settings with defaults of its own
        return code("{}" if field.default_factory is dict else f"{field.default_factory.__name__}()")
    if field.default is dataclasses.MISSING:
        return "*required*"
    if isinstance(field.default, tuple):
        return code(f"({', '.join(one.__name__ if isclass(one) else repr(one) for one in field.default)})")
    return code(repr(field.default))
