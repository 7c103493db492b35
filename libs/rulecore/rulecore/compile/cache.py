"""A cache of compiled versions of rules, per process: all shards of a worker apply equal records to equal rule sets.

A cached result depends only on the bytes of the rule and the context.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from rulecore.compile.published_feature import compile_published
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.loading import decode_feature, decode_record
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.releases import RuleChange, decode_part
from rulecore.documents.rule import canonical_json
from rulecore.language import ListType
from streamcore.schema import StreamSchema

_COMPILED_KEPT: Final = 65_536
_FEATURES_KEPT: Final = 4_096
_PARTS_KEPT: Final = 256  # a release of 20,000 rules has about as many


@dataclass(frozen=True, slots=True)
class CompileContext:
    """The inputs of compilation besides the rule; hashable, for the cache."""

    streams: tuple[StreamSchema, ...]
    limits: RuleLimits
    lists: tuple[ListType, ...] = ()
    features: tuple[PublishedFeature, ...] = ()
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.streams, self.limits, self.lists, self.features)))

    def __hash__(self) -> int:
        """Return the hash, which is computed once: the cache needs it for every rule, and schemas are long."""
        return self._hash

    @classmethod
    def of(
        cls,
        streams: Mapping[str, StreamSchema],
        limits: RuleLimits,
        lists: Mapping[str, ListType],
        features: Mapping[str, PublishedFeature],
    ) -> CompileContext:
        """Return the context of a rule set with these streams, limits, lists and published features."""
        sorted_lists = tuple(lists[name] for name in sorted(lists))
        sorted_features = tuple(features[name] for name in sorted(features))
        return cls(tuple(streams[name] for name in sorted(streams)), limits, sorted_lists, sorted_features)

    def with_features(self, features: Mapping[str, PublishedFeature]) -> CompileContext:
        """Return the context with these published features."""
        return replace(self, features=tuple(features[name] for name in sorted(features)))


def compile_version(value: bytes, context: CompileContext) -> CompiledRule:
    """Return the compiled rule of these canonical bytes, from the cache if it is there.

    A rule that uses no list is cached without the lists, and every rule with the published features that it names
    alone, so a change of others does not compile it again.
    """
    named = named_features(value)
    reads_lists = any(word in value.lower() for word in (b"list", b"lookup")) or _read_lists(named, context)
    return _compile_record(value, _narrow(context, named, with_lists=reads_lists))


def named_features(value: bytes) -> frozenset[str]:
    """Return the names of the published features that a rule of these canonical bytes names."""
    if b'"features":[]' in value:
        return frozenset()
    return frozenset(one for one in orjson.loads(value).get("features") or () if isinstance(one, str))


def _read_lists(named: frozenset[str], context: CompileContext) -> bool:
    """Return whether one of the published features may ask a list."""
    texts = (f"{one.of} {one.where or ''}".lower() for one in context.features if one.feature in named)
    return any(word in text for text in texts for word in ("list", "lookup"))


@functools.lru_cache(maxsize=1_024)
def _narrow(context: CompileContext, named: frozenset[str], *, with_lists: bool) -> CompileContext:
    """Return the context with the published features of these names alone, and perhaps without lists."""
    features = tuple(one for one in context.features if one.feature in named)
    return CompileContext(context.streams, context.limits, context.lists if with_lists else (), features)


@functools.lru_cache(maxsize=_COMPILED_KEPT)
def _compile_record(value: bytes, context: CompileContext) -> CompiledRule:
    rule = decode_record(value, len(value))
    streams, lists = {s.name: s for s in context.streams}, {list_type.name: list_type for list_type in context.lists}
    return compile_rule(rule, streams, context.limits, lists, {one.feature: one for one in context.features})


def compile_feature(value: bytes, context: CompileContext) -> CompiledRule:
    """Return the rule that keeps the published feature of these canonical bytes, from the cache if it is there."""
    return _compile_feature_record(value, _narrow(context, frozenset(), with_lists=True))


@functools.lru_cache(maxsize=_FEATURES_KEPT)
def _compile_feature_record(value: bytes, context: CompileContext) -> CompiledRule:
    streams, lists = {s.name: s for s in context.streams}, {list_type.name: list_type for list_type in context.lists}
    return compile_published(decode_feature(value, len(value)), streams, context.limits, lists)


#: A change, and the canonical bytes of its version (none where it deletes).
ChangeBytes = tuple[RuleChange, bytes]


@functools.lru_cache(maxsize=_PARTS_KEPT)
def decode_part_cached(value: bytes) -> tuple[ChangeBytes, ...]:
    """Decode one part of a release. The result is cached until the release's cut, and for the worker's other shards."""
    return tuple(map(with_canonical_bytes, decode_part(value)))


def with_canonical_bytes(change: RuleChange) -> ChangeBytes:
    return change, b"" if change.rule is None else canonical_json(change.rule)
