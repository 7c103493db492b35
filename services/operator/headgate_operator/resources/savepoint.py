"""``Savepoint``: a line in the ledger of what can be restored. The data is the savepoint of the same name in the
storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict

from headgate_operator.resources.base import STORED, Document, InstantMs
from headgate_operator.resources.spec import Name


class SavepointReason(StrEnum):
    """Who asked for it. Only what the operator made by itself is collected by itself."""

    MANUAL = "manual"
    SCHEDULED = "scheduled"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    SUSPEND = "suspend"
    DELETION = "deletion"


class SavepointPhase(StrEnum):
    """Asked for, being written, there with all its files, or not to be had."""

    PENDING = "Pending"
    WRITING = "Writing"
    COMPLETE = "Complete"
    FAILED = "Failed"


class SavepointSpec(Document):
    """Ask for one by creating it: ``app`` names the ``StreamApp``."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a savepoint is written once"}]
        }
    )

    app: Name
    reason: SavepointReason = SavepointReason.MANUAL


@dataclass(frozen=True, slots=True)
class SavepointStatus:
    """What the driver said of it. ``digest``: of its manifest. ``location``: where its folder is."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    phase: SavepointPhase = SavepointPhase.PENDING
    epoch: int = 0
    batch: int = 0
    size_bytes: int = 0
    digest: str = ""
    version: str = ""
    location: str = ""
    completed: InstantMs | None = None
    message: str = ""
