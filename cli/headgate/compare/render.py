"""Renders the comparison of two apps as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from headgate.compare.differences import ChangedRecord, LaneDifferences, LaneRecord
from headgate.console.output import Json
from headgate.console.tables import table

_HEAD = ("LANE", "EQUAL", "CHANGED", "ONLY IN A", "ONLY IN B")


def text(first: str, second: str, lanes: Sequence[LaneDifferences], limit: int) -> str:
    """Return a table of counts, then up to ``limit`` differences of each kind and lane."""
    counts = [(d.lane, *(f"{n:,}" for n in _counts(d))) for d in lanes]
    lines = [f"A is {first}, B is {second}", *table(_HEAD, counts, right=_HEAD[1:])]
    for lane in lanes:
        lines += _details(lane, limit)
    return "\n".join(lines)


def data(first: str, second: str, lanes: Sequence[LaneDifferences]) -> Json:
    """Return all differences as a JSON value."""
    return {
        "a": first,
        "b": second,
        "equal": not any(lane.differs for lane in lanes),
        "lanes": [_lane_data(lane) for lane in lanes],
    }


def _counts(lane: LaneDifferences) -> tuple[int, int, int, int]:
    return lane.equal, len(lane.changed), len(lane.only_a), len(lane.only_b)


def _details(lane: LaneDifferences, limit: int) -> Iterator[str]:
    if lane.differs:
        yield ""
        yield f"{lane.lane}:"
    yield from _limited([_changed_text(record) for record in lane.changed], limit)
    yield from _limited([f"only in A  {_record_text(record)}" for record in lane.only_a], limit)
    yield from _limited([f"only in B  {_record_text(record)}" for record in lane.only_b], limit)


def _limited(lines: Sequence[str], limit: int) -> Iterable[str]:
    yield from (f"  {line}" for line in lines[:limit])
    if len(lines) > limit:
        yield f"  ... and {len(lines) - limit:,} more; -o json has all"


def _changed_text(record: ChangedRecord) -> str:
    fields = ", ".join(f"{name} {json.dumps(a)} -> {json.dumps(b)}" for name, (a, b) in record.fields.items())
    return f"changed    {record.key or '-'} {record.time}: {fields}"


def _record_text(record: LaneRecord) -> str:
    return f"{record.key or '-'} {json.dumps(record.value)}"


def _lane_data(lane: LaneDifferences) -> Json:
    return {
        "lane": lane.lane,
        "equal": lane.equal,
        "changed": [
            {"key": r.key, "time": r.time, "fields": {n: {"a": a, "b": b} for n, (a, b) in r.fields.items()}}
            for r in lane.changed
        ],
        "only_a": [{"key": r.key, "value": dict(r.value)} for r in lane.only_a],
        "only_b": [{"key": r.key, "value": dict(r.value)} for r in lane.only_b],
    }
