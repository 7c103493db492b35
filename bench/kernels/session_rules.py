"""Measures session rules on one core: microseconds of CPU an event. Firings are compared with a loop over the events.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.session_rules [--late 0.05] [--keys 20000]

One rule fires at the third event of a session of half an hour. A cut has ten minutes of event time, and its changes are
taken as rows of the state. ``--late``: the share of events that come up to ten minutes late.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.registry import make_group
from rulecore.settings import GroupSettings
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

PER_CUT, CUTS, CUT_MS, GAP_MS, START_MS = 20_000, 12, 600_000, 1_800_000, 1_760_000_400_000
LATEST_MS = 600_000
Ints = npt.NDArray[np.int64]
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "long", "amount": "decimal(12,2)"},
    }
)
RULE = {
    "id": "third",
    "version": 1,
    "owner": "o",
    "on": "pay",
    "group_by": ["user"],
    "within": {"session": "30m"},
    "having": "count(*) >= 3 and sum(amount) > 0",
    "emit": "early",
    "then": {"severity": "low", "message": "m"},
}


def events(keys: int, late: float) -> tuple[Ints, Ints]:
    """Return user and time of each event, in order of arrival."""
    random = np.random.default_rng(7)
    count = PER_CUT * CUTS
    times = START_MS + np.linspace(0, CUTS * CUT_MS - 1, count).astype(np.int64)
    times = times - np.where(random.random(count) < late, random.integers(0, LATEST_MS, count), 0)
    return random.integers(0, keys, count), times


def expected_firings(users: Ints, times: Ints) -> set[int]:
    """Return the number of each event at which the rule fires: the first of a session that has three or more."""
    sessions: dict[int, list[list[int]]] = {}  # by user: first and last time, events, whether it has fired
    found = set()
    for number, (user, at) in enumerate(zip(users.tolist(), times.tolist(), strict=True)):
        known = sessions.setdefault(user, [])
        near = [one for one in known if one[0] - GAP_MS < at < one[1] + GAP_MS]
        merged = [at, at, 1, 0]
        for one in near:
            known.remove(one)
            merged = [min(merged[0], one[0]), max(merged[1], one[1]), merged[2] + one[2], merged[3] | one[3]]
        if merged[2] >= 3 and not merged[3]:
            merged[3] = 1
            found.add(number)
        known.append(merged)
    return found


def main() -> None:
    """Measure, compare, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--late", type=float, default=0.0, help="share of events that come late")
    parser.add_argument("--keys", type=int, default=20_000)
    options = parser.parse_args()
    users, times = events(options.keys, options.late)
    rule = compile_rule(Rule.model_validate(RULE), {"pay": SCHEMA}, RuleLimits())
    group = make_group(GroupId.for_rule(rule), SCHEMA, GroupSettings())  # type: ignore[arg-type]
    group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    rows = pl.DataFrame(
        {"ts": times, "user": users, "amount": np.ones(len(users), np.int64), EVENT_MS: times}
        | {PARTITION: np.zeros(len(users), np.int64), OFFSET: np.arange(len(users))}
    )
    watermark_ms, seconds, found = NO_WATERMARK, [], []
    for first in range(0, len(users), PER_CUT):
        next_ms = int(times[: first + PER_CUT].max()) - LATEST_MS
        moment = CutContext(0, KeySpace(), "pay", next_ms, watermark_ms, next_ms)
        began = time.process_time()
        firings, failures = group.add(rows[first : first + PER_CUT], moment)
        group.close(moment)
        for table in group.tables().values():
            table.changes()
        seconds.append(time.process_time() - began)
        assert not failures
        found += [first + firing.row for firing in firings if firing.row is not None]
        watermark_ms = next_ms
    steady = seconds[2:]  # the first two compile, and find few sessions
    result = {
        "bench": "session_rules_in_process",
        "events": len(users),
        "keys": options.keys,
        "late": options.late,
        "firings": len(found),
        "cpu_microseconds_per_event": round(sum(steady) / len(steady) / PER_CUT * 1e6, 2),
        "right": {*found} == expected_firings(users, times) and len({*found}) == len(found),
    }
    print(json.dumps(result))
    assert result["right"]


if __name__ == "__main__":
    main()
