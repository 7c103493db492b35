"""The part of a kernel without state that every such kernel has."""

from __future__ import annotations

from streamcore.state import StateTable
from streamcore.state.scope import TableScope


class StatelessKernel:
    """A kernel without tables; a subclass adds ``step``."""

    def tables(self) -> dict[str, StateTable]:
        return {}

    def table(self, name: str) -> StateTable:
        raise KeyError(name)

    def scope(self, name: str) -> TableScope:
        raise KeyError(name)

    def on_state_loaded(self) -> None:
        """Nothing to do."""
