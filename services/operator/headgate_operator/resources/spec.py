"""The spec of a ``StreamApp``. The CRD is generated from these models and their validation rules (CEL)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from headgate_operator.resources.base import DurationMs, FreeObject, ResourceModel

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_MODULE = r"^([A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*)?$"
Count = Annotated[int, Field(ge=0, le=1_000)]
Positive = Annotated[int, Field(ge=1, le=10_000)]
Name = Annotated[str, Field(pattern=_LABEL, max_length=63)]
NameOrNone = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]


#: A name, or a folder and a name. As a key of a ConfigMap the name has ``..`` in place of the slash.
FILE_NAME = r"^([a-z0-9]+([._-][a-z0-9]+)*/)?[a-z0-9]+([._-][a-z0-9]+)*$"
MAX_FILES = 50
#: A resource may have 1.5 MiB, and contains the files up to four times: in the spec, in the copy of the spec that
#: ``kubectl apply`` stores, and in the old and the new release of an upgrade.
FILES_BYTES = 192 * 1024
_FILES_RULES: list[JsonValue] = [
    {
        "rule": f"self.all(name, size(name) <= 120 && name.matches('{FILE_NAME}'))",
        "message": "a file's name is of a-z, 0-9, and . _ - between them, with one folder before it at most",
    },
    {
        "rule": f"self.map(name, size(self[name])).sum() <= {FILES_BYTES}",
        "message": f"files are at most {FILES_BYTES} bytes together",
    },
]


def _check_files(files: dict[str, str]) -> dict[str, str]:
    for name in files:
        if len(name) > 120 or not re.fullmatch(FILE_NAME, name):
            raise ValueError(f"{name!r}: a file's name is of a-z, 0-9, and . _ - between them, with one folder at most")
    if len(files) > MAX_FILES or sum(len(text.encode()) for text in files.values()) > FILES_BYTES:
        raise ValueError(f"at most {MAX_FILES} files, of {FILES_BYTES} bytes together")
    return files


Files = Annotated[
    dict[str, str],
    AfterValidator(_check_files),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_FILES,
            "additionalProperties": {"type": "string", "maxLength": FILES_BYTES},
            "x-kubernetes-validations": _FILES_RULES,
        }
    ),
]


class UpgradeMode(StrEnum):
    """The state that a new version starts from."""

    SAVEPOINT = "savepoint"
    IN_PLACE = "in-place"
    STATELESS = "stateless"


class RollbackPolicy(StrEnum):
    """Whether the operator rolls back a failed version by itself, or leaves the decision to a person."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class StopTimeout(StrEnum):
    """What happens if the old version does not stop in time: it runs on (keep), or is restarted and drained once
    more."""

    KEEP = "keep"
    FINISH_BATCH = "finishBatch"


class RunState(StrEnum):
    """Whether the app is to run."""

    RUNNING = "running"
    SUSPENDED = "suspended"


class DeletionPolicy(StrEnum):
    """What happens to the data of a deleted app: a last savepoint is taken, the data stays as it is, or it is
    removed."""

    SAVEPOINT = "savepoint"
    RETAIN = "retain"
    PURGE = "purge"


class CheckpointSpec(ResourceModel):
    """Storage of the app's state: a folder that driver and executors mount, or ``s3://bucket/prefix``."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": "self.root == oldSelf.root", "message": "checkpoint.root is fixed for the app's life"}
            ]
        }
    )

    root: Annotated[
        Annotated[str, Field(min_length=1, max_length=512)],
        Field(
            description="Folder of the checkpoint, mounted in the driver and its executors, or s3://bucket/prefix; "
            "fixed for "
            "the life of the app."
        ),
    ]
    savepoints: Annotated[
        Annotated[str, Field(max_length=512)],
        Field(
            description="Folder of the savepoints of all apps, or s3://bucket/prefix; empty: the folder savepoints "
            "below "
            "root."
        ),
    ] = ""
    claim: Annotated[
        NameOrNone,
        Field(description="PersistentVolumeClaim to mount at root; empty: nothing is mounted."),
    ] = ""


class ProofSpec(ResourceModel):
    """The proof that a new version must give before it is stable: enough committed batches in time, and a lag of at
    most ``lag_rows``, or at most the lag at the start of the proof."""

    batches: Annotated[
        Positive,
        Field(description="Number of batches that a new version must commit before it is stable."),
    ] = 5
    within: Annotated[
        DurationMs,
        Field(description="Time in which the proof must succeed, such as 180s; after that the upgrade is rolled back."),
    ] = 180_000
    lag_rows: Annotated[
        Annotated[int, Field(ge=0)],
        Field(
            description="Lag in rows that is acceptable at the end of the proof; a lag that existed at its start is "
            "acceptable too."
        ),
    ] = 1_000


class UpgradeSpec(ResourceModel):
    """How a new version replaces the old one."""

    mode: Annotated[
        UpgradeMode,
        Field(
            description="Start of a new version: from a savepoint of the old one (savepoint), from the same checkpoint "
            "(in-"
            "place), or with empty state (stateless)."
        ),
    ] = UpgradeMode.SAVEPOINT
    prepare_deadline: Annotated[
        DurationMs,
        Field(
            description="Time for the standby of the new version to become ready, such as 300s; after that the upgrade "
            "is "
            "rejected and the old version runs on."
        ),
    ] = 300_000
    stop_deadline: Annotated[
        DurationMs,
        Field(description="Time for the old version to drain and write its savepoint, such as 120s."),
    ] = 120_000
    on_stop_timeout: Annotated[
        StopTimeout,
        Field(
            description="Reaction to an old version that does not stop in time: keep runs it on, finishBatch restarts "
            "it and "
            "drains it once more."
        ),
    ] = StopTimeout.KEEP
    start_deadline: Annotated[
        DurationMs,
        Field(
            description="Time for the new version to restore and commit its first batch, such as 300s; after that the "
            "upgrade "
            "is rolled back."
        ),
    ] = 300_000
    proof: Annotated[
        ProofSpec,
        Field(description="Conditions that a new version must fulfil to be stable."),
    ] = ProofSpec()
    rollback: Annotated[
        RollbackPolicy,
        Field(
            description="Whether a failed version is replaced by the one before automatically, or only by a person "
            "(manual)."
        ),
    ] = RollbackPolicy.AUTOMATIC
    nonce: Annotated[
        Annotated[str, Field(max_length=63)],
        Field(description="Any text; changing it makes a new release, to try a rejected upgrade again."),
    ] = ""


class SavepointsSpec(ResourceModel):
    """Scheduled savepoints, and how many of the operator's own savepoints are kept."""

    every: Annotated[
        DurationMs,
        Field(description="Interval of scheduled savepoints, such as 6h; 0s takes none."),
    ] = 0
    keep: Annotated[
        Positive,
        Field(
            description="Number of savepoints made by the operator that are kept; those that people request are never "
            "removed "
            "by it."
        ),
    ] = 10


class RestoreSpec(ResourceModel):
    """A restore from a savepoint. Each new ``nonce`` triggers one restore."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.from) || self.from == '' || (has(self.nonce) && self.nonce != '')",
                    "message": "restore.from needs a restore.nonce: any text that was not used before",
                }
            ]
        }
    )

    from_: Annotated[
        Annotated[NameOrNone, Field(alias="from")],
        Field(description="Name of the savepoint to restore; empty restores none."),
    ] = ""
    nonce: Annotated[
        Annotated[str, Field(max_length=63)],
        Field(description="Any text that was not used before; each new one triggers one restore."),
    ] = ""


class AutoscalingSpec(ResourceModel):
    """Executors by load. A change of their number is an upgrade of the app, with its savepoint and its proof."""

    max_executors: Annotated[
        Count,
        Field(description="Most executor pods; 0 leaves the number of executors as it is."),
    ] = 0
    min_executors: Annotated[
        Positive,
        Field(description="Fewest executor pods."),
    ] = 1
    lag: Annotated[
        DurationMs,
        Field(
            description="Age of the oldest unprocessed row from which on the app needs more executors, such as 60s; "
            "below half of it, an app that is not busy may have fewer."
        ),
    ] = 60_000
    up_after: Annotated[
        DurationMs,
        Field(description="Time that the load must be high before executors are added, such as 2m."),
    ] = 120_000
    down_after: Annotated[
        DurationMs,
        Field(
            description="Time that the load must be low before an executor is removed, such as 15m; also the pause "
            "after a change that failed, twice as long after each further one, up to 32 times."
        ),
    ] = 900_000
    busy_percent: Annotated[
        int,
        Field(ge=1, le=90, description="Share of the time in batches, in percent, up to which the load is low."),
    ] = 40

    @property
    def enabled(self) -> bool:
        """Whether the number of executors follows the load."""
        return self.max_executors > 0


class PodSpec(ResourceModel):
    """Settings of a pod of the app, beside those that the operator decides."""

    resources: Annotated[
        FreeObject,
        Field(description="Resource requests and limits of the container, as in a pod."),
    ] = Field(default_factory=dict)
    env: Annotated[
        Annotated[tuple[FreeObject, ...], Field(max_length=100)],
        Field(description="Further environment variables of the container, as in a pod."),
    ] = ()
    volumes: Annotated[
        Annotated[tuple[FreeObject, ...], Field(max_length=50)],
        Field(description="Further volumes of the pod, as in a pod."),
    ] = ()
    volume_mounts: Annotated[
        Annotated[tuple[FreeObject, ...], Field(max_length=50)],
        Field(description="Further volume mounts of the container, as in a pod."),
    ] = ()
    node_selector: Annotated[
        dict[str, str],
        Field(description="Labels that a node must have to run the pod."),
    ] = Field(default_factory=dict)
    tolerations: Annotated[
        Annotated[tuple[FreeObject, ...], Field(max_length=50)],
        Field(description="Tolerations of the pod, as in a pod."),
    ] = ()
    labels: Annotated[dict[str, str], Field(description="Further labels of the pod.")] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], Field(description="Further annotations of the pod.")] = Field(
        default_factory=dict
    )
    priority_class_name: Annotated[
        str,
        Field(description="PriorityClass of the pod; empty: the cluster's default."),
    ] = ""


class DriverSpec(PodSpec):
    """The driver's pod."""

    service_account: Annotated[
        NameOrNone,
        Field(
            description="ServiceAccount of the driver; empty: the operator makes one with the rights that a driver "
            "needs."
        ),
    ] = ""
    hang_deadline: Annotated[
        DurationMs,
        Field(
            description="Age of the newest status after which the driver counts as hanging and is restarted, such as "
            "300s."
        ),
    ] = 300_000
    termination_grace: Annotated[
        DurationMs,
        Field(description="Time for a driver to stop after SIGTERM before it is killed, such as 120s."),
    ] = 120_000


#: The service whose app is a topology in the image, which ``module`` names.
PROGRAM = "program"
_PROGRAM_RULE = "a program has a module, such as revenue:topology, and no other service has one"
_SPEC_RULES: list[JsonValue] = [
    {
        "rule": f"(self.service == '{PROGRAM}') == (has(self.module) && self.module != '')",
        "message": _PROGRAM_RULE,
    },
    {"rule": "self.service == oldSelf.service", "message": "service is fixed for the app's life"},
    {
        "rule": "self.upgrade.mode == 'savepoint' || self.shufflePartitions == oldSelf.shufflePartitions",
        "message": "another number of shuffle partitions needs upgrade.mode: savepoint",
    },
    {
        "rule": "!has(self.autoscaling) || self.autoscaling.maxExecutors == 0 || (self.executors > 0 && "
        "self.autoscaling.minExecutors <= self.autoscaling.maxExecutors && self.upgrade.mode == 'savepoint')",
        "message": "autoscaling needs executors of at least 1, minExecutors up to maxExecutors, and upgrade.mode: "
        "savepoint",
    },
    {
        "rule": "self.upgrade.mode != 'stateless' || self.savepoints.every == '0s'",
        "message": "a stateless app has no savepoints: leave savepoints.every out",
    },
]


class StreamAppSpec(ResourceModel):
    """The spec of one app."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={"x-kubernetes-validations": _SPEC_RULES},
    )

    service: Annotated[
        Name,
        Field(
            description="Service that the app runs, such as rules or etl, or program for a topology in the image; "
            "fixed for the life of the app."
        ),
    ]
    module: Annotated[
        Annotated[str, Field(pattern=_MODULE, max_length=253)],
        Field(
            description="Topology of a program in the image, as module:topology; a new one is an upgrade. Empty for "
            "every other service."
        ),
    ] = ""
    image: Annotated[
        Annotated[str, Field(min_length=1, max_length=512)],
        Field(description="Image of driver and executors; a new one is an upgrade."),
    ]
    image_pull_policy: Annotated[
        Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")],
        Field(description="When the image is pulled, as in a pod."),
    ] = "IfNotPresent"
    image_pull_secrets: Annotated[
        Annotated[tuple[Name, ...], Field(max_length=10)],
        Field(description="Secrets with which the image is pulled."),
    ] = ()
    config: Annotated[
        FreeObject,
        Field(
            description="Settings of the service as its settings file has them, without what the operator decides; a "
            "change "
            "is applied to the running driver where possible."
        ),
    ]
    files: Annotated[
        Files,
        Field(
            description="Small texts by name, such as the schema of a stream, which config finds in "
            "/etc/headgate/files."
        ),
    ] = Field(default_factory=dict)
    secret: Annotated[
        Annotated[NameOrNone, WithJsonSchema({"type": "string", "maxLength": 63})],
        Field(description="Secret that is mounted in /etc/headgate/secret of driver and executors; empty: none."),
    ] = ""
    executors: Annotated[
        Count,
        Field(description="Number of executor pods; 0 runs everything in the driver."),
    ] = 0
    shuffle_partitions: Annotated[
        Positive,
        Field(description="Number of Spark partitions; changing it needs upgrade.mode: savepoint."),
    ] = 2
    autoscaling: Annotated[
        AutoscalingSpec,
        Field(description="Number of executors by load; off unless maxExecutors is set."),
    ] = AutoscalingSpec()
    checkpoint: Annotated[
        CheckpointSpec,
        Field(description="Location of checkpoint and savepoints."),
    ]
    upgrade: Annotated[UpgradeSpec, Field(description="How a new version replaces the old one.")] = UpgradeSpec()
    savepoints: Annotated[
        SavepointsSpec,
        Field(description="Scheduled savepoints and how many are kept."),
    ] = SavepointsSpec()
    restore: Annotated[RestoreSpec, Field(description="Restore from a savepoint.")] = RestoreSpec()
    state: Annotated[
        RunState,
        Field(description="Whether the app runs (running) or is stopped with a savepoint (suspended)."),
    ] = RunState.RUNNING
    deletion_policy: Annotated[
        DeletionPolicy,
        Field(
            description="What remains of a deleted app: a last savepoint (savepoint), all data as it is (retain), or "
            "nothing "
            "(purge)."
        ),
    ] = DeletionPolicy.SAVEPOINT
    deletion_deadline: Annotated[
        DurationMs,
        Field(description="Time after which a deletion completes whatever hangs, such as 300s."),
    ] = 300_000
    driver: Annotated[DriverSpec, Field(description="Pod of the driver.")] = DriverSpec()
    executor: Annotated[PodSpec, Field(description="Pods of the executors.")] = PodSpec()

    @model_validator(mode="after")
    def _check_module(self) -> Self:
        if (self.service == PROGRAM) != bool(self.module):
            raise ValueError(_PROGRAM_RULE)
        return self

    @property
    def process(self) -> tuple[str, ...]:
        """The module of Python that runs the service, and its first arguments."""
        if self.service == PROGRAM:
            return ("streamcore.service.program", self.module)
        return (f"headgate_{self.service}",)

    @property
    def savepoints_root(self) -> str:
        """The folder of the savepoints of all apps. Those of an app are in its subfolder with the name of the app."""
        return self.checkpoint.savepoints or f"{self.checkpoint.root.rstrip('/')}/savepoints"
