"""What a running service says of itself: one value, of at most 4 KiB as JSON, replaced as a whole.

It tells an operator where the service is (phase, epoch, batch, lag), what became of each request, by id, and, of a
standby, whether it could go on from the savepoint that it was shown. Refuses to be a log: only what holds now.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import orjson

REPORT_BYTES = 4096
_ANSWERS = 8
_TEXT = 300
_REASONS = 5


class Phase(enum.StrEnum):
    """Where a service is in its life."""

    STARTING = "starting"
    STANDBY = "standby"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SavepointSaid:
    """A savepoint that is complete."""

    name: str
    batch: int
    epoch: int
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanSaid:
    """Whether this version can go on from a savepoint: ``compatible``, ``migrates``, ``decision``, ``incompatible``."""

    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewerSaid:
    """The newest checkpoint that there is: its epoch, and the last batch that it committed, -1 before the first."""

    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request. ``newer``: what a ``go`` would have gone on beside, and was refused for. ``retry``: a
    no that is not for good, for the same may go through later.
    """

    ok: bool
    message: str = ""
    savepoint: SavepointSaid | None = None
    newer: NewerSaid | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """``batch``: the last one committed, -1 before the first; ``committed``: how many since this process started.
    ``lag_rows``: offsets of its inputs that it has not read; ``lag_s``: for how long the oldest of them has been there.
    ``watermark_ms``: None while there is none.
    """

    phase: Phase
    version: str = ""
    epoch: int = 0
    batch: int = -1
    committed: int = 0
    lag_rows: int = 0
    lag_s: float = 0.0
    watermark_ms: int | None = None
    at_ms: int = 0
    plan: PlanSaid | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    message: str = ""

    def answered(self, identity: str, answer: Answer) -> Report:
        """With one more answer; those that are long ago go."""
        kept = [*self.answers.items(), (identity, answer)][-_ANSWERS:]
        return replace(self, answers=dict(kept))

    def is_news(self, before: Report | None) -> bool:
        """Does it say more than that time went on? Then it must not wait."""
        if before is None:
            return True
        return (self.phase, self.plan, self.answers, self.message, self.committed > 0) != (
            *(before.phase, before.plan, before.answers, before.message),
            before.committed > 0,
        )

    def to_json(self) -> str:
        """As it is published; texts and old answers are cut until it fits."""
        report = replace(
            self,
            message=self.message[:_TEXT],
            plan=None if self.plan is None else _shortened(self.plan),
            answers={name: replace(a, message=a.message[:_TEXT]) for name, a in self.answers.items()},
        )
        while len(text := orjson.dumps(asdict(report))) > REPORT_BYTES and len(report.answers) > 1:
            report = replace(report, answers=dict([*report.answers.items()][1:]))
        return text.decode()

    @classmethod
    def from_json(cls, text: str) -> Report | None:
        """What ``to_json`` gave; None for anything else, for what nobody can read answers nothing."""
        try:
            document = orjson.loads(text)
            plan, answers = document.pop("plan"), document.pop("answers")
            return cls(
                **document | {"phase": Phase(document["phase"])},
                plan=None if plan is None else PlanSaid(plan["verdict"], tuple(plan["reasons"])),
                answers={name: _answer(said) for name, said in answers.items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _shortened(plan: PlanSaid) -> PlanSaid:
    return PlanSaid(plan.verdict, tuple(reason[:_TEXT] for reason in plan.reasons[:_REASONS]))


def _answer(said: Mapping[str, object]) -> Answer:
    savepoint, newer = said["savepoint"], said.get("newer")
    return Answer(
        bool(said["ok"]),
        str(said["message"]),
        SavepointSaid(**savepoint) if isinstance(savepoint, dict) else None,
        NewerSaid(**newer) if isinstance(newer, dict) else None,
        bool(said.get("retry")),
    )
