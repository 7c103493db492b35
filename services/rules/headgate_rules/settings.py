"""The settings of the rules app as one document: YAML or JSON, checked before anything starts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from streamcore.service.config.documents import NotNegative, Positive, StreamDocument
from streamcore.service.config.settings import AppName, ServiceSettings
from streamcore.service.config.sinks import SinkDocuments


class RulesSettings(SinkDocuments, ServiceSettings):
    """Settings of the rules app. A sink takes alerts, too, if it has an entry for the lane alerts_table, those of
    versions on trial for the lane shadow_table, and decisions for the lane decisions_table."""

    preload: ClassVar[tuple[str, ...]] = ("rulecore.kernel",)

    app: AppName = Field(
        default="rules",
        description="Name of the app: the prefix of its topics and the key of its checkpoint and savepoints.",
    )
    streams: Annotated[tuple[StreamDocument, ...], Field(min_length=1)] = Field(
        description="Event streams that rules may read, each with its schema file and topic."
    )
    max_rules: Positive = Field(
        default=20_000, description="Most rules that the app accepts; further ones are rejected."
    )
    max_distinct: Positive = Field(
        default=10_000,
        description="Most distinct values that one distinct count keeps exactly, for each key and window slice.",
    )
    max_matches: Positive = Field(
        default=100_000, description="Most matches of rules that one shard handles in one cut."
    )
    max_rule_state_bytes: Positive = Field(
        default=384 << 20,
        description="Most bytes of state that one rule keeps in one shard; a rule above it goes into quarantine.",
    )
    max_group_state_bytes: Positive = Field(
        default=384 << 20,
        description="Most bytes of state that the rules of one group (same stream, key and kind) keep in one shard; "
        "above it, the rule that keeps most goes into quarantine.",
    )
    max_shard_state_bytes: Positive = Field(
        default=512 << 20,
        description="Most bytes of state that all rules keep in one shard; above it, the rule that keeps most goes "
        "into quarantine. A worker holds the state of `shards` / `parallelism` shards.",
    )
    feature_stage: bool = Field(
        default=False,
        description="Whether a rule may have features of other keys than its own, such as of the card and the device "
        "of a user's payment. They are computed in a keyed stage of their own, one more in each cut; a checkpoint gets "
        "it, or loses it, by a savepoint. The budgets of state hold in each of the two stages by itself.",
    )
    max_chosen_events: Positive = Field(
        default=10_000,
        description="Most events for which one shard writes decisions in one cut because `where` or `share` of a "
        "decision policy has chosen them; the counter `not_chosen.POLICY` counts the others.",
    )
    compare_every_ms: NotNegative = Field(
        default=60_000,
        description="Interval in milliseconds between reports that compare a trial version with the live one; 0 "
        "turns them off.",
    )
