"""What the eight rules must say of the events of a topic: one pure function a rule, slow, short, and by itself.

No import of the product. An alert is compared as it is, but for ``alert_id`` (unique) and ``rules_epoch`` (of its cut).
Every event is on time and a tick has closed every window, so nothing here depends on how the input was cut.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from tests.lab.events import BAD_IPS, Placed
from tests.lab.rules import CLICKS, FAILS, SUM_ABOVE, UPD

Alert = dict[str, object]
_MINUTE_MS = 60_000
_PANE_MS = 10_000
_GAP_MS = 20_000
_BEAT_MS = 90_000
_STEP_MS = 30_000
_ABC_MS = 50_000


def alerts(topic: str, events: Sequence[Placed]) -> list[Alert]:
    """Return all alerts for the events of a topic. ``upd`` is without what its version decides."""
    arrivals = sorted(events, key=lambda p: (p.partition, p.offset))
    by_user: dict[str, dict[str, list[Placed]]] = defaultdict(lambda: defaultdict(list))
    for one in arrivals:
        by_user[one.event.user][one.event.kind].append(one)
    found = [*_per_event(topic, arrivals)]
    for user, kinds in by_user.items():
        found += _fail_slide(topic, user, kinds["fail"])
        found += _pay_sum(user, kinds["pay"])
        found += _abc(topic, user, [*kinds["a"], *kinds["b"], *kinds["c"]])
        found += _no_beat(user, kinds["beat"])
        found += _clicks(user, kinds["click"])
    return found


def _per_event(topic: str, arrivals: Iterable[Placed]) -> Iterator[Alert]:
    for one in arrivals:
        event = one.event
        if event.kind == "pay" and event.amount is not None and Decimal(event.amount) > 900:
            yield _of_event("big-pay", topic, one)
        if event.ip in BAD_IPS:
            yield _of_event("bad-ip", topic, one)
        if event.kind == "note":
            yield _of_event(UPD, topic, one)


def _fail_slide(topic: str, user: str, fails: Sequence[Placed]) -> Iterator[Alert]:
    """Yield the alerts of an early rule, in order of arrival."""
    times: list[int] = []
    fired: set[int] = set()
    for one in fails:
        ts = one.event.ts
        times.append(ts)
        first = (ts // _PANE_MS + 1) * _PANE_MS
        for end in range(first, first + _MINUTE_MS, _PANE_MS):
            inside = sum(end - _MINUTE_MS <= t < end for t in times)
            last_pane = any(end - _PANE_MS <= t < end for t in times)
            if last_pane and inside >= FAILS and end not in fired:
                fired.add(end)
                window = {"kind": "window", "window": _span(end - _MINUTE_MS, end), "timing": "early"}
                yield _alert("fail-slide", user, ts, {"count(*)": inside}, _source(topic, one), window)


def _pay_sum(user: str, pays: Sequence[Placed]) -> Iterator[Alert]:
    """Yield the alerts of a final rule with exact decimals; NULL adds nothing."""
    sums: dict[int, Decimal] = defaultdict(Decimal)
    for one in pays:
        if one.event.amount is not None:
            sums[one.event.ts // _MINUTE_MS * _MINUTE_MS] += Decimal(one.event.amount)
    for start, total in sums.items():
        if total > SUM_ABOVE:
            end = start + _MINUTE_MS
            window = {"kind": "window", "window": _span(start, end), "timing": "final"}
            yield _alert("pay-sum", user, end, {"sum(amount)": f"{total:.2f}"}, None, window)


def _abc(topic: str, user: str, steps: Iterable[Placed]) -> Iterator[Alert]:
    """Yield the matches in order of event time; a match discards all partial ones."""
    begun: list[list[Placed]] = []
    for one in sorted(steps, key=lambda p: (p.event.ts, p.partition, p.offset)):
        kind, ts = one.event.kind, one.event.ts
        if kind == "a":
            begun.append([one])
            continue
        place = 1 if kind == "b" else 2
        taking = [partial for partial in begun if len(partial) == place]
        begun = [partial for partial in begun if len(partial) != place]
        going = [[*p, one] for p in taking if ts - p[-1].event.ts <= _STEP_MS and ts - p[0].event.ts <= _ABC_MS]
        if kind == "b":
            begun += going
        elif going:
            yield _match(topic, user, going[0])
            begun = []


def _match(topic: str, user: str, events: Sequence[Placed]) -> Alert:
    start, end = events[0].event.ts, events[-1].event.ts
    more = {
        "kind": "sequence",
        "window": _span(start, end),
        "timing": "final",
        "events": [{"step": e.event.kind, "event_time_ms": e.event.ts} | _source(topic, e) for e in events],
    }
    return _alert("abc", user, end, {"count": len(events), "duration_ms": end - start}, None, more)


def _no_beat(user: str, beats: Iterable[Placed]) -> Iterator[Alert]:
    times = sorted(one.event.ts for one in beats)
    for last, following in itertools.zip_longest(times, times[1:]):
        end = last + _BEAT_MS
        if following is None or following > end:
            values = {"last_seen": last, "missing_for_ms": _BEAT_MS, "times": 1}
            more = {"kind": "absence", "window": _span(last, end), "timing": "final"}
            yield _alert("no-beat", user, end, values, None, more)


def _clicks(user: str, clicks: Iterable[Placed]) -> Iterator[Alert]:
    sessions: list[list[int]] = []
    for ts in sorted(one.event.ts for one in clicks):
        if sessions and ts - sessions[-1][-1] < _GAP_MS:
            sessions[-1].append(ts)
        else:
            sessions.append([ts])
    for times in sessions:
        if len(times) >= CLICKS:
            end = times[-1] + _GAP_MS
            more = {"kind": "window", "window": _span(times[0], end), "timing": "final"}
            yield _alert("clicks", user, end, {"count(*)": len(times)}, None, more)


def _of_event(rule: str, topic: str, one: Placed) -> Alert:
    more = {"kind": "event", "window": None, "timing": None}
    return _alert(rule, one.event.user, one.event.ts, {}, _source(topic, one), more)


def _alert(rule: str, user: str, at_ms: int, values: object, source: object, more: Mapping[str, object]) -> Alert:
    decided = {} if rule == UPD else {"version": 1, "severity": "high", "score": 0}
    return {
        "rule": rule,
        "mode": "live",
        "stream": "lab",
        "outcome": "review",
        "key": {"user": user},
        "event_time_ms": at_ms,
        "values": values,
        "source": source,
        "incomplete": False,
        "message": user,
        **decided,
        **more,
    }


def _span(start_ms: int, end_ms: int) -> dict[str, int]:
    return {"start_ms": start_ms, "end_ms": end_ms}


def _source(topic: str, one: Placed) -> dict[str, object]:
    return {"topic": topic, "partition": one.partition, "offset": one.offset}
