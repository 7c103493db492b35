"""One version of a rule as a checked document.

Promises: each entry of a ``Rule`` has the right type and is within its limits; entries that do not go together are
rejected with a message that names the accepted form; ``canonical_json`` returns the same bytes for the same rule.
Expressions stay text, and columns stay names: ``rulecore.compile.rule`` checks both against a stream.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.features import MAX_FEATURES, EventOrder, FeatureItem, check_features
from rulecore.documents.rule_kinds import (
    EventExpectation,
    Score,
    SequenceItem,
    Skip,
    SkipToStep,
    TimedOut,
    check_sequence,
)
from rulecore.documents.scalars import (
    MAX_TEXT,
    CheckedValue,
    ColumnName,
    Duration,
    Expression,
    StreamNames,
    Time,
    abbreviate,
)
from rulecore.documents.windows import SequenceSpan, Within

MAX_MESSAGE: Final = 500
MAX_GROUP_COLUMNS: Final = 16
MAX_TAGS: Final = 50
MAX_TESTS: Final = 100
MAX_TEST_EVENTS: Final = 1_000
MAX_STEPS: Final = 16


class Severity(enum.StrEnum):
    """How severe an alert is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class RuleMode(enum.StrEnum):
    """The effect of a version of a rule.

    ``live`` alerts; ``shadow`` is evaluated and alerts on a lane of its own; ``canary`` alerts for a share of the keys
    and is a shadow for the others; ``paused`` is not evaluated but keeps its aggregates; ``draft`` is only checked and
    stored; ``retired`` is not evaluated any more and keeps no state.
    """

    LIVE = "live"
    SHADOW = "shadow"
    CANARY = "canary"
    PAUSED = "paused"
    DRAFT = "draft"
    RETIRED = "retired"


class Emit(enum.StrEnum):
    """When a window rule alerts.

    ``early``: at the event that makes ``having`` true. ``final``: when the watermark passes the window's end.
    """

    EARLY = "early"
    FINAL = "final"


class RuleKind(enum.StrEnum):
    """The input that a rule evaluates: one event, an event and the past of its key, a window, a sequence of events, a
    missing event, other rules."""

    EVENT = "event"
    FEATURE = "feature"
    WINDOW = "window"
    SEQUENCE = "sequence"
    ABSENCE = "absence"
    SCORE = "score"


class RuleOutcome(DocumentModel):
    """The content of an alert. ``message`` is a template, see ``rulecore.documents.message_template``.

    ``alert`` false: no alert; the rule only gives its ``score`` to score rules.
    """

    severity: Annotated[Severity, Field(strict=False), Field(description="How severe an alert of the rule is.")]
    outcome: Annotated[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")] | None,
        Field(
            description="What the receiver of the alert should do, such as block; an alert has review by default. "
            "A rule that names none gives a decision its score alone."
        ),
    ] = None
    score: Annotated[
        int, Field(ge=0, le=1_000), Field(description="Points that a match adds to score rules that name this rule.")
    ] = 0
    message: Annotated[
        str,
        Field(min_length=1, max_length=MAX_MESSAGE),
        Field(description="Text of the alert; {name} inserts a value, {name:.2f} a number with two decimal places."),
    ]
    alert: Annotated[
        bool, Field(description="Whether a match gives an alert; false only gives its score to score rules.")
    ] = True
    event: Annotated[
        bool, Field(description="Whether an alert has the fields of its event; for rules on single events.")
    ] = False


class Suppress(DocumentModel):
    """After an alert, none for ``for`` of event time with the same values of ``by`` (by default of ``group_by``)."""

    duration: Annotated[
        Duration,
        Field(alias="for"),
        Field(description="How long after an alert further alerts are suppressed, in event time."),
    ]
    by: Annotated[
        tuple[ColumnName, ...],
        Field(strict=False, max_length=MAX_GROUP_COLUMNS),
        Field(description="Columns whose values are suppressed separately; the default is group_by."),
    ] = ()


class Effective(DocumentModel):
    """The period in which the rule is evaluated, by the clock of the cut: ``from`` is inclusive, ``to`` is exclusive.

    ``start`` and ``end`` are in epoch milliseconds.
    """

    start: Annotated[
        Time | None, Field(alias="from"), Field(description="Time from which the rule is evaluated, inclusive.")
    ] = None
    end: Annotated[
        Time | None, Field(alias="to"), Field(description="Time until which the rule is evaluated, exclusive.")
    ] = None

    @model_validator(mode="after")
    def _check_order(self) -> Effective:
        if self.start is None and self.end is None:
            raise ValueError("effective: needs `from`, `to` or both")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("effective: `to` must be after `from`")
        return self


class Budget(DocumentModel):
    """The maximum cost of the rule. ``matches``: per cut and shard; with more the version is quarantined."""

    matches: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        Field(description="Matches per cut and shard after which the rule is quarantined."),
    ]


class Canary(DocumentModel):
    """The mode ``{canary: 10%}``: alerts for this percentage of the keys."""

    percent: Annotated[float, Field(gt=0, lt=100), Field(description="Percentage of the keys that get live alerts.")]


class RuleTest(DocumentModel):
    """Events of the rule's stream, in order of arrival, and the alerts that they must raise, in order.

    See ``rulecore.testing.rule_tests`` for the fields that an event may leave out, and how an expected alert is
    compared.
    """

    name: Annotated[str, Field(min_length=1, max_length=200), Field(description="Name of the test in reports.")]
    events: Annotated[
        tuple[dict[ColumnName, CheckedValue], ...],
        Field(strict=False, max_length=MAX_TEST_EVENTS),
        Field(description="Events of the stream in order of arrival; columns may be left out."),
    ]
    expect: Annotated[
        tuple[dict[ColumnName, CheckedValue], ...],
        Field(strict=False, max_length=MAX_TEST_EVENTS),
        Field(description="Alerts that the events must give, in order; only the listed fields are compared."),
    ]


_MODE_FORMS: Final = "live, shadow, {canary: 10%}, paused, draft or retired"


def _read_mode(value: object) -> object:
    """Parse ``live`` and the like, or ``{canary: 10%}``."""
    if isinstance(value, Canary | RuleMode):
        return value
    if isinstance(value, Mapping) and set(value) == {"canary"}:
        return Canary(percent=_read_percent(value["canary"]))
    if isinstance(value, str) and value in set(RuleMode) - {RuleMode.CANARY}:
        return RuleMode(value)
    if value == "canary":
        raise ValueError("a canary needs its share of the keys: write mode: {canary: 10%}")
    raise ValueError(f"{abbreviate(value)} is no mode; write {_MODE_FORMS}")


def parse_mode(text: str) -> RuleMode | Canary:
    """Parse a mode: one word, or ``canary=10%``. Raise ``ValueError``, which lists the modes, for any other text."""
    name, equals, share = text.partition("=")
    found = _read_mode({name: share} if equals else text)
    assert isinstance(found, RuleMode | Canary)
    return found


def _read_percent(value: object) -> float:
    if isinstance(value, str) and value.endswith("%"):
        try:
            share = float(value[:-1])
        except ValueError:
            share = 0
        if 0 < share < 100:
            return share
    raise ValueError(f"canary: {abbreviate(value)} is no share; write a percentage between 0% and 100%, such as 10%")


def _mode_to_json(value: RuleMode | Canary) -> str | dict[str, str]:
    return value.value if isinstance(value, RuleMode) else {"canary": f"{value.percent:g}%"}


ModeField = Annotated[
    RuleMode | Canary,
    BeforeValidator(_read_mode),
    PlainSerializer(_mode_to_json),
    WithJsonSchema(
        {
            "oneOf": [
                {"enum": [m.value for m in RuleMode if m is not RuleMode.CANARY]},
                {
                    "type": "object",
                    "required": ["canary"],
                    "additionalProperties": False,
                    "properties": {"canary": {"type": "string", "pattern": "^[0-9.]+%$", "examples": ["10%"]}},
                },
            ],
            "default": "live",
        }
    ),
]


class Rule(DocumentModel):
    """One immutable version of a rule."""

    id: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$"),
        Field(description="Identity of the rule; all of its versions share it."),
    ]
    version: Annotated[
        int, Field(ge=1, lt=2**31), Field(description="Number of this version; a new version has a higher number.")
    ]
    owner: Annotated[
        str, Field(min_length=1, max_length=200), Field(description="Team or person that is responsible for the rule.")
    ]
    description: Annotated[
        str, Field(max_length=MAX_TEXT), Field(description="Why the rule exists, for its readers.")
    ] = ""
    tags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
        Field(strict=False, max_length=MAX_TAGS),
        Field(description="Free labels, such as ATT&CK techniques."),
    ] = ()
    on: Annotated[
        StreamNames, Field(description="Name of the stream whose events the rule reads, or a list of several.")
    ]
    where: Annotated[
        Expression | None, Field(description="Condition on each event; only events that satisfy it count.")
    ] = None
    group_by: Annotated[
        tuple[ColumnName, ...],
        Field(strict=False, max_length=MAX_GROUP_COLUMNS),
        Field(description="What events are grouped by: fields, and expressions such as lower(email)."),
    ] = ()
    features: Annotated[
        tuple[FeatureItem, ...],
        Field(strict=False, max_length=MAX_FEATURES),
        Field(
            description="Values about earlier events of the key, which `where` may read beside the event; the name "
            "alone of a published one."
        ),
    ] = ()
    order: Annotated[
        EventOrder,
        Field(strict=False),
        Field(description="Whether a rule with features evaluates an event on arrival, or in order of event time."),
    ] = EventOrder.ON_ARRIVAL
    within: Annotated[
        Within | None, Field(description="Window of a window rule, or the longest duration of a sequence.")
    ] = None
    having: Annotated[
        Expression | None, Field(description="Condition on the aggregates of a window, such as count(*) > 10.")
    ] = None
    emit: Annotated[
        Emit,
        Field(strict=False),
        Field(description="When a window rule alerts: as soon as having is true, or at the end of the window."),
    ] = Emit.EARLY
    sequence: Annotated[
        Annotated[tuple[SequenceItem, ...], Field(strict=False, min_length=1, max_length=MAX_STEPS)] | None,
        Field(description="Steps that must follow one another within the duration."),
    ] = None
    skip: Annotated[
        Annotated[Skip, Field(strict=False)] | SkipToStep,
        Field(description="Which other partial matches a match of a sequence discards."),
    ] = Skip.PAST_LAST
    timed_out: Annotated[
        TimedOut,
        Field(strict=False),
        Field(description="Whether a sequence that began and was not completed in time alerts, too."),
    ] = TimedOut.DROP
    expect: Annotated[
        EventExpectation | None,
        Field(description="Event that must come regularly; the rule alerts when it is missing."),
    ] = None
    score: Annotated[
        Score | None,
        Field(description="Rules whose scores are added up; the rule alerts when the sum reaches the limit."),
    ] = None
    then: Annotated[RuleOutcome, Field(description="What an alert of the rule contains.")]
    suppress: Annotated[Suppress | None, Field(description="Suppression of repeated alerts.")] = None
    mode: Annotated[
        ModeField, Field(description="Whether the version is live, on trial, paused, a draft or retired.")
    ] = RuleMode.LIVE
    effective: Annotated[Effective | None, Field(description="Period in which the rule is evaluated.")] = None
    budget: Annotated[Budget | None, Field(description="Limits of what the rule may cost.")] = None
    tests: Annotated[
        tuple[RuleTest, ...],
        Field(strict=False, max_length=MAX_TESTS),
        Field(description="Tests that run before the rule is published."),
    ] = ()

    @model_validator(mode="after")
    def _check_kind(self) -> Rule:
        _CHECKS[self.kind](self)
        if len(set(self.group_by)) != len(self.group_by):
            raise ValueError("group_by names a column twice")
        if self.suppress is not None and self.kind is RuleKind.EVENT and not self.suppress.by:
            raise ValueError("suppress: an event rule needs `by`, the columns whose values are suppressed separately")
        if self.skip is not Skip.PAST_LAST and self.kind is not RuleKind.SEQUENCE:
            raise ValueError("skip: is for sequences; leave it out")
        if self.timed_out is not TimedOut.DROP and self.kind is not RuleKind.SEQUENCE:
            raise ValueError("timed_out: is for sequences; leave it out")
        if self.order is not EventOrder.ON_ARRIVAL and self.kind is not RuleKind.FEATURE:
            raise ValueError("order: is for rules with features; leave it out")
        if self.then.event and self.kind is not RuleKind.EVENT:
            raise ValueError("then.event: only a rule on single events has one event; leave it out")
        if self.emit is Emit.FINAL and self.kind is not RuleKind.WINDOW:
            raise ValueError(f"emit: final is for window rules; a rule of kind {self.kind} has one time to alert")
        return self

    @property
    def kind(self) -> RuleKind:
        """The kind of input that the rule evaluates, from the entries that it has."""
        if self.sequence is not None:
            return RuleKind.SEQUENCE
        if self.expect is not None:
            return RuleKind.ABSENCE
        if self.score is not None:
            return RuleKind.SCORE
        if self.features:
            return RuleKind.FEATURE
        return (
            RuleKind.WINDOW if self.group_by or self.within is not None or self.having is not None else RuleKind.EVENT
        )

    @property
    def windowed(self) -> bool:
        """Whether this is a window rule."""
        return self.kind is RuleKind.WINDOW

    @property
    def status(self) -> RuleMode:
        """The mode without the percentage of a canary."""
        return RuleMode.CANARY if isinstance(self.mode, Canary) else self.mode

    @property
    def mode_text(self) -> str:
        """The mode as text, such as ``live`` or ``canary 10%``."""
        return f"canary {self.mode.percent:g}%" if isinstance(self.mode, Canary) else self.mode.value


def _reject_entries(rule: Rule, *names: str) -> None:
    """Raise ``ValueError`` if the rule has one of these entries."""
    given = {
        "where": rule.where is not None,
        "having": rule.having is not None,
        "within": rule.within is not None,
        "group_by": bool(rule.group_by),
        "expect": rule.expect is not None,
        "score": rule.score is not None,
        "features": bool(rule.features),
    }
    for name in names:
        if given[name]:
            raise ValueError(f"{name}: has no meaning in a rule of kind {rule.kind}; leave it out")


def _check_event(rule: Rule) -> None:
    if rule.where is None:
        raise ValueError("an event rule needs `where`; a window rule needs group_by, within and having")


def _check_window(rule: Rule) -> None:
    windowed = {"group_by": bool(rule.group_by), "within": rule.within is not None, "having": bool(rule.having)}
    if missing := [name for name, present in windowed.items() if not present]:
        raise ValueError(f"a window rule needs group_by, within and having; {' and '.join(missing)} is missing")
    if isinstance(rule.within, SequenceSpan):
        raise ValueError("within: a length alone is for sequences; write a window, such as {tumbling: 1h}")


def _check_feature(rule: Rule) -> None:
    _reject_entries(rule, "having", "within")
    if rule.where is None:
        raise ValueError("features: needs `where`, the condition that reads the event and the features")
    if not rule.group_by:
        raise ValueError("features: needs group_by, the columns whose values the events of a key have in common")
    check_features(rule.features)


def _check_sequence(rule: Rule) -> None:
    _reject_entries(rule, "having", "expect", "score")
    if rule.features:
        raise ValueError(
            "features: a sequence has none; a step compares its event with events that the sequence has taken, "
            "such as amount > 3 * avg(small.amount)"
        )
    if not rule.group_by:
        raise ValueError("a sequence needs group_by, the columns whose values its events have in common")
    if not isinstance(rule.within, SequenceSpan):
        raise ValueError("within: a sequence needs its longest duration, such as within: 1h")
    assert rule.sequence is not None
    check_sequence(rule.sequence, rule.within.span, rule.skip)


def _check_absence(rule: Rule) -> None:
    _reject_entries(rule, "where", "having", "within", "score", "features")
    if not rule.group_by:
        raise ValueError("expect: needs group_by, the columns of the keys that the event is expected for")


def _check_score(rule: Rule) -> None:
    _reject_entries(rule, "where", "having", "within", "expect", "features")
    if not rule.group_by:
        raise ValueError("score: needs group_by, the columns of the keys that scores are added up for")


_CHECKS: Final = {
    RuleKind.EVENT: _check_event,
    RuleKind.FEATURE: _check_feature,
    RuleKind.WINDOW: _check_window,
    RuleKind.SEQUENCE: _check_sequence,
    RuleKind.ABSENCE: _check_absence,
    RuleKind.SCORE: _check_score,
}


def canonical_json(rule: Rule) -> bytes:
    """Return the value of the rule's control record: keys sorted, defaults written out, UTF-8, no blanks."""
    return rule.canonical_json()
