"""The features of one key for rules of other keys: their values at the events of a cut, which the stage for features
sends to the shards of these rules."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.features.group import FeatureGroup
from rulecore.groups.features.in_order import InOrderFeatureGroup
from rulecore.matching.matcher import EventMatcher
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema


class StageFeatures(FeatureGroup):
    """A ``FeatureGroup`` that evaluates no conditions, and keeps the values at the events of the cut."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings)
        self._found: list[pl.DataFrame] = []

    @property
    def rules(self) -> Sequence[CompiledRule]:
        """The rules for which it computes features, each with those of this key alone."""
        return self._rules

    def _make_matcher(self, rules: Sequence[CompiledRule]) -> EventMatcher[CompiledRule]:  # noqa: ARG002
        return EventMatcher([])

    def _take_values(self, events: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        self._found = [events]
        return [], []

    def take_events(self) -> pl.DataFrame | None:
        """Return the events of the cut with the values of the features, and forget them; None if there are none."""
        found, self._found = self._found, []
        return found[0] if found else None


class StageInOrderFeatures(StageFeatures, InOrderFeatureGroup):
    """The same in order of event time: the values at the events that the watermark passes."""
