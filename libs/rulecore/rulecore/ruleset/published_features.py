"""The published features of a rule set: what is stored, and the paused rules that keep their state. Immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from rulecore.compile.published_feature import compile_published
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.loading import decode_feature
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.errors import RuleError
from rulecore.language import ListType
from streamcore.schema import StreamSchema

#: The prefix of the names of features among the records of a rule set.
STORED_FEATURE: Final = "feature:"


@dataclass(frozen=True, slots=True)
class PublishedFeatures:
    """The published features of a rule set, by name. ``stored``: the canonical JSON; ``keepers``: the paused rules that
    keep their state. One that does not compile any more, because a stream is gone, is not kept until it compiles
    again."""

    stored: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    documents: Mapping[str, PublishedFeature] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    keepers: Mapping[str, CompiledRule] = field(default_factory=lambda: MappingProxyType({}), compare=False)

    @classmethod
    def restore(
        cls,
        stored: Mapping[str, bytes],
        streams: Mapping[str, StreamSchema],
        limits: RuleLimits,
        lists: Mapping[str, ListType],
        check: Callable[[CompiledRule], None],
    ) -> PublishedFeatures:
        """Return the features with these canonical bytes. ``check``: raises ``RuleError`` for one that cannot be kept
        now."""
        found = cls()
        for name, value in sorted(stored.items()):
            document = decode_feature(value, len(value))
            try:
                keeper = compile_published(document, streams, limits, lists)
                check(keeper)
            except RuleError:
                found = replace(
                    found, stored={**found.stored, name: value}, documents={**found.documents, name: document}
                )
            else:
                found = found.with_feature(document, keeper)
        return found

    def with_feature(self, document: PublishedFeature, keeper: CompiledRule) -> PublishedFeatures:
        """Return the features with this version."""
        name = document.feature
        return PublishedFeatures(
            {**self.stored, name: encode_feature(document)},
            {**self.documents, name: document},
            {**self.keepers, name: keeper},
        )

    def without(self, name: str) -> PublishedFeatures:
        """Return the features without that of this name."""
        return PublishedFeatures(
            {key: one for key, one in self.stored.items() if key != name},
            {key: one for key, one in self.documents.items() if key != name},
            {key: one for key, one in self.keepers.items() if key != name},
        )
