"""Savepoints: the whole state of an app after a batch, in a form that outlives its program, its cluster and its layout.

``manifest`` its description; ``repository`` savepoints listed, verified and deleted; ``state_files`` state as files;
``create`` how it is taken; ``app_description``, ``compatibility`` whether an app can go on from it; ``initial_state``,
``restore`` its new checkpoint; ``verify`` reading it back.
Knows no Spark and no Kafka: ``streamcore.spark.savepoint_writer`` reads the state of a query and gives it back to one.
"""

from streamcore.savepoint.compatibility import (
    ACCEPTABLE,
    REWIND,
    Compatibility,
    CompatibilityReport,
    Reason,
    RestoreDecisions,
    check_compatibility,
)
from streamcore.savepoint.manifest import AppDescription, SavepointManifest, StateTableDescription
from streamcore.savepoint.repository import Savepoint, SavepointRepository, apps, check_name, default_name

__all__ = [
    "ACCEPTABLE",
    "REWIND",
    "AppDescription",
    "Compatibility",
    "CompatibilityReport",
    "Reason",
    "RestoreDecisions",
    "Savepoint",
    "SavepointManifest",
    "SavepointRepository",
    "StateTableDescription",
    "apps",
    "check_compatibility",
    "check_name",
    "default_name",
]
