"""Compares the alerts of two versions of a rule: those that both have raised, and those of only one, over time and by
key. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from pydantic import JsonValue

from headgate.web.state.values import ComparedAlert, ComparedBucket, ComparisonValue, KeyCount

#: Lengths of pieces of time, in milliseconds.
_LENGTHS = tuple(n * 10_000 for n in (1, 6, 30, 90, 360, 1080, 2160, 8640, 60_480))
MOST_BUCKETS = 72
_SAMPLES = 50
_KEYS = 8


@dataclass(frozen=True, slots=True)
class VersionAlert:
    """An alert of one of the versions. ``identity``: what it shares with the same alert of the other version."""

    identity: bytes
    time_ms: int
    body: Mapping[str, JsonValue]
    alert_id: str | None = None

    @classmethod
    def of(cls, body: Mapping[str, JsonValue], *, fixed: bool, alert_id: str | None = None) -> VersionAlert:
        """Return an alert from its JSON. ``fixed``: the end of its window does not depend on when the rule fires."""
        window = body.get("window")
        about: object = [body.get("key"), window if fixed or not isinstance(window, dict) else window.get("start_ms")]
        if body.get("kind") in ("event", "feature"):
            about = body.get("source")
        time_ms = body["event_time_ms"]
        assert isinstance(time_ms, int)
        return cls(orjson.dumps(about, option=orjson.OPT_SORT_KEYS), time_ms, body, alert_id)


def compare_alerts(new: Iterable[VersionAlert], live: Iterable[VersionAlert]) -> ComparisonValue:
    """Compare the alerts of a new version with those of the live one."""
    sides = [{one.identity: one for one in side} for side in (new, live)]
    both = sides[0].keys() & sides[1].keys()
    only = [[one for identity, one in side.items() if identity not in both] for side in sides]
    shared = [sides[0][identity] for identity in both]
    length, start, count = split_time([one.time_ms for side in sides for one in side.values()])
    counts = [Counter((one.time_ms - start) // length for one in group) for group in (shared, *only)]
    buckets = tuple(
        ComparedBucket(start_ms=start + n * length, both=counts[0][n], only_new=counts[1][n], only_live=counts[2][n])
        for n in range(count)
    )
    return ComparisonValue(
        both=len(both),
        only_new=len(only[0]),
        only_live=len(only[1]),
        bucket_ms=length,
        buckets=buckets,
        keys=tuple(_top_keys([*sides[0].values()], [*sides[1].values()])),
        new_alerts=_samples(only[0]),
        live_alerts=_samples(only[1]),
    )


def split_time(times: Sequence[int]) -> tuple[int, int, int]:
    """Return length, start and number of the pieces of time that hold all times."""
    if not times:
        return _LENGTHS[0], 0, 0
    first, last = min(times), max(times)
    length = next((one for one in _LENGTHS if (last - first) // one < MOST_BUCKETS), _LENGTHS[-1])
    start = first // length * length
    return length, start, (last - start) // length + 1


def _top_keys(new: Sequence[VersionAlert], live: Sequence[VersionAlert]) -> Iterable[KeyCount]:
    counts = [Counter(_key(one) for one in side) for side in (new, live)]
    for key, _ in (counts[0] + counts[1]).most_common(_KEYS):
        yield KeyCount(key=orjson.loads(key), new=counts[0][key], live=counts[1][key])


def _key(alert: VersionAlert) -> bytes:
    return orjson.dumps(alert.body.get("key"), option=orjson.OPT_SORT_KEYS)


def _samples(alerts: Sequence[VersionAlert]) -> tuple[ComparedAlert, ...]:
    """Return the newest ones."""
    newest = sorted(alerts, key=lambda one: (-one.time_ms, one.identity))[:_SAMPLES]
    return tuple(
        ComparedAlert(
            number=number,
            event_time_ms=one.time_ms,
            key=orjson.loads(_key(one)) or {},
            message=str(one.body.get("message", "")),
            event=_place(one.body.get("source")),
            alert_id=one.alert_id,
        )
        for number, one in enumerate(newest)
    )


def _place(source: JsonValue) -> str | None:
    if not isinstance(source, dict) or "offset" not in source:
        return None
    return f"{source['topic']}:{source['partition']}:{source['offset']}"
