"""Versions of rules compiled once a process: all shards of a worker apply the same records to equal sets.

Promises: a cached result depends only on its bytes and its context. Refuses to know which version counts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.loading import decode_record
from rulecore.documents.releases import RuleChange, decode_part
from rulecore.documents.rule import canonical_json
from rulecore.language import ListType
from streamcore.schema import StreamSchema

_COMPILED_KEPT: Final = 65_536
_PARTS_KEPT: Final = 256  # a release of 20,000 rules has about as many


@dataclass(frozen=True, slots=True)
class CompileContext:
    """The inputs of compilation besides the rule; hashable, for the cache."""

    streams: tuple[StreamSchema, ...]
    limits: RuleLimits
    lists: tuple[ListType, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.streams, self.limits, self.lists)))

    def __hash__(self) -> int:
        """Worked out once: the cache asks for it with every rule, and schemas are long."""
        return self._hash

    @classmethod
    def of(
        cls, streams: Mapping[str, StreamSchema], limits: RuleLimits, lists: Mapping[str, ListType]
    ) -> CompileContext:
        """Return the context of a set."""
        known = tuple(lists[name] for name in sorted(lists))
        return cls(tuple(streams[name] for name in sorted(streams)), limits, known)


def compile_version(value: bytes, context: CompileContext) -> CompiledRule:
    """Return the rule of canonical bytes, compiled; kept for the next who asks.

    A rule that asks no list does not depend on them, so a new list leaves its compiled form unchanged.
    """
    asks = any(word in value.lower() for word in (b"list", b"lookup"))
    return _compile_record(value, context if asks or not context.lists else _without_lists(context))


@functools.lru_cache(maxsize=8)
def _without_lists(context: CompileContext) -> CompileContext:
    return CompileContext(context.streams, context.limits)


@functools.lru_cache(maxsize=_COMPILED_KEPT)
def _compile_record(value: bytes, context: CompileContext) -> CompiledRule:
    rule = decode_record(value, len(value))
    streams, lists = {s.name: s for s in context.streams}, {one.name: one for one in context.lists}
    return compile_rule(rule, streams, context.limits, lists)


#: A change, and the canonical bytes of its version (none where it deletes).
ChangeBytes = tuple[RuleChange, bytes]


@functools.lru_cache(maxsize=_PARTS_KEPT)
def decode_part_cached(value: bytes) -> tuple[ChangeBytes, ...]:
    """Kept from the part's cut for the release's, and for the other shards of the worker."""
    return tuple(map(with_canonical_bytes, decode_part(value)))


def with_canonical_bytes(change: RuleChange) -> ChangeBytes:
    return change, b"" if change.rule is None else canonical_json(change.rule)
