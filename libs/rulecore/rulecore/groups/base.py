"""The properties that rules of one kind need to share state, and the interface of such a group for the kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.language.types import Value
from streamcore.state import KeyValueTable, StateTable


@dataclass(frozen=True, slots=True, order=True)
class GroupId:
    """``unit`` distinguishes the groups of a kind: pane or gap in milliseconds, 0 where there is nothing.

    ``kind`` is a ``model.Kind`` or a narrower name, such as ``session``. ``born`` counts how often the group was given
    up before: rows of an earlier life in the state log have another name.
    """

    kind: str
    stream: str
    group_by: tuple[str, ...]
    unit: int = 0
    generation: int = 0

    @classmethod
    def for_rule(cls, rule: CompiledRule) -> GroupId | None:
        """Return the group of a rule; None for a rule per event, which has no state."""
        if rule.kind is RuleKind.EVENT:
            return None
        return cls(rule.family, rule.rule.on, rule.group_by, rule.unit)

    def __str__(self) -> str:
        return f"{self.kind}/{self.stream}/{','.join(self.group_by)}/{self.unit}/{self.generation}"

    @classmethod
    def parse(cls, text: str) -> GroupId:
        """Parse the result of ``str``."""
        kind, stream, columns, unit, born = text.split("/")
        return cls(kind, stream, tuple(columns.split(",")) if columns else (), int(unit), int(born))


class ListValues(Protocol):
    """The content of a list at a cut: a value, so other content is another object."""

    @property
    def values(self) -> Collection[Value]:
        """Physical values, each once."""
        ...


@dataclass(frozen=True, slots=True)
class CutContext:
    """The cut that a group is stepped in. ``topic``: where the stream's events come from. Times in milliseconds.

    ``shard`` of ``shards`` owns the keys by their hash (``streamcore.hashing.shard_for``). ``lists``: by name.
    """

    shard: int
    shards: int
    topic: str
    clock_ms: int
    watermark_ms: int
    next_watermark_ms: int
    lists: Mapping[str, ListValues] = field(default_factory=dict)


class RuleGroup(Protocol):
    """Rules that share state, with that state. All of it is in ``tables``."""

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on (paused ones among them keep their state).

        Facts to remember about the rules themselves go into ``memory``, under the group's name.
        ``now_ms``: the latest
        event time seen before, for state that starts empty. Called again after each change and, with the memory as it
        was, after a restart.
        """
        ...

    def add(self, frame: pl.DataFrame, context: CutContext, /) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Take the events in: on time, in order of arrival, routed by a key of which ``group_by`` has all columns.

        With failures nothing was applied and there are no firings: the call is repeated without the failed rules.
        """
        ...

    def close(self, context: CutContext, /) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Advance the watermark to ``context.next_watermark_ms``: fire the windows that end, drop expired state."""
        ...

    def metrics(self) -> Mapping[str, int]:
        """Return the amount of state kept now, and the number of entries dropped since the last call, by name."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables by name: ``<content>:<group>`` or ``<content>:<group>:<part>``."""
        ...

    def table(self, name: str) -> StateTable:
        """Return the table of that name; create it if stored rows are loaded before the rules are known."""
        ...
