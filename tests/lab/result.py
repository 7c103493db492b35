"""What is kept of a round: one JSON document, from which reports are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from tests.lab.fault_injector import InjectedFault


@dataclass(slots=True)
class RoundResult:
    """``differences``: empty if the round passed. ``load``: of the machine, at the end of the round."""

    seed: int
    round: int
    subject: str
    seconds: float = 0.0
    load: float = 0.0
    events: int = 0
    control: int = 0
    versions: int = 0
    expected: int = 0
    seen: int = 0
    lost: int = 0
    extra: int = 0
    doubled: int = 0
    starts: list[dict[str, float]] = field(default_factory=list)
    faults: list[InjectedFault] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the document."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, object]) -> RoundResult:
        """Return what ``to_json`` converted."""
        result = cls(**document)  # type: ignore[arg-type]
        result.faults = [InjectedFault(**fault) for fault in result.faults]  # type: ignore[arg-type]
        return result

    @property
    def command(self) -> str:
        """Return the command that repeats the round."""
        return f'make lab ARGS="--seed {self.seed} --round {self.round}"'
