"""Savepoints: the state of an app after a batch, portable between program versions, clusters and layouts.

``manifest`` describes a savepoint; ``repository`` lists, reads and deletes savepoints; ``state_files`` writes the state
of a shard as a file; ``create`` takes a savepoint; ``app_description`` and ``compatibility`` check whether an app can
be restored from it; ``restore`` and ``initial_state`` create a checkpoint from it; ``verify`` reads it back. Uses
neither Spark nor Kafka: ``streamcore.spark.savepoint_writer`` reads the state of a query.
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
