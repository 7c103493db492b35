"""Actions that the runtime performs after it has written the status. Performing one twice changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_operator.resources.release import Release
from headgate_operator.resources.savepoint import SavepointReason, SavepointStatus
from streamcore.control.commands import Configure, Drain, Promote, TakeSavepoint, Verify


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the operator's finalizer, so that a deletion of the app waits for the operator."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the operator's finalizer, so that the deletion of the app completes."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a driver pod, which starts as a standby, and the objects that it needs.

    ``savepoint``: the savepoint that the standby checks its compatibility with; empty for none.
    """

    name: str
    release: Release
    savepoint: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this name and uid."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SendCommand:
    """Send a command to a driver pod."""

    pod: str
    uid: str
    command: TakeSavepoint | Drain | Verify | Configure


@dataclass(frozen=True, slots=True)
class ReconfigureDriver:
    """Send a driver pod the settings of ``release``, as a new pod would read them, to apply without a restart."""

    pod: str
    uid: str
    command_id: str
    release: Release


@dataclass(frozen=True, slots=True)
class PromoteStandby:
    """Promote a standby. The runtime first checks with the API server that no container of another driver pod runs."""

    pod: str
    uid: str
    command: Promote


@dataclass(frozen=True, slots=True)
class CreateSavepoint:
    """Create the ``Savepoint`` resource. The driver writes the data afterwards."""

    name: str
    reason: SavepointReason


@dataclass(frozen=True, slots=True)
class UpdateSavepointStatus:
    """Write the status of a ``Savepoint`` resource, if ``resource_version`` is still its newest version."""

    name: str
    resource_version: str
    status: SavepointStatus


@dataclass(frozen=True, slots=True)
class DeleteSavepoint:
    """Delete the ``Savepoint`` resource; the operator's finalizer keeps it until its data is removed."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveSavepointFinalizer:
    """Remove the operator's finalizer from a savepoint whose data is removed, or will not be removed."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateCollector:
    """Create a pod that removes the data of savepoints, or with ``everything`` all data that the app has stored."""

    name: str
    release: Release
    savepoints: tuple[str, ...]
    everything: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCollector:
    """Delete a pod that has finished removing data."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Emit a Kubernetes event about the app."""

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
