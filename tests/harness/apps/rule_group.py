"""One group of rules, without decoder and kernel: processes that take turns at its cuts, and a state log.

Fast enough for thousands of runs of a property. What is around a group in production is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.loading import decode_record
from rulecore.documents.rule import Rule
from rulecore.firing import RuleFiring
from rulecore.groups.base import CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.language import ListType
from rulecore.language.types import Value
from rulecore.settings import GroupSettings
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings, StateTable
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK

#: The values of the fields of an event other than its time.
Row = Mapping[str, object]
#: Event time in milliseconds, partition, offset and values.
Arrival = tuple[int, int, int, Row]
MINUTE = 60_000
#: The stream of ``Event`` and ``compile_fields``.
BEATS = StreamSchema.parse(
    {
        "name": "beats",
        "event_time": "ts",
        "keys": [["device"], ["site"]],
        "fields": {"ts": "timestamp not null", "device": "string", "site": "long", "kind": "string", "load": "long"},
    }
)


def compile_document(document: bytes, schema: StreamSchema) -> CompiledRule:
    """Return a rule as the rule set would compile it."""
    return compile_rule(decode_record(document, 1 << 20), {schema.name: schema}, RuleLimits())


def compile_fields(rule_id: str, /, **fields: object) -> CompiledRule:
    """Return a rule on ``BEATS``. It may use the list ``fleet``, whose entries have the type of its first key."""
    document = {"id": rule_id, "version": 1, "owner": "o", "on": BEATS.name}
    then = {"severity": "high", "message": "m"}
    rule = Rule.model_validate(document | {"then": then} | fields)
    listed = BEATS.get(rule.group_by[0]) if rule.group_by else None
    lists = {} if listed is None else {"fleet": ListType("fleet", listed.type, None)}
    return compile_rule(rule, {BEATS.name: BEATS}, RuleLimits(), lists)


@dataclass(frozen=True)
class Event:
    """One event of ``BEATS``; ``minute`` is its time."""

    minute: float
    device: str | None = "a"
    kind: str = "beat"
    site: int | None = 1
    load: int | None = None

    def arrival(self, offset: int) -> Arrival:
        """Return the event as the record at an offset of partition 0."""
        values = {"device": self.device, "kind": self.kind, "site": self.site, "load": self.load}
        return int(self.minute * MINUTE), 0, offset, values


@dataclass(frozen=True, eq=False)
class Content:
    """A list at a cut. Another content is another object, as a value of the same content may be."""

    values: Collection[Value]


@dataclass
class Process:
    """A group in one process, with as much of the state as it knows."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    shard: int = 0
    shards: int = 1
    schema: StreamSchema = BEATS
    log: StateLog = field(default_factory=lambda: StateLog(StateSettings(buckets=2)))
    memory: KeyValueTable = field(default_factory=KeyValueTable)
    _group: RuleGroup | None = None

    @property
    def group(self) -> RuleGroup:
        """Return the group; there is one after ``set_rules`` or ``read``."""
        assert self._group is not None
        return self._group

    def set_rules(self, rules: Sequence[CompiledRule], now_ms: int = NO_WATERMARK, watermark_ms: int = 0) -> None:
        """Set the rules, as the kernel does after a change and after a restart. ``now_ms``: the latest event time."""
        self._make_group(rules)
        self.group.set_rules(rules, self.memory, now_ms, watermark_ms)

    def read(self, blobs: MemoryBlobs, rules: Sequence[CompiledRule]) -> Process:
        """Return this process, or a new one, with the committed state."""
        head = blobs.get(HEAD)
        if self._group is not None and self.log.holds(head):
            return self
        if self._group is not None and head is not None and self.log.catch_up(head, blobs, self._table):
            self.set_rules(rules)
            return self
        new = Process(self.settings, self.shard, self.shards, self.schema)
        new._make_group(rules)
        new.log.load(head, blobs, new._table)
        new.set_rules(rules)
        return new

    def cut(
        self, events: Sequence[Event], watermarks: tuple[float, float], lists: Mapping[str, Content] | None = None
    ) -> list[RuleFiring]:
        """Take one cut of events of ``BEATS``, between two watermarks in minutes."""
        before, after = (NO_WATERMARK if w < -1e9 else int(w * MINUTE) for w in watermarks)
        return self.step([event.arrival(offset) for offset, event in enumerate(events)], before, after, lists)

    def step(
        self,
        rows: Sequence[Arrival],
        watermark_ms: int,
        next_watermark_ms: int,
        lists: Mapping[str, Content] | None = None,
    ) -> list[RuleFiring]:
        """Take one cut of rows, in order of arrival."""
        context = CutContext(
            self.shard, KeySpace(self.shards), "events", 0, watermark_ms, next_watermark_ms, lists or {}
        )
        added, failures = self.group.add(self._frame(rows), context) if rows else ([], [])
        closed, more = self.group.close(context)
        assert not failures
        assert not more
        return [*added, *closed]

    def commit(self, blobs: MemoryBlobs) -> None:
        """Write what changed."""
        self.log.commit(blobs, {"groups": self.memory, **self.group.tables()}, {})

    def _make_group(self, rules: Sequence[CompiledRule]) -> None:
        if self._group is None:
            group_id = GroupId.for_rule(rules[0])
            assert group_id is not None
            self._group = make_group(group_id, self.schema, self.settings)

    def _table(self, name: str) -> StateTable:
        return self.memory if name == "groups" else self.group.table(name)

    def _frame(self, rows: Sequence[Arrival]) -> pl.DataFrame:
        """Return the rows as the kernel gives them to a group."""
        types = pl.DataFrame(self.schema.arrow.empty_table()).schema
        time = self.schema.event_time
        columns = [{EVENT_MS: ms, PARTITION: p, OFFSET: offset, time: ms, **row} for ms, p, offset, row in rows]
        return pl.DataFrame(columns, schema=types)


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
        self._set_rules(NO_WATERMARK)

    def _new(self) -> Process:
        return Process(self.settings, schema=self.schema)

    def change(self, rules: Sequence[CompiledRule], latest_ms: int = NO_WATERMARK) -> None:
        """Set the rules; the latest event time so far is ``latest_ms``."""
        self._next()
        self.rules = rules
        self._set_rules(latest_ms)

    def _set_rules(self, latest_ms: int) -> None:
        self.last.set_rules(self.rules, latest_ms, self.watermark_ms)
        self.last.commit(self.blobs)

    def cut(self, rows: Sequence[Arrival], next_watermark_ms: int) -> list[RuleFiring]:
        """Take one cut: events in order of arrival, and what the watermark is at its end."""
        self._next()
        firings = self.last.step(rows, self.watermark_ms, next_watermark_ms)
        self.last.commit(self.blobs)
        self.watermark_ms = next_watermark_ms
        return firings

    def _next(self) -> None:
        """Choose processes in an irregular rhythm, so that some process misses many cuts."""
        self.cuts += 1
        turn = self.cuts**2 % len(self._all)
        self.last = (self._all[turn] if self.processes else self._new()).read(self.blobs, self.rules)
        self._all[turn] = self.last
