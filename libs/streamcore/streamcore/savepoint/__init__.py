"""Savepoints: the whole state of an app after a batch, in a form that outlives its program, its cluster and its layout.

``manifest`` what it says of itself; ``folder`` where it lies, listed, verified and deleted; ``parts`` state as files;
``writing`` how it is taken; ``describe``, ``plan`` whether an app can go on from it; ``restoring`` its new checkpoint.
Knows no Spark and no Kafka: ``streamcore.spark.savepoints`` reads the state of a query and gives it back to one.
"""

from streamcore.savepoint.folder import Savepoint, Savepoints, apps, check_name, default_name
from streamcore.savepoint.manifest import AppDescription, SavepointManifest, StateTableDescription
from streamcore.savepoint.plan import ACCEPTABLE, REWIND, Decisions, Reason, RestorePlan, Verdict, plan

__all__ = [
    "ACCEPTABLE",
    "REWIND",
    "AppDescription",
    "Decisions",
    "Reason",
    "RestorePlan",
    "Savepoint",
    "SavepointManifest",
    "Savepoints",
    "StateTableDescription",
    "Verdict",
    "apps",
    "check_name",
    "default_name",
    "plan",
]
