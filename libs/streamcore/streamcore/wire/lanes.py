"""Records on lanes: the output of a cut, independent of the system that a lane ends in.

A lane is a named output of an app (``alerts``, ``late``, ``deadletters``, ``status``). Key, value and headers of a
record are bytes, which no code after the kernel interprets. The records of a shard reach the driver as one Arrow blob
(``lane_codec``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.codes import Code

ALERTS = "alerts"
SHADOW = "shadow"
DECISIONS = "decisions"
STATUS = "status"
LATE = "late"
DEAD_LETTERS = "deadletters"
#: The prefix of the names of a dead letter's headers that its record had.
SOURCE_HEADER = "source_header."
_ROWS = "_table"
#: Records that an app writes to its own control topic, so that every shard reads them in a later cut.
CONTROL = "control"


class DeadLetterCode(Code):
    """Codes of dead letters that every stream program can have. A program adds codes of its own."""

    FAILED = (
        "failed",
        "A step of the program fails on the row, or a lookup gets no response for it.",
        "Read `reason`, correct the step or the data, and send the record again with `headgate deadletters replay`.",
    )
    FAILED_CONTROL = (
        "failed_control",
        "A keyed function fails on a control record, or the key of the record is missing or is not UTF-8 text.",
        "Read `reason`, correct the control record, and publish it again.",
    )
    FAILED_PANE = (
        "failed_pane",
        "A function of a window or of a co-group, or `merge` or `result` of an accumulator, fails on a pane. The value "
        "has the key and the window; if a function failed, also the number of elements and the first of them.",
        "Read `reason`, and correct the function or the data.",
    )
    FAILED_MATCH = (
        "failed_match",
        "The function of a pattern fails on a match. The value has the key and, as JSON text, the events of the match.",
        "Read `reason`, and correct the function or the data.",
    )
    LATE = (
        "late",
        "The row is too far behind the watermark for a step, such as deduplication.",
        "Raise `max_out_of_orderness_ms`, or the lateness or horizon of the step.",
    )
    NO_CODE = (
        "unknown",
        "The dead letter has no header `reason_code`; only the metric has this code.",
        "Give the program's dead letters a code.",
    )


def table_lane(lane: str) -> str:
    """Return the name of the lane that sends the records of ``lane`` to sinks, as rows."""
    return f"{lane}{_ROWS}"


Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One output record. ``headers`` are pairs of a name and bytes, in order."""

    lane: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
