"""The custom resources ``StreamApp`` and ``Savepoint`` as values. Their CRDs are generated from these models."""

from headgate_operator.resources.release import Release, release_for
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointSpec, SavepointStatus
from headgate_operator.resources.spec import DeletionPolicy, RunState, StreamAppSpec, UpgradeMode
from headgate_operator.resources.status import Phase, Status

GROUP = "headgate.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "DeletionPolicy",
    "Phase",
    "Release",
    "RunState",
    "SavepointPhase",
    "SavepointReason",
    "SavepointSpec",
    "SavepointStatus",
    "Status",
    "StreamAppSpec",
    "UpgradeMode",
    "release_for",
]
