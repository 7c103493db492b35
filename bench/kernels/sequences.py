"""Measures a sequence rule in the rules kernel, without Spark, Kafka and JSON: failed logins, then a large purchase.

A million events of 100,000 users cover an hour, 5 % of them out of order by up to five seconds; one user in twenty has
many failed logins. The kernel processes cuts of 100,000 events and commits its state to memory after each. The alerts
are compared with the matches that a plain loop over each user's events finds.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.sequences [--rules N] [--amounts] [--firsts]
        [--apart PERCENT] [--earlier] [--earlier-other] [--earlier-apart] [--timed-out] [--equal-limits]

``--rules``: the number of rules; each has another time limit for the purchase, with ``--amounts`` another amount, and
with ``--firsts`` another condition on the failed logins, though the same ones satisfy it. ``--apart``: rule n leaves
out n times so many percent of the failed logins. ``--earlier``: the purchase has a condition on the last failed login
that always holds. ``--earlier-other``: each rule has another one that always holds. ``--earlier-apart``: rule n has one
that fails for more purchases the larger n is. ``--timed-out``: what times out is an alert. ``--equal-limits``: of
time, for all rules.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from bench.harness.result import show
from rulecore.factory import RulesFactory
from rulecore.groups.sequences.group import SequenceGroup
from rulecore.kernel import RulesKernel
from rulecore.streams import RuleStream
from streamcore.kernel import ControlRecord, Cut, KernelOutput, StreamKey
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import END_OF_TIME_MS
from streamcore.wire.lanes import ALERTS

EVENTS, USERS, CUT = 1_000_000, 100_000, 100_000
START_MS, SPAN_MS = 1_760_000_000_000, 3_600_000
DISORDER_MS, DISORDERED = 5_000, 0.05
TIMES, FIRST_MS, NEXT_MS = 3, 600_000, 300_000
LARGE_CENTS = 50_000
SCHEMA = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {
            "ts": "timestamp not null",
            "user_id": "string",
            "type": "string not null",
            "status": "string",
            "amount": "decimal(12,2)",
        },
    }
)
FAILED, OK, PAYMENT, OTHER = range(4)
_TYPES = ["login", "login", "payment", "view"]
_STATUS = ["failed", "ok", "ok", None]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Events in order of arrival. An event is at most ``DISORDER_MS`` behind the latest event before it."""

    user: Ints
    kind: Ints
    cents: Ints
    event_ms: Ints

    def frame(self) -> pl.DataFrame:
        users = pl.Series("user_id", [f"user-{n:07d}" for n in range(USERS)])
        return pl.DataFrame(
            {
                "ts": self.event_ms,
                "user_id": users.gather(self.user),
                "type": pl.Series(_TYPES).gather(self.kind),
                "status": pl.Series(_STATUS).gather(self.kind),
                "amount": pl.Series(self.cents),
                PARTITION: pl.Series(np.zeros(len(self.user)), dtype=pl.Int32),
                OFFSET: np.arange(len(self.user)),
                EVENT_MS: self.event_ms,
            }
        )


def events(seed: int = 1, count: int = EVENTS) -> Events:
    """Return ``count`` events, a million per hour."""
    random = np.random.default_rng(seed)
    user = random.integers(0, USERS, count)
    usual = random.choice(4, count, p=[0.1, 0.15, 0.2, 0.55])
    attacked = random.choice(4, count, p=[0.7, 0.01, 0.24, 0.05])
    steady = START_MS + np.linspace(0, SPAN_MS * count // EVENTS, count).astype(np.int64)
    behind = np.where(random.random(count) < DISORDERED, random.integers(0, DISORDER_MS, count), 0)
    kind = np.where(user % 20 == 0, attacked, usual)
    return Events(user, kind, random.integers(0, 100_000, count), steady - behind)


def rules(options: argparse.Namespace) -> list[ControlRecord]:
    """Return the rules. The oracle computes rule 0. Rule n allows n seconds more, or asks for an amount of n more."""
    found = []
    count, amounts, firsts, apart = options.rules, options.amounts, options.firsts, options.apart
    for n in range(count):
        first = f" and user_id <> 'nobody {n}'" if firsts else ""
        first += f" and amount >= {10 * n * apart}" if apart else ""
        next_s = NEXT_MS // 1_000 + n * (not options.equal_limits)
        document = orjson.loads(rule(f"r{n}", next_s, SCHEMA.name, 500 + n * amounts, first))
        if options.earlier:
            document["sequence"][-1]["where"] += " and amount + 10000 > last(failed.amount)"
        if options.earlier_other:
            document["sequence"][-1]["where"] += f" and amount + 10000 > {n + 1} * last(failed.amount)"
        if options.earlier_apart:
            document["sequence"][-1]["where"] += f" and amount * 10 > {n} * last(failed.amount)"
        if options.timed_out:
            document["timed_out"] = "emit"
        found.append(ControlRecord(0, n, f"r{n}".encode(), orjson.dumps(document)))
    return found


def rule(rule_id: str, next_s: int, stream: str, amount: int = 500, first: str = "") -> bytes:
    """Return the control record of the rule on a stream with these columns."""
    purchase = {"step": "purchase", "where": f"type = 'payment' and amount > {amount}", "within": f"{next_s}s"}
    failed = {
        "step": "failed",
        "where": f"type = 'login' and status = 'failed'{first}",
        "times": TIMES,
        "within": "10m",
    }
    return orjson.dumps(
        {
            "id": rule_id,
            "version": 1,
            "owner": "bench",
            "on": stream,
            "group_by": ["user_id"],
            "sequence": [failed, {"without": "type = 'login' and status = 'ok'"}, purchase],
            "within": "1h",
            "then": {"severity": "high", "message": "{user_id} paid {purchase.amount} after {count} events"},
        }
    )


def expected_matches(all_events: Events) -> set[tuple[int, ...]]:
    """Return the offsets of each match of rule 0, from a plain loop over each user's events in order of time."""
    order = np.lexsort((np.arange(len(all_events.user)), all_events.event_ms, all_events.user))
    kinds = np.where((all_events.kind == PAYMENT) & (all_events.cents <= LARGE_CENTS), OTHER, all_events.kind)
    order = order[kinds[order] != OTHER]
    matches: set[tuple[int, ...]] = set()
    edges = np.flatnonzero(np.diff(all_events.user[order], prepend=-1, append=-1)).tolist()
    for low, high in itertools.pairwise(edges):
        offsets = order[low:high].tolist()
        matches.update(_user_matches([(kinds[o].item(), all_events.event_ms[o].item(), o) for o in offsets]))
    return matches


def _user_matches(user_events: Sequence[tuple[int, int, int]]) -> Iterable[tuple[int, ...]]:
    """Yield the offsets of each match of one user.

    ``own``: kind, time and offset of the user's failed logins, other logins and large payments.
    """
    failed: list[int] = []  # indexes of failed logins that may still be part of a match
    for index, (kind, time_ms, _) in enumerate(user_events):
        if kind == FAILED:
            failed.append(index)
        elif kind == OK:
            failed = failed[-(TIMES - 1) :]  # a full set of failed logins is discarded, a smaller one continues
        else:
            starts = (failed[first : first + TIMES] for first in range(len(failed) - TIMES + 1))
            for logins in starts:
                last_ms = user_events[logins[-1]][1]
                if last_ms - user_events[logins[0]][1] <= FIRST_MS and time_ms - last_ms <= NEXT_MS:
                    yield tuple(user_events[i][2] for i in (*logins, index))
                    failed = []
                    break


@dataclass
class RunCosts:
    """The costs and the output of a run. ``found``: the offsets of the events of each alert of rule 0."""

    step_s: float = 0.0
    commit_s: float = 0.0
    written: int = 0
    alerts: int = 0
    most_events: int = 0
    most_partials: int = 0
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    found: set[tuple[int, ...]] = field(default_factory=set)


def run(frame: pl.DataFrame, control: list[ControlRecord]) -> RunCosts:
    """Run the kernel over all events in cuts, then over the end of the stream."""
    kernel = RulesFactory((RuleStream(SCHEMA, "shop"),))()
    assert isinstance(kernel, RulesKernel)
    log, spent = StateLog(StateSettings()), RunCosts()
    before = latest = NO_WATERMARK
    for start in range(0, frame.height + CUT, CUT):
        cut = frame[start : start + CUT]
        latest = max(latest, int(cut[EVENT_MS].to_numpy().max(initial=NO_WATERMARK)))
        after = latest - DISORDER_MS if cut.height else END_OF_TIME_MS
        frames = {StreamKey("shop", 0): cut} if cut.height else {}
        began = time.process_time()
        output = kernel.step(Cut(0, frames, control, after, before, after, {}))
        middle = time.process_time()
        spent.written += log.commit(spent.blobs, kernel.tables(), {})
        spent.step_s += middle - began
        spent.commit_s += time.process_time() - middle
        before, control = after, []
        _count_output(spent, kernel, output)
    return spent


def _count_output(spent: RunCosts, kernel: RulesKernel, output: KernelOutput) -> None:
    alerts = [orjson.loads(r.value or b"") for r in output.records if r.lane == ALERTS]
    spent.alerts += len(alerts)
    matches = [a for a in alerts if a["rule"] == "r0" and not a["values"].get("timed_out")]
    spent.found |= {tuple(event["offset"] for event in match["events"]) for match in matches}
    for group in kernel.groups.values():
        assert isinstance(group, SequenceGroup)
        spent.most_events = max(spent.most_events, len(group.buffer))
        spent.most_partials = max(spent.most_partials, len(group.store))


def main() -> None:
    """Run on a few events, so that imports are not measured, then on all; compare, and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rules", type=int, default=1)
    parser.add_argument("--amounts", action="store_true")
    parser.add_argument("--firsts", action="store_true")
    parser.add_argument("--apart", type=int, default=0, metavar="PERCENT")
    parser.add_argument("--earlier", action="store_true")
    parser.add_argument("--earlier-other", action="store_true")
    parser.add_argument("--earlier-apart", action="store_true")
    parser.add_argument("--timed-out", action="store_true")
    parser.add_argument("--equal-limits", action="store_true")
    options = parser.parse_args()
    control = rules(options)
    all_events = events()
    frame = all_events.frame()
    run(frame[:CUT:10], control)
    spent, right = run(frame, control), expected_matches(all_events)
    if spent.found != right:
        raise SystemExit(f"wrong: {len(spent.found - right)} too many, {len(right - spent.found)} missing")
    show(
        {
            "bench": "sequences in process",
            "rules": len(control),
            "other_amounts": options.amounts,
            "other_firsts": options.firsts,
            "percent_apart": options.apart,
            "earlier": options.earlier,
            "earlier_other": options.earlier_other,
            "earlier_apart": options.earlier_apart,
            "timed_out": options.timed_out,
            "equal_limits": options.equal_limits,
            "events": EVENTS,
            "users": USERS,
            "alerts": spent.alerts,
            "equals_oracle": True,
            "cpu_seconds_per_million": round((spent.step_s + spent.commit_s) / EVENTS * 1e6, 2),
            "step_cpu_s": round(spent.step_s, 2),
            "commit_cpu_s": round(spent.commit_s, 2),
            "most_events_waiting": spent.most_events,
            "most_partials": spent.most_partials,
            "state_bytes_written": spent.written,
            "state_bytes_at_the_end": sum(map(len, spent.blobs.blobs.values())),
        }
    )


if __name__ == "__main__":
    main()
