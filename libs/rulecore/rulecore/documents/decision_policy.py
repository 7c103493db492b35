"""One version of a decision policy as a checked document: how the rules that fire at an event become one decision.

Promises: the outcomes that a ``DecisionPolicy`` names are in its ``order``, and a higher band has a stronger outcome;
``encode_policy`` returns the same bytes for the same policy. The condition stays text, and streams stay names:
``rulecore.compile.decision_policy`` checks both.
"""

from __future__ import annotations

import enum
import re
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.rule import MAX_TESTS, RuleTest
from rulecore.documents.scalars import MAX_TEXT, Expression, StreamNames, abbreviate

#: The entry that tells the document of a decision policy from that of a rule.
DECISION_POLICY: Final = "decision_policy"
MAX_OUTCOMES: Final = 20
_PERCENTAGE: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,30})?%")
Outcome = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
DecisionPolicyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]


class Scoring(enum.StrEnum):
    """How the scores of the rules become the score of the decision."""

    SUM = "sum"
    MAX = "max"


def _read_share(value: object) -> float:
    """Parse a percentage such as ``1%``. A number without the sign is refused: 1 might mean all events."""
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value) and (share := float(value[:-1])) <= 100:
        return share
    written = f"{value:g}" if isinstance(value, int | float) and 0 <= value <= 100 else "1"
    raise ValueError(f"{abbreviate(value)} is no share; write a percentage between 0% and 100%, such as {written}%")


def _write_share(share: float) -> str:
    """Return the percentage as text that ``_read_share`` reads as the same number: all digits, and no exponent."""
    return f"{Decimal(repr(share)).normalize():f}%"


#: A percentage, as text in a document.
Share = Annotated[
    float,
    BeforeValidator(_read_share),
    PlainSerializer(_write_share, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_PERCENTAGE.pattern}$", "examples": ["1%"]}),
]


class Decide(DocumentModel):
    """How outcomes and scores of rules become those of the decision."""

    order: Annotated[
        tuple[Outcome, ...],
        Field(strict=False, min_length=1, max_length=MAX_OUTCOMES),
        Field(
            description="All outcomes, the strongest first. The strongest of those of the rules and the band counts."
        ),
    ]
    default: Annotated[Outcome, Field(description="Outcome of an event at which no rule with an outcome has fired.")]
    score: Annotated[
        Scoring,
        Field(strict=False),
        Field(description="Whether the scores of the rules are added up, or the highest counts."),
    ] = Scoring.SUM
    bands: Annotated[
        dict[Outcome, Annotated[int, Field(ge=1, le=1_000_000)]],
        Field(
            default_factory=dict,
            description="By outcome, the score from which it counts, whatever the outcomes of the rules are.",
        ),
    ]

    @field_validator("order")
    @classmethod
    def _check_distinct(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) != len(order):
            raise ValueError("names an outcome twice")
        return order

    @model_validator(mode="after")
    def _check_outcomes(self) -> Decide:
        for place, name in (("default", self.default), *((f"bands.{name}", name) for name in self.bands)):
            if name not in self.order:
                raise ValueError(f"{place}: {name} is no outcome of `order`; there are {', '.join(self.order)}")
        rising = [self.bands[name] for name in reversed(self.order) if name in self.bands]
        if any(low >= high for low, high in pairwise(rising)):
            raise ValueError("bands: a stronger outcome needs a higher score")
        return self


class DecisionPolicy(DocumentModel):
    """One immutable version of a decision policy. It decides about each event of its streams at which a rule fires."""

    decision_policy: Annotated[
        DecisionPolicyName,
        Field(description="Identity of the policy; all of its versions share it."),
    ]
    version: Annotated[
        int, Field(ge=1, lt=2**31), Field(description="Number of this version; a new version has a higher number.")
    ]
    owner: Annotated[
        str,
        Field(min_length=1, max_length=200),
        Field(description="Team or person that is responsible for the policy."),
    ]
    description: Annotated[
        str, Field(max_length=MAX_TEXT), Field(description="Why the policy exists, for its readers.")
    ] = ""
    on: Annotated[
        StreamNames, Field(description="Name of the stream whose events it decides about, or a list of several.")
    ]
    decide: Annotated[Decide, Field(description="How outcomes and scores of rules become those of the decision.")]
    where: Annotated[
        Expression | None,
        Field(description="Condition on an event: those that satisfy it get a decision even if no rule fires."),
    ] = None
    share: Annotated[
        Share,
        Field(description="Percentage of all events that get a decision even if no rule fires, by a hash of their id."),
    ] = 0.0
    tests: Annotated[
        tuple[RuleTest, ...],
        Field(strict=False, max_length=MAX_TESTS),
        Field(description="Tests that run the rules of its streams; they expect decisions in place of alerts."),
    ] = ()


def encode_policy(policy: DecisionPolicy) -> bytes:
    """Return the value of the policy's control record: keys sorted, defaults written out, UTF-8, no blanks."""
    return policy.canonical_json()
