"""What rules of one kind must have in common to share state, and what the kernel asks of such a group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from rulecore.compiled import CompiledRule
from rulecore.firing import Failure, Firing
from rulecore.lang.types import Value
from rulecore.model import Kind
from streamcore.state import KeyValueTable, StateTable


@dataclass(frozen=True, slots=True, order=True)
class GroupId:
    """``unit`` is what the kind needs to tell groups apart: pane or gap in milliseconds, 0 where there is nothing.

    ``kind`` is a ``model.Kind`` or a narrower name, such as ``session``. ``born`` counts how often the group was given
    up before: what the state log still holds of an earlier life goes by another name.
    """

    kind: str
    stream: str
    group_by: tuple[str, ...]
    unit: int = 0
    born: int = 0

    @classmethod
    def of(cls, rule: CompiledRule) -> GroupId | None:
        """The group of a rule; None for a rule per event, which has no state."""
        if rule.kind is Kind.EVENT:
            return None
        return cls(rule.family, rule.rule.on, rule.group_by, rule.unit)

    def __str__(self) -> str:
        return f"{self.kind}/{self.stream}/{','.join(self.group_by)}/{self.unit}/{self.born}"

    @classmethod
    def parse(cls, text: str) -> GroupId:
        """The inverse of ``str``."""
        kind, stream, columns, unit, born = text.split("/")
        return cls(kind, stream, tuple(columns.split(",")) if columns else (), int(unit), int(born))


class ListContent(Protocol):
    """What a list holds at a cut: a value, so other content is another object."""

    @property
    def values(self) -> Collection[Value]:
        """Physical values, each once."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """The cut that a group is stepped in. ``topic``: where the stream's events come from. Times in milliseconds.

    ``shard`` of ``shards`` owns the keys whose hash says so (``streamcore.hashing.shard_of``). ``lists``: by name.
    """

    shard: int
    shards: int
    topic: str
    clock_ms: int
    watermark_ms: int
    next_watermark_ms: int
    lists: Mapping[str, ListContent] = field(default_factory=dict)


class RuleGroup(Protocol):
    """Rules that share state, with that state. All of it is in ``tables``."""

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on (paused ones among them keep their state).

        What has to be remembered of the rules themselves goes into ``memory``, under the group's name.
        ``now_ms``: the latest event time seen before, for what starts empty. Called again after each change and, with
        the memory as it was, after a restart.
        """
        ...

    def add(self, frame: pl.DataFrame, moment: Moment, /) -> tuple[list[Firing], list[Failure]]:
        """Take the events in: on time, in order of arrival, routed by a key of which ``group_by`` has all columns.

        With failures nothing was applied and there are no firings: the call is repeated without the failed rules.
        """
        ...

    def close(self, moment: Moment, /) -> tuple[list[Firing], list[Failure]]:
        """The watermark goes to ``moment.next_watermark_ms``: what ends, fires; what is over, is forgotten."""
        ...

    def metrics(self) -> Mapping[str, int]:
        """How much is kept now, and what limits dropped since the last call, by name."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """By name, ``<what>:<group>`` or ``<what>:<group>:<part>``."""
        ...

    def table(self, name: str) -> StateTable:
        """The table of that name, made if need be: how stored rows find their way back before the rules are known."""
        ...
