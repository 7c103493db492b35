"""The values of decisions, as the API answers with them and pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue

from headgate.web.state.values import Page, Value


class FiredRuleValue(Value):
    """A rule that fired at the event of a decision."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Its version.")]
    mode: Annotated[str, Field(description="Its mode.")]
    kind: Annotated[str, Field(description="event, feature, window, ...")]
    outcome: Annotated[str | None, Field(description="The outcome that it names; null: none.")]
    score: Annotated[int, Field(description="Its points.")]
    severity: Annotated[str, Field(description="How severe it is.")]
    message: Annotated[str, Field(description="Its text.")]
    values: Annotated[Mapping[str, JsonValue], Field(description="Its features and aggregates, with their values.")]
    alert_id: Annotated[str, Field(description="Id of its alert.")]
    alert: Annotated[str, Field(description="sent, suppressed, or none: the rule gives no alert.")]
    incomplete: Annotated[bool, Field(description="Whether its features or counts lack earlier events.")] = False


class DecisionValue(Value):
    """One decision: the outcome for an event."""

    decision_id: Annotated[str, Field(description="Id: a hash of policy, version and event.")]
    policy: Annotated[str, Field(description="Name of the decision policy.")]
    version: Annotated[int, Field(description="Its version.")]
    outcome: Annotated[str, Field(description="What is to be done with the event.")]
    score: Annotated[int, Field(description="The points of the rules that count, as the policy merges them.")]
    band: Annotated[str | None, Field(description="The outcome that the score alone gives; null: below all bands.")]
    cause: Annotated[str, Field(description="Why there is a decision: rules, where or share.")]
    stream: Annotated[str, Field(description="The stream of the event.")]
    event_id: Annotated[JsonValue, Field(description="The event's id; null: its stream has none.")]
    key: Annotated[dict[str, JsonValue], Field(description="The event's keys.")]
    source: Annotated[str, Field(description="The event, topic:partition:offset.")]
    event_time_ms: Annotated[int, Field(description="Event time, in epoch milliseconds.")]
    decided_ms: Annotated[int, Field(description="When its record was written, in epoch milliseconds.")]
    rules_epoch: Annotated[int, Field(description="Epoch of the rule set.")]
    rules: Annotated[tuple[FiredRuleValue, ...], Field(description="The rules that count, the strongest first.")]
    shadow: Annotated[tuple[FiredRuleValue, ...], Field(description="Rules in shadow, which do not count.")]
    left_out: Annotated[int, Field(description="Rules that fired and are not listed; all of them count.")]
    partition: Annotated[int, Field(description="Partition of its record.")]
    offset: Annotated[int, Field(description="Offset of its record.")]


class DecisionPage(Page):
    """A page of decisions, the newest first."""

    decisions: tuple[DecisionValue, ...]
    read: Annotated[int, Field(description="Records that were read. A search ends at `scan_records`; go on with next.")]


class ExplainedDecisionValue(Value):
    """How a decision came about."""

    decision: Annotated[dict[str, JsonValue], Field(description="The decision, as on its topic.")]
    policy: Annotated[dict[str, JsonValue] | None, Field(description="The version of its policy; null: not known.")]
    same: Annotated[
        bool | None, Field(description="Whether the policy gives the same again; null: it could not be computed.")
    ]
