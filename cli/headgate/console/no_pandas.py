"""Keeps pandas from being loaded where nothing needs it: pyarrow would, for a second, only to know its types.

Code that starts Spark, or builds an app for it, unblocks pandas first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _Ban:
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("the command does without pandas", name=name)


def block() -> None:
    """For this process."""
    sys.meta_path.insert(0, _Ban())


def unblock() -> None:
    """From here on it may be loaded."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Ban)]
