"""The computations of the paired benchmarks: Headgate, plain Spark and the oracle read the same ``Job``.

This module imports neither Spark nor the product, so that the child process of each side starts with its own imports
only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

import orjson

from bench.harness.events import EventSet

HOUR_MS = 3_600_000
#: Event time that follows the last full hour, so that the watermark passes the end of the last window.
_TAIL_MS = 300_000
_MILLION = 1_000_000


class Kind(enum.StrEnum):
    """The kind of a job. ``READ``: every event is decoded and dropped, which is the base cost of the others.
    ``WINDOWS`` and ``SESSIONS``: sum and count by user. ``ANALYTICS``: the session columns of the sessions app.
    ``PROCESS``: a keyed function with one value state."""

    READ = "read"
    WINDOWS = "windows"
    SESSIONS = "sessions"
    ANALYTICS = "analytics"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of a job. ``value``: the field that is summed. ``delay_ms``: the delay of the watermark. ``every``:
    ``PROCESS`` returns a row for every n-th event of a user. ``per_cut``: the highest number of events in a cut.

    ``hours_per_million``: the hours of event time per million events; with 4, half-hour gaps end sessions of about
    three events.
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
        """Return the settings of ``count`` events for the job."""
        hours = max(1, round(count * self.hours_per_million / _MILLION))
        return EventSet(count, span_ms=hours * HOUR_MS + _TAIL_MS)

    def to_json(self) -> str:
        """Encode the job for a command line."""
        return orjson.dumps(asdict(self)).decode()


def apply_options(job: Job, options: Mapping[str, object]) -> Job:
    """Return the job with the options that are fields of ``Job``; ignore the others."""
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
