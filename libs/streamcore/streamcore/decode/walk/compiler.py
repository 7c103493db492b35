"""Compiles the functions of the walk with numba, and keeps the compiled code of those that are called from outside.

Numba counts the references to every array at every call, which takes most of the time of small functions. The functions
here allocate nothing, so this is off (``_nrt``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import caching, config

from streamcore.decode.walk import code_folder

_LOG = logging.getLogger(__name__)
_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The functions that this process has compiled, because the folder did not have their code.
compiled_here: list[str] = []

if config.CPU_NAME is None:
    # Not the processor of this machine, so that an image runs on others without compiling.
    config.CPU_NAME, config.CPU_FEATURES = code_folder.target()


def compiled(function: _Function) -> _Function:
    """Compile a function that other compiled functions call."""
    made: _Function = numba.njit(**_OPTIONS)(function)
    return made


def inlined(function: _Function) -> _Function:
    """Compile a function into each of those that call it."""
    made: _Function = numba.njit(**_OPTIONS, forceinline=True)(function)
    return made


def entry(signature: str) -> Callable[[_Function], _Function]:
    """Compile a function that Python calls, for arguments of these types, or load its code from the folder."""

    def decorate(function: _Function) -> _Function:
        if config.DISABLE_JIT:
            return function
        dispatcher: Any = numba.njit(**_OPTIONS)(function)
        dispatcher._cache = _FolderCache(function)
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        made: _Function = dispatcher
        return made

    return decorate


class _Folder(caching._CacheLocator):  # type: ignore[misc]
    """The folder of the code. Its name has the digest of all sources, so the code in it is never stale."""

    def get_cache_path(self) -> str:
        return str(code_folder.folder())

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return "0"

    @classmethod
    def from_function(cls, _function: object, _file: object) -> _Folder:
        return cls()


class _FolderCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Folder,)


class _FolderCache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache in the folder. It may be read-only."""

    _impl_class = _FolderCacheImpl

    def load_overload(self, signature: Any, target: Any) -> Any:
        found = super().load_overload(signature, target)
        if found is None:
            name = self._py_func.__name__
            compiled_here.append(name)
            _LOG.warning("compiling %s: no code of it in %s; this takes seconds", name, self.cache_path)
        return found

    def save_overload(self, signature: Any, compiled_code: Any) -> None:
        try:
            super().save_overload(signature, compiled_code)
        except OSError as error:
            _LOG.warning("the compiled code is not kept: %s; each process compiles it", error)
