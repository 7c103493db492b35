"""The protocol for the savepoints of a running service; ``spark_savepoints`` implements it.

``lifecycle`` calls ``plan``, ``verify``, ``admit`` and ``make`` before the app runs, and ``create`` while it runs or
after it has stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from streamcore.control.commands import Promote
from streamcore.control.status import CompatibilityInfo, SavepointInfo
from streamcore.service.config.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime

S = TypeVar("S", bound=ServiceSettings)


class Savepoints(Protocol):
    """Savepoints and checkpoints of one service. A method that fails raises ``StreamError``."""

    def plan(self, name: str) -> CompatibilityInfo:
        """Check whether the savepoint can be restored as this version of the app. Writes nothing, needs no lease."""
        ...

    def verify(self, name: str) -> str:
        """Read all files of a savepoint, as a restore would, and return a one-line summary. Writes nothing."""
        ...

    def admit(self, command: Promote) -> None:
        """Raise unless the checkpoint of the command exists or may be created. Writes nothing, needs no lease."""
        ...

    def make(self, command: Promote) -> None:
        """Create the checkpoint of the command, or check an existing one. The caller holds its lease, and removes a
        partial checkpoint on failure."""
        ...

    def create(self, name: str, runner: Runner) -> SavepointInfo:
        """Take a savepoint: at the next batch boundary while the app runs, of its last batch after it has stopped.

        Blocks until it is written. A complete savepoint with this name and batch is not written again.
        """
        ...


#: Creates the ``Savepoints`` of a service. Called once the service's modules are imported.
SavepointsFactory = Callable[[S, "Runtime"], Savepoints]
