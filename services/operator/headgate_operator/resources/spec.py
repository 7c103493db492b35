"""What people write in a ``StreamApp``. What the API server can check is in the CRD: this schema and its CEL rules."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

from headgate_operator.resources.base import Document, DurationMs, FreeObject

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Count = Annotated[int, Field(ge=0, le=1_000)]
Positive = Annotated[int, Field(ge=1, le=10_000)]
Name = Annotated[str, Field(pattern=_LABEL, max_length=63)]
NameOrNone = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]


#: A name, or a folder and a name; what a ConfigMap's keys can say with ``..`` for the slash.
FILE_NAME = r"^([a-z0-9]+([._-][a-z0-9]+)*/)?[a-z0-9]+([._-][a-z0-9]+)*$"
MAX_FILES = 50
#: The API server takes 1.5 MiB an app, and files are in it up to four times: in the spec, in the copy of it that
#: ``kubectl apply`` keeps, and in the releases before and after an upgrade.
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
    """What a new version starts from."""

    SAVEPOINT = "savepoint"
    IN_PLACE = "in-place"
    STATELESS = "stateless"


class RollbackPolicy(StrEnum):
    """Who decides that a version that failed its proof is replaced by the one before."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class StopTimeout(StrEnum):
    """What follows when the old version did not stop in time: keep it, or restart it and ask once more."""

    KEEP = "keep"
    SETTLE = "settle"


class RunState(StrEnum):
    """Whether the app is meant to run."""

    RUNNING = "running"
    SUSPENDED = "suspended"


class DeletionPolicy(StrEnum):
    """What is left of a deleted app: a last savepoint, all that there is, or nothing."""

    SAVEPOINT = "savepoint"
    RETAIN = "retain"
    PURGE = "purge"


class CheckpointSpec(Document):
    """Where the app's memory is: a folder that is mounted in the driver and its executors, or ``s3://bucket/prefix``."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": "self.root == oldSelf.root", "message": "checkpoint.root is fixed for the app's life"}
            ]
        }
    )

    root: Annotated[str, Field(min_length=1, max_length=512)]
    savepoints: Annotated[str, Field(max_length=512)] = ""
    claim: NameOrNone = ""


class ProofSpec(Document):
    """What a new version must show before it is stable: committed batches, within a time, and no lag above ``lag_rows``
    that was not there when it began."""

    batches: Positive = 5
    within: DurationMs = 180_000
    lag_rows: Annotated[int, Field(ge=0)] = 1_000


class UpgradeSpec(Document):
    """How a changed version gets to run."""

    mode: UpgradeMode = UpgradeMode.SAVEPOINT
    prepare_deadline: DurationMs = 300_000
    stop_deadline: DurationMs = 120_000
    on_stop_timeout: StopTimeout = StopTimeout.KEEP
    start_deadline: DurationMs = 300_000
    proof: ProofSpec = ProofSpec()
    rollback: RollbackPolicy = RollbackPolicy.AUTOMATIC
    nonce: Annotated[str, Field(max_length=63)] = ""


class SavepointsSpec(Document):
    """Savepoints taken by the clock (``every``, ``0s`` for none), and how many of the operator's own are kept."""

    every: DurationMs = 0
    keep: Positive = 10


class RestoreSpec(Document):
    """Go back to a savepoint: done once for each new ``nonce``."""

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

    from_: Annotated[NameOrNone, Field(alias="from")] = ""
    nonce: Annotated[str, Field(max_length=63)] = ""


class PodSpec(Document):
    """What a pod of the app is given beside what the operator decides."""

    resources: FreeObject = Field(default_factory=dict)
    env: Annotated[tuple[FreeObject, ...], Field(max_length=100)] = ()
    volumes: Annotated[tuple[FreeObject, ...], Field(max_length=50)] = ()
    volume_mounts: Annotated[tuple[FreeObject, ...], Field(max_length=50)] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: Annotated[tuple[FreeObject, ...], Field(max_length=50)] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    priority_class_name: str = ""


class DriverSpec(PodSpec):
    """The driver's pod."""

    service_account: NameOrNone = ""
    hang_deadline: DurationMs = 300_000
    termination_grace: DurationMs = 120_000


_SPEC_RULES: list[JsonValue] = [
    {"rule": "self.service == oldSelf.service", "message": "service is fixed for the app's life"},
    {
        "rule": "self.upgrade.mode == 'savepoint' || self.shufflePartitions == oldSelf.shufflePartitions",
        "message": "another number of shuffle partitions needs upgrade.mode: savepoint",
    },
    {
        "rule": "self.upgrade.mode != 'stateless' || self.savepoints.every == '0s'",
        "message": "a stateless app has no savepoints: leave savepoints.every out",
    },
]


class StreamAppSpec(Document):
    """One app. ``files``: small texts by name, such as a stream's schema, which ``config`` finds in
    ``/etc/headgate/files``."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={"x-kubernetes-validations": _SPEC_RULES},
    )

    service: Name
    image: Annotated[str, Field(min_length=1, max_length=512)]
    image_pull_policy: Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    image_pull_secrets: Annotated[tuple[Name, ...], Field(max_length=10)] = ()
    config: FreeObject
    files: Files = Field(default_factory=dict)
    secret: Annotated[NameOrNone, WithJsonSchema({"type": "string", "maxLength": 63})] = ""
    executors: Count = 0
    shuffle_partitions: Positive = 2
    checkpoint: CheckpointSpec
    upgrade: UpgradeSpec = UpgradeSpec()
    savepoints: SavepointsSpec = SavepointsSpec()
    restore: RestoreSpec = RestoreSpec()
    state: RunState = RunState.RUNNING
    deletion_policy: DeletionPolicy = DeletionPolicy.SAVEPOINT
    deletion_deadline: DurationMs = 300_000
    driver: DriverSpec = DriverSpec()
    executor: PodSpec = PodSpec()

    @property
    def savepoints_root(self) -> str:
        """The folder of all apps' savepoints; an app's are in the folder of its name below it."""
        return self.checkpoint.savepoints or f"{self.checkpoint.root.rstrip('/')}/savepoints"
