"""The identity of a group (rules that share state), and the protocol by which the kernel drives a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable
from urllib.parse import unquote

import polars as pl

from rulecore.compile.rule import STAGE_FAMILIES, CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.feature_values import FeatureValues
from rulecore.language.types import Value
from rulecore.state_size import StateHolder
from streamcore.key_space import KeySpace
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.state import KeyValueTable, StateTable

_ESCAPES: Final = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "%,/:"})


@dataclass(frozen=True, slots=True, order=True)
class GroupId:
    """The identity of a group: rules with an equal ``GroupId`` share state.

    ``kind`` is a ``RuleKind``, or ``session`` or ``count`` for these kinds of windows, or ``in_order`` for
    feature rules that evaluate events in order of time, or one of ``compile.rule.STAGE_FAMILIES`` for their features
    in a stage of its own. ``unit`` is the length of a pane or the gap of a session, in
    milliseconds; the events per pane of a count window; 0 for other kinds. ``generation`` counts how often the group
    was deleted before, so that rows of a deleted group have another name in the state log.
    """

    kind: str
    stream: str
    group_by: tuple[str, ...]
    unit: int = 0
    generation: int = 0

    @classmethod
    def for_features(cls, rule: CompiledRule, key: tuple[str, ...]) -> GroupId:
        """Return the group of the features of a rule that the stage for features computes for one key."""
        return cls(STAGE_FAMILIES[rule.family], rule.rule.on, key)

    @classmethod
    def for_rule(cls, rule: CompiledRule) -> GroupId | None:
        """Return the group of a rule, in generation 0; None for an event rule, which has no state."""
        if rule.kind is RuleKind.EVENT:
            return None
        return cls(rule.family, rule.rule.on, rule.state_key, rule.unit)

    def __str__(self) -> str:
        """Return ``kind/stream/columns/unit/generation``, the name of the group in the names of its tables.

        The signs of names of columns that separate names are escaped as in a URL."""
        columns = ",".join(name.translate(_ESCAPES) for name in self.group_by)
        return f"{self.kind}/{self.stream}/{columns}/{self.unit}/{self.generation}"

    @classmethod
    def parse(cls, text: str) -> GroupId:
        """Parse the result of ``str``."""
        kind, stream, columns, unit, generation = text.split("/")
        group_by = tuple(map(unquote, columns.split(","))) if columns else ()
        return cls(kind, stream, group_by, int(unit), int(generation))


class ListValues(Protocol):
    """The content of a list in a cut. Immutable: a list with changed content is another object."""

    @property
    def values(self) -> Collection[Value]:
        """The physical values of the entries, without duplicates."""
        ...


@dataclass(frozen=True, slots=True)
class CutContext:
    """The facts of a cut that a group needs besides the events. Times are in epoch milliseconds.

    ``topic``: the topic of the group's stream; ``topics``: of each source of the app, if the group's stream is a union.
    ``shard``: the number of the shard; ``key_space`` decides which shard
    owns a key. ``lists``: the contents of the lists, by name. ``values``: of features of other keys than the group's.
    """

    shard: int
    key_space: KeySpace
    topic: str
    clock_ms: int
    watermark_ms: int
    next_watermark_ms: int
    lists: Mapping[str, ListValues] = field(default_factory=dict)
    topics: Sequence[str] = ()
    values: FeatureValues = field(default_factory=FeatureValues)

    def find_topic(self, partition: int) -> str:
        """Return the topic of an event. ``partition``: of the app, as events have it."""
        return self.topics[partition // PARTITIONS_PER_TOPIC] if self.topics else self.topic


@runtime_checkable
class BackfilledGroup(Protocol):
    """What a group has whose aggregates or features can be filled with past events (``rulecore.backfill``).

    They are named by column or fingerprint, which is the same in every process.
    """

    def count(self, frame: pl.DataFrame) -> list[RuleFailure]:
        """Add events of any time, in any order, without evaluating a rule; return the rules that failed."""
        ...

    def all_since_ms(self) -> Mapping[str, int]:
        """Return the event time from which each is complete."""
        ...

    def since_by_column(self, rule: CompiledRule) -> Mapping[str, int]:
        """Return the event time from which each of those that a rule needs is complete."""
        ...

    def add_backfill(self, name: str, rows: pl.DataFrame) -> None:
        """Add the rows of a backfill, of keys of this shard."""
        ...

    def complete_since(self, names: Iterable[str], since_ms: int, memory: KeyValueTable) -> None:
        """Store that these are complete from this event time on."""
        ...


class RuleGroup(StateHolder, Protocol):
    """Rules that share state, and this state in one shard. ``tables`` holds all of the state."""

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on. Paused rules among them keep their state and are not evaluated.

        Called after each change of the rules and after a restart. ``memory``: a stored table in which the group keeps
        facts about its rules, under its own name; after a restart its content is unchanged. ``now_ms``: the latest
        event time before this cut, from which on new state is complete.
        """
        ...

    def add(self, frame: pl.DataFrame, context: CutContext, /) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Add the events of a cut to the state, and return the firings and the rules that failed.

        ``frame``: events that are not late, in order of arrival, routed by a key whose columns are all in ``group_by``.
        If a rule failed, there are no firings; the kernel puts the rule into quarantine and repeats the call, which
        gives the other rules what they would have without the failed one.
        """
        ...

    def close(self, context: CutContext, /) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Advance the watermark to ``context.next_watermark_ms``: fire the windows that end, and drop expired state.

        Failures are as in ``add``.
        """
        ...

    def metrics(self) -> Mapping[str, int]:
        """Return the numbers of entries that limits dropped since the last call, by name."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables by name: ``<content>:<group>`` or ``<content>:<group>:<part>``."""
        ...

    def table(self, name: str) -> StateTable:
        """Return the table of that name; create it if needed, since rows are loaded before the rules are set."""
        ...
