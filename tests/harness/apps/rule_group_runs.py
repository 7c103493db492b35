"""A group of rules by itself, stepped cut by cut, with its state committed after each: what several tests drive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.firing import RuleFiring
from rulecore.groups.base import CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.language import ListType
from rulecore.language.types import Value
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings, StateTable
from streamcore.watermark import NO_WATERMARK

MINUTE = 60_000

SCHEMA = StreamSchema.parse(
    {
        "name": "beats",
        "event_time": "ts",
        "keys": [["device"], ["site"]],
        "fields": {"ts": "timestamp not null", "device": "string", "site": "long", "kind": "string", "load": "long"},
    }
)


def compile_fields(rule_id: str, /, **fields: object) -> CompiledRule:
    """Return a rule over ``SCHEMA``."""
    document = {"id": rule_id, "version": 1, "owner": "o", "on": "beats"}
    then = {"severity": "high", "message": "m"}
    rule = Rule.model_validate(document | {"then": then} | fields)
    listed = SCHEMA.get(rule.group_by[0]) if rule.group_by else None
    lists = {} if listed is None else {"fleet": ListType("fleet", listed.type, None)}
    return compile_rule(rule, {"beats": SCHEMA}, RuleLimits(), lists)


@dataclass(frozen=True)
class Event:
    """One event; ``minute`` is its time."""

    minute: float
    device: str | None = "a"
    kind: str = "beat"
    site: int | None = 1
    load: int | None = None


def frame_of(events: Sequence[Event], first_offset: int = 0) -> pl.DataFrame:
    """As the kernel gives events to a group."""
    times = [int(e.minute * MINUTE) for e in events]
    columns = {
        "ts": pl.Series(times, dtype=pl.Int64),
        "device": pl.Series([e.device for e in events], dtype=pl.String),
        "site": pl.Series([e.site for e in events], dtype=pl.Int64),
        "kind": pl.Series([e.kind for e in events], dtype=pl.String),
        "load": pl.Series([e.load for e in events], dtype=pl.Int64),
        PARTITION: pl.Series([0] * len(events), dtype=pl.Int32),
        OFFSET: pl.Series(range(first_offset, first_offset + len(events)), dtype=pl.Int64),
        EVENT_MS: pl.Series(times, dtype=pl.Int64),
    }
    return pl.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Content:
    """A list at a cut. Another content is another object, as a value of the same content may be."""

    values: Collection[Value]


@dataclass
class Process:
    """One group in one process: its tables in memory, and the log that it reads and writes."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    shard: int = 0
    shards: int = 1
    log: StateLog = field(default_factory=lambda: StateLog(StateSettings(buckets=4)))
    memory: KeyValueTable = field(default_factory=KeyValueTable)
    group: RuleGroup | None = None
    group_id: GroupId | None = None

    def set_rules(self, rules: Sequence[CompiledRule], now_ms: int = NO_WATERMARK, watermark_ms: int = 0) -> None:
        """As the kernel does after a change, and after a restart."""
        self._group(GroupId.for_rule(rules[0])).set_rules(rules, self.memory, now_ms, watermark_ms)

    def read(self, blobs: MemoryBlobs, rules: Sequence[CompiledRule]) -> Process:
        """Return this process, or a new one, with the committed state."""
        head = blobs.get("head")
        if self.group is not None and self.log.holds(head):
            return self
        self.group_id = GroupId.for_rule(rules[0])
        if self.group is not None and head is not None and self.log.catch_up(head, blobs, self._table):
            self.set_rules(rules)
            return self
        new = Process(self.settings, self.shard, self.shards)
        new.group_id = self.group_id
        new.log.load(head, blobs, new._table)
        new.set_rules(rules)
        return new

    def cut(
        self, events: Sequence[Event], watermarks: tuple[float, float], lists: Mapping[str, Content] | None = None
    ) -> list[RuleFiring]:
        """One cut, between two watermarks in minutes."""
        assert self.group is not None
        before, after = (NO_WATERMARK if w < -1e9 else int(w * MINUTE) for w in watermarks)
        moment = CutContext(self.shard, self.shards, "beats", 0, before, after, lists or {})
        firings: list[RuleFiring] = []
        if events:
            some, failures = self.group.add(frame_of(events), moment)
            assert not failures
            firings += some
        some, failures = self.group.close(moment)
        assert not failures
        return firings + some

    def commit(self, blobs: MemoryBlobs) -> None:
        """Write what changed."""
        assert self.group is not None
        self.log.commit(blobs, {"groups": self.memory, **self.group.tables()}, {"n": self.log.head.sequence + 1})

    def _group(self, group_id: GroupId | None) -> RuleGroup:
        assert group_id is not None
        if self.group is None:
            self.group, self.group_id = make_group(group_id, SCHEMA, self.settings), group_id
        return self.group

    def _table(self, name: str) -> StateTable:
        return self.memory if name == "groups" else self._group(self.group_id).table(name)
