"""The output of a cut: records on named lanes, independent of the system that a lane ends in.

A lane is a side output with a name (``alerts``, ``late``, ``deadletters``, ``status``). A record is a key, a value and
headers, all bytes already, so that everything downstream of a kernel only carries them. From the shards to the sink
they cross as one Arrow blob (``lane_codec``).
"""

from __future__ import annotations

from dataclasses import dataclass

ALERTS = "alerts"
SHADOW = "shadow"
STATUS = "status"
LATE = "late"
DEAD_LETTERS = "deadletters"

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One output record. ``headers`` are pairs of a name and bytes, in order."""

    lane: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
