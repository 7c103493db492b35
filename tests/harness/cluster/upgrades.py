"""Where the seconds of an upgrade go, from what the operator and the markers in Kafka say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Any


def phases(status: dict[str, Any]) -> dict[str, float]:
    """Seconds in each phase of the last upgrade."""
    times = [(one["phase"], datetime.fromisoformat(one["at"])) for one in status["upgrade"]["phases"]]
    ends = [at for _, at in times[1:]]
    return {
        phase: round((end - at).total_seconds(), 1) for (phase, at), end in zip(times[: len(ends)], ends, strict=True)
    }


def longest_gap_s(stamps_ms: Iterable[int]) -> float:
    """The longest time between two outputs that follow each other."""
    ordered = sorted(stamps_ms)
    return max((b - a for a, b in pairwise(ordered)), default=0) / 1_000


def print_result(what: str, **figures: object) -> None:
    """For who reads the run: one line of JSON."""
    print(json.dumps({"cluster": what, **figures}), flush=True)
