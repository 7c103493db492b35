"""A cache of compiled versions of rules, per process: all shards of a worker apply equal records to equal rule sets.

A cached result depends only on the bytes of the rule and the context.
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
        """Return the hash, which is computed once: the cache needs it for every rule, and schemas are long."""
        return self._hash

    @classmethod
    def of(
        cls, streams: Mapping[str, StreamSchema], limits: RuleLimits, lists: Mapping[str, ListType]
    ) -> CompileContext:
        """Return the context of a rule set with these streams, limits and lists."""
        sorted_lists = tuple(lists[name] for name in sorted(lists))
        return cls(tuple(streams[name] for name in sorted(streams)), limits, sorted_lists)


def compile_version(value: bytes, context: CompileContext) -> CompiledRule:
    """Return the compiled rule of these canonical bytes, from the cache if it is there.

    A rule that uses no list is cached without the lists, so a change of lists does not compile it again.
    """
    uses_lists = any(word in value.lower() for word in (b"list", b"lookup"))
    return _compile_record(value, context if uses_lists or not context.lists else _without_lists(context))


@functools.lru_cache(maxsize=8)
def _without_lists(context: CompileContext) -> CompileContext:
    return CompileContext(context.streams, context.limits)


@functools.lru_cache(maxsize=_COMPILED_KEPT)
def _compile_record(value: bytes, context: CompileContext) -> CompiledRule:
    rule = decode_record(value, len(value))
    streams, lists = {s.name: s for s in context.streams}, {list_type.name: list_type for list_type in context.lists}
    return compile_rule(rule, streams, context.limits, lists)


#: A change, and the canonical bytes of its version (none where it deletes).
ChangeBytes = tuple[RuleChange, bytes]


@functools.lru_cache(maxsize=_PARTS_KEPT)
def decode_part_cached(value: bytes) -> tuple[ChangeBytes, ...]:
    """Decode one part of a release. The result is cached until the release's cut, and for the worker's other shards."""
    return tuple(map(with_canonical_bytes, decode_part(value)))


def with_canonical_bytes(change: RuleChange) -> ChangeBytes:
    return change, b"" if change.rule is None else canonical_json(change.rule)
