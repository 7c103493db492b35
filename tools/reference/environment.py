"""The page of the environment variables, from the ``EnvironmentVariable`` values of all modules of the product.

A module that reads a variable by a name without a declaration is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from inspect import getsource
from types import ModuleType

from streamcore.environment import EnvironmentVariable
from tools.reference.markdown import code, head, section, table
from tools.reference.packages import modules

_INTRODUCTION = (
    "No setting of a service is read from the environment. The variables describe where a process runs, hold the "
    "logins of client libraries, and replace defaults of options of the command."
)
_READERS = (
    "*Services* are the drivers and executors of rules, etl, sessions and search. *Python workers* are the processes "
    "that Spark starts for tasks. *Command* is `headgate`. A variable is read by Headgate's own code or by a "
    "library in the process. The value of a variable that is marked *secret* must not be printed or committed."
)
_NAMED = (
    "A setting whose name ends in `_env` has the name of a variable that holds a secret, such as `kafka.password_env`; "
    "`delta.storage.secret_env` names one for each storage option. [Settings](settings.md) lists them. The name is "
    "free; the variable must be set in each process that opens the connection, on driver and executors. An empty value "
    "counts as missing."
)
_LIBRARIES = (
    "Libraries read further variables, which Headgate does not use itself: OpenTelemetry's `OTEL_...`, those of the "
    "clients of S3 (`AWS_...`), and Spark's `SPARK_...`. Their own documentation lists them."
)
_COLUMNS = ("name", "read by", "default", "description")
#: Names of mappings of environment variables in the code, and methods that read from them.
_MAPPINGS, _METHODS = ("environ", "environment"), ("get", "setdefault", "pop")


def page() -> str:
    """Return the page. ``ValueError`` for a variable that is read and not declared."""
    found = list(modules())
    if undeclared := sorted({f"{module.__name__}: {name}" for module in found for name in _undeclared(module)}):
        raise ValueError(f"{', '.join(undeclared)}: declare each as a streamcore.environment.EnvironmentVariable")
    declared = {id(one): one for module in found for one in _declared(vars(module).values())}.values()
    lines = head("Environment variables", _INTRODUCTION, _READERS)
    lines += table(_COLUMNS, map(_row, sorted(declared, key=lambda one: (one, one.readers))))
    lines += section("Variables that settings name", _NAMED)
    lines += section("Variables of libraries", _LIBRARIES)
    return "\n".join(lines)


def _row(variable: EnvironmentVariable) -> tuple[str, ...]:
    description = f"{variable.description} *Secret.*" if variable.secret else variable.description
    return code(str(variable)), ", ".join(variable.readers), variable.default, description


def _declared(values: Iterable[object]) -> Iterator[EnvironmentVariable]:
    for value in values:
        if isinstance(value, EnvironmentVariable):
            yield value
        elif isinstance(value, tuple):
            yield from (one for one in value if isinstance(one, EnvironmentVariable))


def _undeclared(module: ModuleType) -> Iterator[str]:
    """Yield the names of variables that a module reads as literals, or gives to an option of the command."""
    source = getsource(module)
    if not any(word in source for word in ("environ", "getenv", "envvar")):
        return
    for node in ast.walk(ast.parse(source)):
        name: ast.expr | None = None
        match node:
            case ast.Call(func=ast.Attribute(value=mapping, attr=method), args=[first, *_]) if method in _METHODS:
                name = first if _is_environment(mapping) else None
            case ast.Call(func=ast.Attribute(attr="getenv") | ast.Name(id="getenv"), args=[first, *_]):
                name = first
            case ast.Subscript(value=mapping, slice=ast.Constant() as index) if _is_environment(mapping):
                name = index
            case ast.keyword(arg="envvar", value=value):
                name = value
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value:
            yield name.value


def _is_environment(mapping: ast.expr) -> bool:
    match mapping:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _MAPPINGS
    return False
