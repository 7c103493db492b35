"""The latency of a cut by lane: from the broker's timestamp of its oldest record until its output was committed.

It is that of an event that leaves in the cut in which it comes. What a window or a timer holds back leaves later, with
the latency of the cut that emits it: the delay that the program itself wants is not in the figure. (Flink's latency
markers pass by windows too, and begin where the source reads.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamcore.app import App
from streamcore.kernel import FIRST_RECORD_MS
from streamcore.offsets import source_index


def take_first_records(counters: dict[str, int]) -> dict[int, int]:
    """Remove the timestamps of first records from the counters; return them by source partition."""
    prefix = f"{FIRST_RECORD_MS}."
    names = [name for name in counters if name.startswith(prefix)]
    return {int(name.removeprefix(prefix)): counters.pop(name) for name in names}


def lane_latencies(
    app: App, lanes: Iterable[str], first_records_ms: Mapping[int, int], committed_ms: int
) -> dict[str, int]:
    """Return the latency of each lane in milliseconds. ``committed_ms``: the wall clock when the output was committed.

    A lane has none if the cut has no record of the topics that feed it.
    """
    found = {}
    for lane in lanes:
        sources = app.lane_sources.get(lane, range(len(app.sources)))
        times = [ms for number, ms in first_records_ms.items() if source_index(number) in sources and ms > 0]
        if times:
            found[lane] = max(0, committed_ms - min(times))
    return found
