"""The published features of a rule set: what is stored, and the paused rules that keep their state. Immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from rulecore.compile.cache import CompileContext, compile_feature
from rulecore.compile.rule import CompiledRule
from rulecore.documents.loading import decode_feature
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.errors import RuleError

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
        cls, stored: Mapping[str, bytes], context: CompileContext, check: Callable[[CompiledRule], None]
    ) -> PublishedFeatures:
        """Return the features with these canonical bytes. ``check``: raises ``RuleError`` for one that cannot be kept
        now."""
        keepers: dict[str, CompiledRule] = {}
        for name, value in sorted(stored.items()):
            try:
                keeper = compile_feature(value, context)
                check(keeper)
            except RuleError:
                continue
            keepers[name] = keeper
        return cls(stored, {name: decode_feature(value, len(value)) for name, value in stored.items()}, keepers)

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
