"""What can be run on this machine: a program, or a settings document of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self  # a settings document is made of anything

if TYPE_CHECKING:
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.service.definition import ServiceDefinition


class Runnable(Protocol):
    """A process that can be run: a program, or a settings document of a service.

    ``arguments``: of the process, after its module. ``name_for_savepoints``: the name that savepoint commands use.
    """

    @property
    def service(self) -> ServiceDefinition[Any]: ...

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def settings(self) -> ServiceSettings: ...

    @property
    def folder(self) -> Path: ...

    @property
    def settings_file(self) -> Path: ...

    @property
    def module(self) -> str: ...

    @property
    def arguments(self) -> Sequence[str]: ...

    @property
    def name_for_savepoints(self) -> str: ...

    def save(self, **entries: object) -> Self:
        """Write the settings with further entries, and return it with them."""
        ...
