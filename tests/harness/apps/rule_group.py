"""One group of rules with state, without decoder and kernel: cuts as frames, processes that take turns, a state log.

Fast enough for thousands of runs of a property. What is around a group in production is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.loading import decode_record
from rulecore.firing import RuleFiring
from rulecore.groups.base import CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings, StateTable
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK

Row = Mapping[str, object]
TOPIC = "events"


def compile_document(document: bytes, schema: StreamSchema) -> CompiledRule:
    """Return a rule as the rule set would compile it."""
    return compile_rule(decode_record(document, 1 << 20), {schema.name: schema}, RuleLimits())


def frame_of(schema: StreamSchema, rows: Sequence[tuple[int, int, int, Row]]) -> pl.DataFrame:
    """(time, partition, offset, physical values of the other columns) as a kernel sees them."""
    types = pl.DataFrame(schema.arrow.empty_table()).schema
    engine = [{EVENT_MS: ms, PARTITION: p, OFFSET: o, schema.event_time: ms, **row} for ms, p, o, row in rows]
    return pl.DataFrame(engine, schema=types)


class Process:
    """A group in one process, with as much of the state as it knows."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self._of = (group, schema, settings)
        self._forget()

    def _forget(self) -> None:
        self.group: RuleGroup = make_group(*self._of)
        self.memory = KeyValueTable()
        self.log = StateLog(StateSettings(buckets=2))

    def read(self, blobs: MemoryBlobs, rules: Sequence[CompiledRule]) -> None:
        """Bring it to what is stored."""
        stored = blobs.get(HEAD)
        if self.log.holds(stored):
            return
        assert stored is not None
        if not self.log.catch_up(stored, blobs, self._table):
            self._forget()
            self.log.load(stored, blobs, self._table)
        self.group.set_rules(rules, self.memory, NO_WATERMARK, 0)

    def _table(self, name: str) -> StateTable:
        return self.memory if name == "groups" else self.group.table(name)

    def commit(self, blobs: MemoryBlobs) -> int:
        """Write what changed; the bytes."""
        return self.log.commit(blobs, {"groups": self.memory, **self.group.tables()}, {})


@dataclass
class GroupRun:
    """Rules over cuts. ``processes`` 0: each cut is taken by a new one."""

    schema: StreamSchema
    rules: Sequence[CompiledRule]
    processes: int = 1
    settings: GroupSettings = field(default_factory=GroupSettings)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    watermark_ms: int = NO_WATERMARK
    cuts: int = 0

    def __post_init__(self) -> None:
        self._all = [self._new() for _ in range(max(1, self.processes))]
        self.last = self._all[0]
        self.change(self.rules)

    def _new(self) -> Process:
        group = GroupId.for_rule(self.rules[0])
        assert group is not None
        return Process(group, self.schema, self.settings)

    def change(self, rules: Sequence[CompiledRule], latest_ms: int = NO_WATERMARK) -> None:
        """Set the rules; the latest event time so far is ``latest_ms``."""
        self._next()
        self.rules = rules
        self.last.group.set_rules(rules, self.last.memory, latest_ms, self.watermark_ms)
        self.last.commit(self.blobs)

    def cut(self, rows: Sequence[tuple[int, int, int, Row]], next_watermark_ms: int) -> list[RuleFiring]:
        """One cut: events in order of arrival, and what the watermark is at its end."""
        self._next()
        moment = CutContext(0, 1, TOPIC, 0, self.watermark_ms, next_watermark_ms)
        added, failures = self.last.group.add(frame_of(self.schema, rows), moment) if rows else ([], [])
        closed, more = self.last.group.close(moment)
        assert not failures
        assert not more
        self.last.commit(self.blobs)
        self.watermark_ms = next_watermark_ms
        return [*added, *closed]

    def _next(self) -> None:
        """Choose processes in an irregular rhythm, so that some process misses many cuts."""
        self.cuts += 1
        self.last = self._all[self.cuts**2 % self.processes] if self.processes else self._new()
        self.last.read(self.blobs, self.rules)
