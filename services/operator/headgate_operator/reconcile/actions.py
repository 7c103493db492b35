"""Actions that the shell performs after it has written the status. Each may run twice: the second time changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate_operator.resources.release import Release
from headgate_operator.resources.savepoint import SavepointReason, SavepointStatus
from streamcore.control.commands import Configure, Drain, Promote, TakeSavepoint, Verify


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """So that a deletion waits for us."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """The deletion may go on."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """A standby, with the settings of its release. ``against``: the savepoint that it plans against, or empty."""

    name: str
    release: Release
    against: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Exactly this one."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SendCommand:
    """Give a pod a request."""

    pod: str
    uid: str
    command: TakeSavepoint | Drain | Verify | Configure


@dataclass(frozen=True, slots=True)
class ReconfigureDriver:
    """Send a pod the settings of ``release``, as a new pod would read them, to apply without a restart."""

    pod: str
    uid: str
    command_id: str
    release: Release


@dataclass(frozen=True, slots=True)
class PromoteStandby:
    """Give a standby the checkpoint. The shell looks once more, past its cache, that nothing of another pod runs."""

    pod: str
    uid: str
    command: Promote


@dataclass(frozen=True, slots=True)
class CreateSavepoint:
    """The line in the ledger, before there is data."""

    name: str
    reason: SavepointReason


@dataclass(frozen=True, slots=True)
class UpdateSavepointStatus:
    """Record the result of a savepoint, only onto the version that was read."""

    name: str
    resource_version: str
    status: SavepointStatus


@dataclass(frozen=True, slots=True)
class DeleteSavepoint:
    """Mark it as going; its data goes next."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveSavepointFinalizer:
    """Its data is gone, or will stay: let go of the resource."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateCollector:
    """A pod that removes the data of savepoints, or with ``everything`` all that the app ever stored."""

    name: str
    release: Release
    savepoints: tuple[str, ...]
    everything: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCollector:
    """It has done its work."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An event on the app."""

    reason: str
    message: str
    warning: bool = False


Action = (
    AddFinalizer
    | RemoveFinalizer
    | CreatePod
    | DeletePod
    | SendCommand
    | ReconfigureDriver
    | PromoteStandby
    | CreateSavepoint
    | UpdateSavepointStatus
    | DeleteSavepoint
    | RemoveSavepointFinalizer
    | CreateCollector
    | DeleteCollector
    | EmitEvent
)
