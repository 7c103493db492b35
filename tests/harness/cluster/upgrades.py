"""The seconds of an upgrade, from the metrics of the operator and the markers in Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Any


def phases(status: dict[str, Any]) -> dict[str, float]:
    """Return the seconds in each phase of the last upgrade."""
    times = [(one["phase"], datetime.fromisoformat(one["at"])) for one in status["upgrade"]["phases"]]
    ends = [at for _, at in times[1:]]
    return {
        phase: round((end - at).total_seconds(), 1) for (phase, at), end in zip(times[: len(ends)], ends, strict=True)
    }


def longest_gap_s(stamps_ms: Iterable[int]) -> float:
    """Return the longest time between two consecutive outputs."""
    ordered = sorted(stamps_ms)
    return max((b - a for a, b in pairwise(ordered)), default=0) / 1_000


def print_result(what: str, **figures: object) -> None:
    """Print a result as one line of JSON."""
    print(json.dumps({"cluster": what, **figures}), flush=True)
