"""What a running service must be able to do with savepoints, and nothing of how: a seam that one module fills.

Used by ``life``, from its own threads: ``plan``, ``verify``, ``admit`` and ``make`` before the app runs, ``create``
while it runs or after it has stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from streamcore.service.report import PlanSaid, SavepointSaid
from streamcore.service.requests import Go
from streamcore.service.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.spark.runner import Runner
    from streamcore.spark.start import Start

S = TypeVar("S", bound=ServiceSettings)


class Savepoints(Protocol):
    """Of one service, whose session is there or on its way. Every method raises ``StreamError`` when it cannot."""

    def plan(self, name: str) -> PlanSaid:
        """Can this version go on from the savepoint? Writes nothing and needs no ownership."""
        ...

    def verify(self, name: str) -> str:
        """Read all of a savepoint back, as a restore would; what was read, in words. Writes nothing."""
        ...

    def admit(self, go: Go) -> None:
        """Whether the checkpoint that is asked for is there or may be made. Writes nothing and needs no ownership."""
        ...

    def make(self, go: Go) -> None:
        """Make it, if it is not there. The caller owns it; when it cannot be made, what there is of it is removed."""
        ...

    def create(self, name: str, runner: Runner) -> SavepointSaid:
        """Write the savepoint: of the next batch boundary while the app runs, of what it stopped with after that.
        Blocks; a complete one of that name and batch is found and not written again."""
        ...


#: Makes it for a service. Called once the service's modules are imported.
SavepointsOf = Callable[[S, "Start"], Savepoints]
