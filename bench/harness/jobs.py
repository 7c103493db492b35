"""What the paired benchmarks compute, said once: both sides and the oracle read the same value.

Imports neither Spark nor the product, so that a child of either kind starts with its own imports only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

import orjson

from bench.harness.events import EventSet

HOUR_MS = 3_600_000
#: After the last full window: with it the watermark passes that window's end.
_TAIL_MS = 300_000
_MILLION = 1_000_000


class Kind(enum.StrEnum):
    """``READ``: every event is decoded, looked at and dropped: what the others cost before they begin. ``WINDOWS``,
    ``SESSIONS``: sum and count by user; ``ANALYTICS``: all that the sessions app says of a session; ``PROCESS``: a
    function with one value state by user."""

    READ = "read"
    WINDOWS = "windows"
    SESSIONS = "sessions"
    ANALYTICS = "analytics"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Job:
    """``value``: the field that is summed. ``delay_ms``: how late an event may come. ``every``: a row of ``PROCESS``
    for each so manieth event of a user. ``per_cut``: events of a cut.

    ``hours_per_million``: of event time; with four, half-hour gaps end sessions of three events or so.
    """

    kind: Kind
    size_ms: int = HOUR_MS
    slide_ms: int = HOUR_MS
    gap_ms: int = HOUR_MS // 2
    every: int = 10
    value: str = "amount"
    delay_ms: int = 10_000
    per_cut: int = 250_000
    hours_per_million: int = 1

    def events(self, count: int) -> EventSet:
        """So many events for it."""
        hours = max(1, round(count * self.hours_per_million / _MILLION))
        return EventSet(count, span_ms=hours * HOUR_MS + _TAIL_MS)

    def to_json(self) -> str:
        """For a command line."""
        return orjson.dumps(asdict(self)).decode()


def changed(job: Job, options: Mapping[str, object]) -> Job:
    """With the options that are fields of a job."""
    names = {field.name for field in fields(Job)}
    return replace(job, **{name: value for name, value in options.items() if name in names})  # type: ignore[arg-type]


def from_json(text: str) -> Job:
    """Decode the output of ``Job.to_json``."""
    document = orjson.loads(text)
    return Job(**document | {"kind": Kind(document["kind"])})


READ = Job(Kind.READ)
WINDOWS = Job(Kind.WINDOWS)
SLIDING = replace(WINDOWS, slide_ms=HOUR_MS // 4)
SESSIONS = Job(Kind.SESSIONS, hours_per_million=4)
ANALYTICS = Job(Kind.ANALYTICS, hours_per_million=4)
PROCESS = Job(Kind.PROCESS)
