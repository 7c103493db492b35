"""Measures lists with half a million entries in event rules, on one core, without Spark, Kafka and JSON.

A thousand rules over a million events, in four cases: without lists; every tenth rule with ``user_id not in
list('trusted')``, with one entry in the list, and with half a million; and every tenth rule with ``amount >
lookup('limits', user_id)`` as well. The cases take turns, cut by cut. Alerts are compared with the oracle's pairs of
rule and event, filtered by a Python set and dictionary. The figures are CPU times: of the cuts, and of filling the
columns of lists in them; of storing a list, of adding one entry, of loading the list after a restart, and of a cut
without events. The first cut, which loads code, is not measured.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.lists
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson
import polars as pl

from bench.harness import rules_oracle as oracle
from bench.harness.events import SCHEMA, STREAM, EventSet, to_texts
from bench.harness.generated_rules import EventRules, event_rule_id, event_rules, record
from bench.harness.result import show
from rulecore.documents.yaml_reader import Json
from rulecore.factory import RulesFactory
from rulecore.kernel import RulesKernel, control_record
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.records import ListHead, list_records
from rulecore.streams import RuleStream
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema, Type
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import ALERTS, STATUS

EVENTS = 1_000_000
CUT_ROWS = 20_000
RULES = 1_000
ENTRIES = 500_000
EVERY = 10  # one rule in this many has the condition with lists
KNOWN = 5_000  # users in the lists that have events; the other entries are users without events
_STREAM = StreamSchema.parse(SCHEMA)
_CLOCK_MS = 1_800_000_000_000
_IDLE_CUTS = 64
_FIRST = "u0000000"

KeyedRecords = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Lists:
    """The entries of both lists, in plain Python."""

    trusted: frozenset[str]
    limits: Mapping[str, int]

    def records(self, version: int, more: Sequence[str] = ()) -> tuple[KeyedRecords, KeyedRecords]:
        """Return the control records of both lists."""
        string, money = Type.parse("string"), Type.parse("decimal(12,2)")
        trusted = ListHead(list="trusted", version=version, owner="bench", of=string)
        limits = ListHead(list="limits", version=version, owner="bench", of=string, value=money)
        values: list[Json] = [[user, f"{cents // 100}.{cents % 100:02}"] for user, cents in self.limits.items()]
        return list_records(trusted, [*sorted(self.trusted), *more]), list_records(limits, values)


def lists() -> Lists:
    """Return lists of the first ``KNOWN`` users, and of further users that have no event."""
    users = [f"u{n:07d}" for n in [*range(KNOWN), *range(1_000_000, 1_000_000 + ENTRIES - KNOWN)]]
    return Lists(frozenset(users), {user: n * 37 % 1_000_000 for n, user in enumerate(users)})


def rule_records(rules: EventRules, condition: str) -> Iterator[tuple[str, bytes]]:
    """Return the rules, every tenth of them with the added condition."""
    for number, (rule_id, value) in enumerate(rules.control_records()):
        if number % EVERY or not condition:
            yield rule_id, value
        else:
            yield rule_id, record(rule_id, where=f"({orjson.loads(value)['where']}) and {condition}")


def frames(events: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the events as a frame of physical columns for each cut."""
    named = to_texts(events).drop("amount", "risk", "ts", "quantity")
    numbers = events.select(
        pl.col("ts"),
        pl.col("amount").cast(pl.Int64),
        (pl.col("risk") / 1_000_000).alias("risk"),
        pl.col("quantity").cast(pl.Int64),
        pl.col("ts").alias(EVENT_MS),
        pl.col("partition").alias(PARTITION),
        pl.col("offset").alias(OFFSET),
    )
    return [*named.hstack(numbers).iter_slices(CUT_ROWS)]


class Runner:
    """A kernel, its state log, and the CPU time that it has used."""

    def __init__(self) -> None:
        self.kernel = RulesKernel(RulesFactory((RuleStream(_STREAM, STREAM),)))
        self.log, self.blobs = StateLog(StateSettings()), MemoryBlobs()
        self.cuts_cpu_s: list[float] = []
        self.filling_cpu_s, self.written = 0.0, 0
        self.pairs: list[tuple[str, int, int]] = []

    def cut(self, events: pl.DataFrame | None, control: Sequence[ControlRecord] = ()) -> float:
        """Run one cut and commit it. Return its CPU-seconds."""
        rows = {} if events is None else {StreamKey(STREAM, 0): events}
        began = time.process_time()
        records = self.kernel.step(Cut(0, rows, control, _CLOCK_MS, NO_WATERMARK, NO_WATERMARK, {})).records
        self.written += self.log.commit(self.blobs, self.kernel.tables(), {"cut": self.log.head.sequence})
        spent = time.process_time() - began
        for one in records:
            value = orjson.loads(one.value or b"null")
            if one.lane == ALERTS:
                self.pairs.append((value["rule"], value["source"]["partition"], value["source"]["offset"]))
            assert one.lane != STATUS or value["status"] == "accepted", value
        return spent

    def fill(self, events: pl.DataFrame) -> None:
        """Fill the columns of the lists again, and add the CPU-seconds of this alone to ``filling_cpu_s``."""
        began = time.process_time()
        columns, contents = self.kernel.rules.added_columns(STREAM), self.kernel.lists.contents(_CLOCK_MS)
        with_list_columns(events, columns, contents)
        self.filling_cpu_s += time.process_time() - began

    def publish(self, records: Iterator[tuple[str, bytes]] | KeyedRecords) -> float:
        """Run a cut with these control records. Return its CPU-seconds."""
        return self.cut(None, [control_record(key, value, n) for n, (key, value) in enumerate(records)])

    def restart(self) -> tuple[Runner, float]:
        """Return a new runner that has loaded this runner's state, and the CPU-seconds of loading."""
        other = Runner()
        began = time.process_time()
        other.log.load(self.blobs.get("head"), self.blobs, other.kernel.table)
        other.kernel.on_state_loaded()
        other.blobs = self.blobs
        return other, time.process_time() - began


def expected_alerts(pairs: pl.DataFrame, holds: Callable[[str, int], bool]) -> set[tuple[str, int, int]]:
    """Return the oracle's pairs; those of every tenth rule only if ``holds`` for user and amount (in cents)."""
    return {
        (event_rule_id(rule), partition, offset)
        for rule, user, cents, partition, offset in pairs.iter_rows()
        if rule % EVERY or holds(f"u{user:07d}", cents)
    }


def main() -> None:
    """Measure, compare with the oracle, and print the result."""
    events = EventSet(EVENTS).columns()
    work, rules, known = frames(events), event_rules(RULES, 100_000), lists()
    positions = events.select("partition", "offset", "user", "amount")
    pairs = oracle.event_pairs(events, rules).join(positions, on=["partition", "offset"])
    pairs = pairs.select("rule", "user", "amount", "partition", "offset")
    not_in, limit = "user_id not in list('trusted')", "amount > lookup('limits', user_id)"
    trusted, limits = known.records(1)
    small = Lists(frozenset([_FIRST]), {}).records(1)[0]
    cases: list[tuple[str, str, KeyedRecords, Callable[[str, int], bool]]] = [
        ("none", "", [], _always),
        ("small", not_in, small, lambda user, _: user != _FIRST),
        ("one", not_in, trusted, lambda user, _: user not in known.trusted),
        (
            "two",
            f"({not_in} or {limit})",
            [*trusted, *limits],
            lambda user, cents: _not_trusted_or_over_limit(known, user, cents),
        ),
    ]
    runners = {name: Runner() for name, *_ in cases}
    memory = {}
    for name, condition, records, _ in cases:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu_s = runners[name].publish(records)
        memory[name] = (cpu_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        runners[name].publish(rule_records(rules, condition))
    turns = [*runners.values()]
    for frame in work:
        for runner in turns:
            runner.cuts_cpu_s.append(runner.cut(frame))
            runner.fill(frame)
        turns.append(turns.pop(0))
    for name, _, _, holds in cases:
        found = runners[name].pairs
        if len(found) != len(set(found)) or set(found) != expected_alerts(pairs, holds):
            raise SystemExit(f"{name}: the alerts are not those of the oracle")
    for name, _, records, _ in cases:
        runner = runners[name]
        show(
            {
                "bench": "lists in process",
                "lists": name,
                "events": EVENTS,
                "rules": RULES,
                "alerts": len(runner.pairs),
                "equals_oracle": True,
                "cpu_s_per_million": round(sum(runner.cuts_cpu_s[1:]) * 1e6 / (EVENTS - CUT_ROWS), 2),
                "median_cut_cpu_s_per_million": round(statistics.median(runner.cuts_cpu_s) * 1e6 / CUT_ROWS, 2),
                "filling_cpu_s_per_million": round(runner.filling_cpu_s * 1e6 / EVENTS, 2),
                "taking_in_cpu_s": round(memory[name][0], 3),
                "taking_in_mib": memory[name][1],
                "record_bytes": sum(len(value) for _, value in records),
                "records": len(records),
            }
        )
    show({"bench": "lists in state", **_measure_state(known, runners["one"], trusted)})


def _always(_user: str, _cents: int) -> bool:
    return True


def _not_trusted_or_over_limit(known: Lists, user: str, cents: int) -> bool:
    limit = known.limits.get(user)
    return user not in known.trusted or (limit is not None and cents > limit)


def _measure_state(known: Lists, runner: Runner, before: KeyedRecords) -> dict[str, float | int]:
    """Measure the publication of one more entry, a restart, and empty cuts."""
    empty = Runner()
    empty.publish([])
    for measured in (empty, runner):
        measured.written = 0
    idle = [sum(measured.cut(None) for _ in range(_IDLE_CUTS)) / _IDLE_CUTS for measured in (empty, runner)]
    written = runner.written // _IDLE_CUTS
    changed = [r for r in known.records(2, ["u-added"])[0] if r not in before]
    edit = runner.publish(changed)
    other, restart = runner.restart()
    return {
        "entries": ENTRIES,
        "idle_cut_ms_without": round(idle[0] * 1000, 3),
        "idle_cut_ms": round(idle[1] * 1000, 3),
        "idle_cut_bytes": written,
        "records_to_add_one_entry": len(changed),
        "adding_one_entry_cpu_s": round(edit, 3),
        "restart_cpu_s": round(restart, 3),
        "first_cut_after_restart_cpu_s": round(other.cut(None), 3),
    }


if __name__ == "__main__":
    main()
