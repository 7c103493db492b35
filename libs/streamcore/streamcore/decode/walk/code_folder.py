"""The folder of the compiled code of the walk: one for each set of sources, version of numba and kind of processor.

``make setup`` and the build of the image fill it (``python -m streamcore.decode.walk``). Numba's own cache looks only
at the file of a function, and does not see a change in one that it calls.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
from pathlib import Path

import llvmlite
import llvmlite.binding
import numba

#: The processors of x86-64 since 2013 (Haswell) and 2015 (Excavator) have what this level asks for.
_COMMON = ("x86-64-v3", frozenset({"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}))


@functools.cache
def target() -> tuple[str, str]:
    """Return the name and the features of the processor that code is compiled for, as LLVM has them."""
    name, needed = _COMMON
    host = llvmlite.binding.get_host_cpu_features()
    if all(host.get(feature, False) for feature in needed):
        return name, ""
    return llvmlite.binding.get_host_cpu_name(), host.flatten()


@functools.cache
def folder() -> Path:
    """Return the folder: that of the environment of Python if it has the code or can be written, else the user's."""
    shared = _of_environment() / _digest()
    existing = next(parent for parent in (shared, *shared.parents) if parent.is_dir())
    if existing == shared or os.access(existing, os.W_OK):
        return shared
    home = os.path.expanduser("~")  # the tilde, if this user has no home
    return Path(home) / ".cache" / "streamcore" / "compiled" / _digest() if os.path.isabs(home) else shared


def remove_others() -> None:
    """Remove the folders of other sources from the environment."""
    for other in _of_environment().glob("*"):
        if other.name != _digest():
            shutil.rmtree(other, ignore_errors=True)


def _of_environment() -> Path:
    return Path(sys.prefix) / "share" / "streamcore" / "compiled"


@functools.cache
def _digest() -> str:
    versions = (numba.__version__, llvmlite.__version__, sys.version_info[:2], *target())
    made_of = hashlib.sha256(repr(versions).encode())
    package = Path(__file__).parent
    for source in sorted(package.rglob("*.py")):
        made_of.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return made_of.hexdigest()[:16]
