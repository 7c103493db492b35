"""The values of decision policies, as the API answers with them and pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from headgate.web.state.values import Value

#: The part that a rule takes in decisions.
Part = Literal["counts", "shadow", "none"]


class DecisionPolicyValue(Value):
    """How the rules that fire at an event become one decision."""

    decision_policy: Annotated[str, Field(description="Its name.")]
    version: Annotated[int, Field(description="Its version.")]
    owner: Annotated[str, Field(description="Who is responsible.")]
    description: Annotated[str, Field(description="Why it exists.")]
    stream: Annotated[str, Field(description="The stream, or several joined by +.")]
    order: Annotated[tuple[str, ...], Field(description="The outcomes, the strongest first.")]
    default: Annotated[str, Field(description="The outcome of an event at which no rule with an outcome fires.")]
    score: Annotated[str, Field(description="sum or max: how the points of rules become those of the decision.")]
    bands: Annotated[Mapping[str, int], Field(description="By outcome, the score from which it counts.")]
    where: Annotated[str | None, Field(description="Events that have a decision even if no rule fires; null: none.")]
    share_percent: Annotated[float, Field(description="Percentage of all events that have a decision too.")]
    tests: Annotated[int, Field(description="Number of its tests.")]
    compiles: Annotated[bool, Field(description="Whether it decides; false: a stream is gone, or it is deleted.")]
    counting: Annotated[int, Field(description="Number of rules that count.")]
    shadow: Annotated[int, Field(description="Number of rules in shadow.")]


class MergedRule(Value):
    """A rule on a stream of a decision policy."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Its version.")]
    mode: Annotated[str, Field(description="Its mode.")]
    kind: Annotated[str, Field(description="event, feature, window, ...")]
    outcome: Annotated[str | None, Field(description="The outcome that it names; null: none.")]
    score: Annotated[int, Field(description="Its points.")]
    part: Annotated[
        Part,
        Field(description="none: it is paused, or fires at no event: at the watermark, or at alerts."),
    ]


class PolicyDetail(Value):
    """A decision policy with its rules."""

    policy: Annotated[DecisionPolicyValue, Field(description="The version in force, else the newest.")]
    etag: Annotated[str, Field(description="For If-Match: it changes with every control record about the policy.")]
    in_force: Annotated[bool, Field(description="Whether it is there; false: it was deleted.")]
    versions: Annotated[tuple[int, ...], Field(description="All versions that were accepted.")]
    yaml: Annotated[str, Field(description="Its document, as people write it.")]
    rules: Annotated[tuple[MergedRule, ...], Field(description="The rules on its streams, those that count first.")]
