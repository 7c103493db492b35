"""The commands on settings documents. A module makes its command once for each service that has it."""

from __future__ import annotations

from collections.abc import Mapping

_ALL = ("check", "run", "try")
_MORE = {"etl": ("diff", "explain", "graph", "init", "tables", "test"), "sessions": ("init", "tables")}


def import_paths(service: str) -> Mapping[str, str]:
    """Return the import paths of the commands that a service has, for ``LazyGroup``."""
    names = (*_ALL, *_MORE.get(service, ()))
    return {name: f"{__name__}.{'trial' if name == 'try' else name}:{service}" for name in names}
