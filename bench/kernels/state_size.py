"""Compares the size of rules' state that ``rulecore.state_size`` counts with the memory that the state takes.

    POLARS_MAX_THREADS=1 python -m bench.kernels.state_size [--keys 400000] [--kinds window,absence]

It prints one JSON line for each kind of rule: the bytes that budgets count, and the growth of the resident memory of a
separate process, while every event has a new key. ``--budget BYTES``: the budget of a rule; without it, none.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import polars as pl

from rulecore.factory import RulesFactory
from rulecore.kernel import RulesKernel, control_record
from rulecore.settings import StateBudgets
from rulecore.state_size import StateHolder
from rulecore.streams import RuleStream
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

CUT = 10_000
START_MS = 1_760_000_400_000
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["id"]],
        "fields": {"ts": "timestamp not null", "id": "string", "user": "string", "amount": "long"},
    }
)
_STEPS = [{"step": "first", "where": "amount >= 0"}, {"step": "second", "where": "amount < 0"}]
RULES: Mapping[str, Mapping[str, object]] = {
    "window": {"within": {"tumbling": "400d"}, "having": "count_distinct(user) > 1000"},
    "numbers": {"within": {"tumbling": "400d"}, "having": "sum(amount) > 1000000"},
    "sequence": {"within": "30d", "sequence": _STEPS},
    "absence": {"expect": {"every": "30d", "where": "amount >= 0"}},
    "session": {"within": {"session": "30d"}, "having": "count_distinct(user) > 1000"},
    "count": {"within": {"count": 1000}, "having": "sum(amount) > 1000000"},
    "score": {"score": {"of": ["any"], "within": "30d", "limit": 1_000_000}},
    "suppressed": {"where": "amount >= 0", "suppress": {"by": ["id"], "for": "30d"}},
    "report": {},  # the rules window, sequence and absence together
}


def documents(kind: str) -> list[ControlRecord]:
    """Return the control records of the rules of a kind."""
    names = {"report": ("window", "sequence", "absence"), "score": ("any", "score")}.get(kind, (kind,))
    records = []
    for offset, name in enumerate(names):
        body: dict[str, object] = {"id": name, "version": 1, "owner": "o", "on": "pay"}
        body |= {"then": {"severity": "low", "message": "m"}}
        if name == "any":
            body |= {"where": "amount >= 0", "then": {"severity": "low", "message": "m", "score": 1}}
        else:
            body |= RULES[name] if kind == "suppressed" else {"group_by": ["id"], **RULES[name]}
        records.append(control_record(name, orjson.dumps(body), offset))
    return records


def frame(number: int) -> pl.DataFrame:
    """Return the events of a cut, each with a key of its own."""
    n = pl.int_range(number * CUT, (number + 1) * CUT, eager=True)
    text = pl.DataFrame({"n": n}).select(
        pl.format("order-{}", pl.col("n").cast(pl.String).str.zfill(12)).alias("id"),
        pl.format("u{}", pl.col("n") % 400).alias("user"),
    )
    times = pl.Series(EVENT_MS, n + START_MS)
    places = [pl.Series(PARTITION, [0] * CUT, dtype=pl.Int32), n.alias(OFFSET)]
    return text.with_columns(times.alias("ts"), (n % 100).alias("amount"), times, *places)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, after it has returned all free memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def measure(kind: str, keys: int, budget: int | None) -> dict[str, object]:
    """Run a kernel over events of ``keys`` keys, and return its figures. Call it in a separate process."""
    most = 2**60
    budgets = StateBudgets(budget or most, most, most)
    kernel = RulesKernel(RulesFactory((RuleStream(SCHEMA, "pay"),), budgets=budgets))
    control, watermark, at_start, highest, over = documents(kind), START_MS - 1, 0, 0, []
    for number in range(1 + keys // CUT):
        after = START_MS + number * CUT
        cut = Cut(0, {StreamKey("pay", 0): frame(number)}, control, after, watermark, after, {"pay": watermark})
        control, watermark = [], after
        output = kernel.step(cut)
        bodies = [orjson.loads(record.value or b"null") for record in output.records if record.lane == "status"]
        if rejected := [b for b in bodies if b["status"] == "rejected"]:
            raise SystemExit(f"{kind}: {rejected[0]['reason']}")
        over += [b["reason"] for b in bodies if b["status"] == "quarantined"]
        for table in kernel.tables().values():
            table.changes()
            table.rows(number % 64, 64)
        if number == 0:
            at_start = resident_bytes()
        highest = max(highest, resident_bytes() - at_start) if number % 5 == 0 else highest
    holders: list[StateHolder] = [*kernel.groups.values(), kernel.dispatcher.suppression]
    counted = sum(holder.state_use(watermark).total.bytes for holder in holders)
    grown = resident_bytes() - at_start
    return {
        "bench": "state_size",
        "kind": kind,
        "keys": keys,
        "counted_bytes_a_key": round(counted / (keys + CUT)),
        "resident_bytes_a_key": round(grown / keys),
        "counted_to_resident": round(counted / max(grown, 1), 2),
        "highest_resident_mb": round(highest / 1e6),
        "quarantined": over,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=400_000)
    parser.add_argument("--kinds", default=",".join(RULES))
    parser.add_argument("--budget", type=int)
    options = parser.parse_args(arguments)
    for kind in options.kinds.split(","):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(json.dumps(pool.apply(measure, (kind, options.keys, options.budget))), flush=True)


if __name__ == "__main__":
    main()
