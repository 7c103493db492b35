"""The status of a running service: one document of at most 4 KiB of JSON, replaced as a whole.

It holds where the service is (phase, epoch, batch, lag), the result of each command by its id, and, for a standby,
whether this version can continue from the savepoint that it was given. Not a log: only the present state.

Shared by the driver, which writes it, and the operator, which reads it; imports nothing of streamcore but
``streamcore.codes``. Parsing is lenient: a wrong field gets its default and a text that is no status is None, as a
faulty driver must not stop the operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from streamcore.codes import Code

#: The annotation of a driver's pod that holds the status.
STATUS_ANNOTATION = "headgate.dev/status"
STATUS_BYTES = 4096
_RESULTS = 8
_TEXT = 300
_READ_TEXT = 1_000
_REASONS = 5


class DriverPhase(Code):
    """Phases of a service's process, in the annotation `headgate.dev/status` of its pod."""

    STARTING = ("starting", "The process loads its settings and starts Spark.", "Nothing.")
    STANDBY = ("standby", "The process is ready, and owns nothing until it is promoted.", "Nothing.")
    RUNNING = ("running", "The process owns the checkpoint and commits batches.", "Nothing.")
    DRAINING = (
        "draining",
        "The process stops between two batches, with a savepoint if the command names one.",
        "Nothing.",
    )
    DRAINED = ("drained", "The process has stopped in order.", "Nothing.")
    FAILED = ("failed", "The process cannot go on; `message` has the reason.", "Correct the reason; see the exit code.")
    UNKNOWN = ("unknown", "The process reports a phase of a newer version.", "Upgrade the operator.")


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """A complete savepoint: its name, its position in the log, and its size."""

    name: str
    batch: int
    epoch: int
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CompatibilityInfo:
    """Whether this version can continue from a savepoint: ``compatible``, ``migrates``, ``decision`` (of a person) or
    ``incompatible``."""

    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewerEpochInfo:
    """The newest checkpoint of the app: its epoch and the last batch that it committed, -1 before the first."""

    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    ``newer_epoch``: the newer checkpoint because of which ``promote`` was rejected. ``retryable``: the rejection is
    temporary (something was unreachable, or the lease is still held), so the same command may succeed later.
    """

    ok: bool
    message: str = ""
    savepoint: SavepointInfo | None = None
    newer_epoch: NewerEpochInfo | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """``batch``: the last one committed, -1 before the first; ``committed``: batches since this process started.

    ``lag_rows``: offsets of its inputs that are not read yet; ``lag_s``: the age of the oldest of them.
    ``checkpointing_mode``: exactly-once or at-least-once, empty before it runs.
    ``busy_percent``: the share of the time that its last batches took.
    ``watermark_ms``: None while there is none. ``at_ms``: when this status was made. ``results``: of commands, by id.
    """

    phase: DriverPhase
    version: str = ""
    epoch: int = 0
    batch: int = -1
    committed: int = 0
    lag_rows: int = 0
    lag_s: float = 0.0
    busy_percent: int = 0
    watermark_ms: int | None = None
    checkpointing_mode: str = ""
    at_ms: int = 0
    compatibility: CompatibilityInfo | None = None
    results: Mapping[str, CommandResult] = field(default_factory=dict)
    message: str = ""

    def with_result(self, identity: str, result: CommandResult) -> DriverStatus:
        """Return the status with one more result; the oldest are dropped."""
        newest = [*self.results.items(), (identity, result)][-_RESULTS:]
        return replace(self, results=dict(newest))

    def is_urgent(self, before: DriverStatus | None) -> bool:
        """Return whether more than the metrics changed, so that publication must not wait."""
        if before is None:
            return True
        return (self.phase, self.compatibility, self.results, self.message, self.committed > 0) != (
            *(before.phase, before.compatibility, before.results, before.message),
            before.committed > 0,
        )

    def to_json(self) -> str:
        """Return the published text; messages and old results are cut until it fits into ``STATUS_BYTES``."""
        status = replace(
            self,
            message=self.message[:_TEXT],
            compatibility=None if self.compatibility is None else _shorten(self.compatibility),
            results={name: replace(r, message=r.message[:_TEXT]) for name, r in self.results.items()},
        )
        while len((text := _dump(status)).encode()) > STATUS_BYTES and len(status.results) > 1:
            status = replace(status, results=dict([*status.results.items()][1:]))
        return text

    @classmethod
    def from_json(cls, text: str | None) -> DriverStatus | None:
        """Parse a published status; None for a text that is none."""
        document = _load(text)
        phase = document.get("phase")
        if not isinstance(phase, str):
            return None
        results = document.get("results")
        watermark_ms = document.get("watermark_ms")
        return cls(
            phase=DriverPhase(phase) if phase in _PHASES else DriverPhase.UNKNOWN,
            version=str(document.get("version") or ""),
            epoch=_int(document.get("epoch"), 0),
            batch=_int(document.get("batch"), -1),
            committed=_int(document.get("committed"), 0),
            lag_rows=_int(document.get("lag_rows"), 0),
            lag_s=_float(document.get("lag_s")),
            busy_percent=_int(document.get("busy_percent"), 0),
            watermark_ms=None if watermark_ms is None else _int(watermark_ms, 0),
            checkpointing_mode=str(document.get("checkpointing_mode") or ""),
            at_ms=_int(document.get("at_ms"), 0),
            compatibility=_parse_compatibility(document.get("compatibility")),
            results={k: _parse_result(v) for k, v in results.items()} if isinstance(results, dict) else {},
            message=str(document.get("message") or "")[:_READ_TEXT],
        )


_PHASES = frozenset(DriverPhase)


def _dump(status: DriverStatus) -> str:
    return json.dumps(asdict(status), ensure_ascii=False, separators=(",", ":"))


def _load(text: str | None) -> Mapping[str, object]:
    try:
        document = json.loads(text, parse_constant=_reject_constant) if text else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _reject_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _int(value: object, default: int) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**63 else default


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 2**63 else 0.0


def _shorten(info: CompatibilityInfo) -> CompatibilityInfo:
    return CompatibilityInfo(info.verdict, tuple(reason[:_TEXT] for reason in info.reasons[:_REASONS]))


def _parse_compatibility(value: object) -> CompatibilityInfo | None:
    if not isinstance(value, dict):
        return None
    reasons = value.get("reasons")
    texts = tuple(map(str, reasons)) if isinstance(reasons, list) else ()
    return CompatibilityInfo(str(value.get("verdict", "")), texts)


def _parse_result(value: object) -> CommandResult:
    document = value if isinstance(value, dict) else {}
    return CommandResult(
        ok=document.get("ok") is True,
        message=str(document.get("message") or "")[:_READ_TEXT],
        savepoint=_parse_savepoint(document.get("savepoint")),
        newer_epoch=_parse_newer_epoch(document.get("newer_epoch")),
        retryable=document.get("retryable") is True,
    )


def _parse_savepoint(value: object) -> SavepointInfo | None:
    if not isinstance(value, dict):
        return None
    return SavepointInfo(
        str(value.get("name", "")),
        _int(value.get("batch"), -1),
        _int(value.get("epoch"), 0),
        str(value.get("digest", "")),
        _int(value.get("size_bytes"), 0),
    )


def _parse_newer_epoch(value: object) -> NewerEpochInfo | None:
    if not isinstance(value, dict):
        return None
    return NewerEpochInfo(_int(value.get("epoch"), 0), _int(value.get("batch"), -1))
