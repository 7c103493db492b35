"""Prevents the import of pandas: pyarrow would import it, for up to a second, only to recognize its types.

Imports no heavy modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _PandasBlocker:
    """An import finder that raises ``ModuleNotFoundError`` for pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("this process runs without pandas", name=name)


def block() -> None:
    """Prevent the import of pandas in this process."""
    sys.meta_path.insert(0, _PandasBlocker())


def unblock() -> None:
    """Allow the import of pandas again."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _PandasBlocker)]


def hide_from_pyarrow() -> None:
    """Have pyarrow find no pandas, unless it has looked for it already: it looks once. Other modules may import it."""
    block()
    try:
        import pyarrow as pa

        pa.array([])
    finally:
        unblock()
