"""Operations on savepoints that a running service needs, without an implementation: a seam that one module fills.

Used by ``life``, from its own threads: ``plan``, ``verify``, ``admit`` and ``make`` before the app runs, ``create``
while it runs or after it has stopped.
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
    """Of one service, whose session is there or on its way. Every method raises ``StreamError`` when it cannot."""

    def plan(self, name: str) -> CompatibilityInfo:
        """Can this version go on from the savepoint? Writes nothing and needs no ownership."""
        ...

    def verify(self, name: str) -> str:
        """Read all of a savepoint back, as a restore would, and return a summary in words. Writes nothing."""
        ...

    def admit(self, go: Promote) -> None:
        """Whether the checkpoint that is asked for is there or may be made. Writes nothing and needs no ownership."""
        ...

    def make(self, go: Promote) -> None:
        """Create the checkpoint, if it does not exist. The caller owns it; a partial one is removed on failure."""
        ...

    def create(self, name: str, runner: Runner) -> SavepointInfo:
        """Write the savepoint: of the next batch boundary while the app runs, of its last batch after it has stopped.
        Blocks; a complete savepoint of that name and batch is found and not written again."""
        ...


#: Makes it for a service. Called once the service's modules are imported.
SavepointsFactory = Callable[[S, "Runtime"], Savepoints]
