"""The resource ``Savepoint``: a request to write a savepoint with this name to the storage, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from headgate_operator.resources.base import STORED, InstantMs, ResourceModel
from headgate_operator.resources.spec import Name
from streamcore.codes import Code


class SavepointReason(StrEnum):
    """Who or what requested a savepoint. Garbage collection removes only savepoints that the operator requested itself,
    and never the last one of a deleted app.
    """

    MANUAL = "manual"
    SCHEDULED = "scheduled"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    SUSPEND = "suspend"
    DELETION = "deletion"


class SavepointPhase(Code):
    """The progress of a savepoint."""

    PENDING = ("Pending", "The driver has not begun to write the savepoint yet.", "Nothing.")
    WRITING = ("Writing", "The driver is writing the files of the savepoint.", "Nothing.")
    COMPLETE = ("Complete", "All files are written; the savepoint can be restored.", "Nothing.")
    FAILED = (
        "Failed",
        "The savepoint could not be written; `message` says why.",
        "Correct the cause, delete the savepoint and create another one.",
    )


class SavepointSpec(ResourceModel):
    """A request for a savepoint; ``app`` names the ``StreamApp``."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "the spec of a savepoint cannot be changed"}
            ]
        }
    )

    app: Annotated[
        Name,
        Field(description="Name of the StreamApp of which a savepoint is requested."),
    ]
    reason: Annotated[
        SavepointReason,
        Field(description="Who or what requested it; the operator never removes a savepoint of a person (manual)."),
    ] = SavepointReason.MANUAL


@dataclass(frozen=True, slots=True)
class SavepointStatus:
    """The status of a savepoint, from the report of the driver."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    phase: Annotated[
        SavepointPhase,
        Field(description="Progress of the savepoint; only a Complete one can be restored."),
    ] = SavepointPhase.PENDING
    epoch: Annotated[int, Field(description="Epoch of the checkpoint from which it was written.")] = 0
    batch: Annotated[int, Field(description="Last batch that it contains.")] = 0
    size_bytes: Annotated[int, Field(description="Size of its files in bytes.")] = 0
    digest: Annotated[str, Field(description="Digest of its manifest.")] = ""
    version: Annotated[str, Field(description="Version of the app that wrote it.")] = ""
    location: Annotated[str, Field(description="Folder or s3:// location of its files.")] = ""
    completed: Annotated[InstantMs | None, Field(description="Time at which it was complete.")] = None
    message: Annotated[str, Field(description="Why it failed; empty otherwise.")] = ""
