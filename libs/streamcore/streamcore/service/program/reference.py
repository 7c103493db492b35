"""Loads a program by its reference, ``module:topology`` or ``path/to/program.py:topology``.

What the reference names is a ``Topology``, or a function that returns one: without an argument, or with one that is
annotated with the model of its settings. The folder of the program goes on the module path of this process and of its
workers, because workers import the functions of a program by the name of their module.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError, StreamError
from streamcore.service.program.settings import ProgramSettings
from streamcore.wire.lanes import STATUS

if TYPE_CHECKING:
    from streamcore.topology.topology import Topology

_DEFAULT_NAME = "topology"
_PYTHONPATH = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded program. ``settings``: the model of its settings. ``make``: returns its topology; if it can be pickled
    (``is_function``), it makes others of streams whose documents are published while the program runs."""

    reference: str
    settings: type[ProgramSettings]
    make: Callable[[ProgramSettings], Topology]
    app_name: str | None
    is_function: bool = False

    def topology(self, settings: ProgramSettings) -> Topology:
        """Return the topology for these settings. ``ConfigError`` if the program cannot make it."""
        with _user_code(self.reference):
            made = self.make(settings)
        return _check_topology(self.reference, made)


def takes_documents(program: Program, topology: Topology) -> bool:
    """Return whether the app of a program takes documents of its streams while it runs, and answers on the lane of
    statuses: not if a lane of its own has that name."""
    return program.is_function and STATUS not in topology.lanes


def load_program(reference: str) -> Program:
    """Import the module of a program. ``ConfigError`` if that is not possible or it has no such topology."""
    from streamcore.topology.topology import Topology

    place, _, name = reference.rpartition(":") if ":" in reference else (reference, "", _DEFAULT_NAME)
    if not place or not name:
        raise ConfigError(f"program {reference!r}: write module:topology or path/to/program.py:topology")
    module = _import_file(reference, Path(place)) if place.endswith(".py") else _import_module(reference, place)
    found = getattr(module, name, None)
    if found is None:
        known = [attribute for attribute, value in vars(module).items() if isinstance(value, Topology)]
        hint = f"it has the topologies {', '.join(known)}" if known else "it has no topology either"
        raise ConfigError(f"program {reference}: {place} has no {name!r}; {hint}")
    if isinstance(found, Topology):
        topology = found  # the closure keeps the type
        return Program(reference, ProgramSettings, lambda _: topology, topology.name)
    if not callable(found) or isinstance(found, type):
        raise ConfigError(f"program {reference}: {name} is a {type(found).__name__}, not a Topology or a function")
    return _from_function(reference, found)


def _from_function(reference: str, function: Callable[..., Topology]) -> Program:
    parameters = [*inspect.signature(function).parameters.values()]
    if not parameters:
        with _user_code(reference):
            made = function()
        name = _check_topology(reference, made).name
        return Program(reference, ProgramSettings, _WithoutSettings(function), name, is_function=True)
    with _user_code(reference):
        model = typing.get_type_hints(function).get(parameters[0].name)
    if len(parameters) > 1 or not (isinstance(model, type) and issubclass(model, ProgramSettings)):
        raise ConfigError(
            f"program {reference}: the function takes ({', '.join(map(str, parameters))}); write a function without "
            "arguments, or with one that is annotated with a subclass of ProgramSettings"
        )
    return Program(reference, model, function, None, is_function=True)


@dataclass(frozen=True, slots=True)
class _WithoutSettings:
    """A function of a program that takes no settings."""

    function: Callable[[], Topology]

    def __call__(self, _: ProgramSettings) -> Topology:
        return self.function()


def _check_topology(reference: str, made: object) -> Topology:
    from streamcore.topology.topology import Topology

    if not isinstance(made, Topology):
        raise ConfigError(f"program {reference}: returned a {type(made).__name__}, not a Topology")
    return made


def _import_module(reference: str, name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        found = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a package in the name
        found = False
    if not found:
        raise ConfigError(
            f"program {reference}: there is no module {name} in {Path.cwd()} or on PYTHONPATH; for a file write "
            f"path/to/{name.rpartition('.')[2]}.py:topology"
        )
    with _user_code(reference):
        return importlib.import_module(name)


def _import_file(reference: str, path: Path) -> ModuleType:
    """Import a file by its stem, as Python does for modules in a folder on its path: so workers find it."""
    file = path.expanduser().absolute()
    if not file.is_file():
        raise ConfigError(f"program {reference}: there is no file {file}")
    _add_to_path(file.parent)
    with _user_code(reference):
        module = importlib.import_module(file.stem)
    origin = getattr(module, "__file__", None)
    if origin is None or Path(origin).resolve() != file.resolve():
        raise ConfigError(
            f"program {reference}: another module has the name {file.stem} ({origin or 'of Python'}); rename the file"
        )
    return module


def _add_to_path(folder: Path) -> None:
    """Put a folder first on the path of this process, and of the workers, which get it from the environment."""
    text = str(folder)
    if text not in sys.path:
        sys.path.insert(0, text)
    known = [entry for entry in os.environ.get(_PYTHONPATH, "").split(os.pathsep) if entry]
    if text not in known:
        os.environ[_PYTHONPATH] = os.pathsep.join([text, *known])


@contextmanager
def _user_code(reference: str) -> Iterator[None]:
    """Turn an error of the program into a ``ConfigError`` that names the line."""
    try:
        yield
    except StreamError as error:
        raise ConfigError(f"program {reference}: {_line(error)}{error}") from error
    except Exception as error:
        raise ConfigError(f"program {reference}: {_line(error)}{type(error).__name__}: {error}") from error


def _line(error: BaseException) -> str:
    """Return the last line of the user's code in the traceback; empty if there is none."""
    engine = str(Path(__file__).parents[2])
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((engine, sys.prefix, sys.base_prefix, "<"))
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
