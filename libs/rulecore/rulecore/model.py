"""One version of one rule, as its author wrote it: the shape of the document, checked field by field.

Promises: a ``Rule`` that exists has every field of the right type and within its limits, fields that do not go
together are refused with a sentence that says what to write instead, and ``canonical_json`` gives the same bytes for
the same rule. Refuses to know streams, columns and expressions: ``rulecore.compiled`` reads those.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Final

import orjson
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from rulecore.document import Document
from rulecore.kinds import Expectation, Score, SequenceItem, Skip, check_sequence
from rulecore.spans import Span, Within
from rulecore.values import MAX_TEXT, Column, Duration, Expected, Expression, Scalar, Time, short

MAX_MESSAGE: Final = 500
MAX_GROUP_COLUMNS: Final = 16
MAX_TAGS: Final = 50
MAX_TESTS: Final = 100
MAX_TEST_EVENTS: Final = 1_000
MAX_STEPS: Final = 16


class Severity(enum.StrEnum):
    """How bad an alert is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Mode(enum.StrEnum):
    """What a version of a rule does.

    ``live`` alerts; ``shadow`` is evaluated and alerts on a lane of its own; ``canary`` alerts for a share of the keys
    and is in the shadow for the others; ``paused`` is not evaluated but keeps its aggregates; ``draft`` is only checked
    and kept; ``retired`` is over and keeps nothing.
    """

    LIVE = "live"
    SHADOW = "shadow"
    CANARY = "canary"
    PAUSED = "paused"
    DRAFT = "draft"
    RETIRED = "retired"


class Emit(enum.StrEnum):
    """``early``: at the event that makes ``having`` true; ``final``: when the watermark passes the window's end."""

    EARLY = "early"
    FINAL = "final"


class Kind(enum.StrEnum):
    """What a rule looks at: one event, a window, a sequence of events, an event that does not come, other rules."""

    EVENT = "event"
    WINDOW = "window"
    SEQUENCE = "sequence"
    ABSENCE = "absence"
    SCORE = "score"


class Outcome(Document):
    """What an alert says. ``message`` is a template, see ``rulecore.message``.

    ``alert`` false: no alert at all; the rule only gives its ``score`` to rules that add scores.
    """

    severity: Annotated[Severity, Field(strict=False)]
    outcome: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")] = "review"
    score: Annotated[int, Field(ge=0, le=1_000)] = 0
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    alert: bool = True


class Suppress(Document):
    """After an alert none for so long of event time, for the same values of ``by`` (default: the rule's key)."""

    duration: Annotated[Duration, Field(alias="for")]
    by: Annotated[tuple[Column, ...], Field(strict=False, max_length=MAX_GROUP_COLUMNS)] = ()


class Effective(Document):
    """By the clock of the cut: from ``start`` (inclusive) to ``end`` (exclusive), epoch milliseconds."""

    start: Annotated[Time | None, Field(alias="from")] = None
    end: Annotated[Time | None, Field(alias="to")] = None

    @model_validator(mode="after")
    def _in_order(self) -> Effective:
        if self.start is None and self.end is None:
            raise ValueError("effective: needs `from`, `to` or both")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("effective: `to` must be after `from`")
        return self


class Budget(Document):
    """What the rule may cost at most, below the limits of the app. ``matches``: per cut and shard."""

    matches: Annotated[int, Field(ge=1, le=10_000_000)]


class Canary(Document):
    """``{canary: 10%}``: alerts for this share of the keys."""

    percent: Annotated[float, Field(gt=0, lt=100)]


class RuleTest(Document):
    """Events of the rule's stream, in order of arrival, and the alerts that must come of them, in order.

    See ``rulecore.ruletests`` for what may be left out of an event, and how an expected alert is compared.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    events: Annotated[tuple[dict[Column, Scalar], ...], Field(strict=False, max_length=MAX_TEST_EVENTS)]
    expect: Annotated[tuple[dict[Column, Expected], ...], Field(strict=False, max_length=MAX_TEST_EVENTS)]


_MODES: Final = "live, shadow, {canary: 10%}, paused, draft or retired"


def _mode(value: object) -> object:
    """``live`` and the like, or ``{canary: 10%}``."""
    if isinstance(value, Canary | Mode):
        return value
    if isinstance(value, Mapping) and set(value) == {"canary"}:
        return Canary(percent=_percent(value["canary"]))
    if isinstance(value, str) and value in set(Mode) - {Mode.CANARY}:
        return Mode(value)
    if value == "canary":
        raise ValueError("a canary needs its share of the keys: write mode: {canary: 10%}")
    raise ValueError(f"{short(value)} is no mode; write {_MODES}")


def mode_of(text: str) -> Mode | Canary:
    """A mode as one word, with ``canary=10%`` for a canary. ``ValueError`` says which there are."""
    name, equals, share = text.partition("=")
    found = _mode({name: share} if equals else text)
    assert isinstance(found, Mode | Canary)
    return found


def _percent(value: object) -> float:
    if isinstance(value, str) and value.endswith("%"):
        try:
            share = float(value[:-1])
        except ValueError:
            share = 0
        if 0 < share < 100:
            return share
    raise ValueError(f"canary: {short(value)} is no share; write a percentage between 0% and 100%, such as 10%")


def _mode_json(value: Mode | Canary) -> str | dict[str, str]:
    return value.value if isinstance(value, Mode) else {"canary": f"{value.percent:g}%"}


ModeField = Annotated[
    Mode | Canary,
    BeforeValidator(_mode),
    PlainSerializer(_mode_json),
    WithJsonSchema(
        {
            "oneOf": [
                {"enum": [m.value for m in Mode if m is not Mode.CANARY]},
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


class Rule(Document):
    """One immutable version of a rule."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
    version: Annotated[int, Field(ge=1, lt=2**31)]
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    tags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(strict=False, max_length=MAX_TAGS)
    ] = ()
    on: Column
    where: Expression | None = None
    group_by: Annotated[tuple[Column, ...], Field(strict=False, max_length=MAX_GROUP_COLUMNS)] = ()
    within: Within | None = None
    having: Expression | None = None
    emit: Annotated[Emit, Field(strict=False)] = Emit.EARLY
    sequence: Annotated[tuple[SequenceItem, ...], Field(strict=False, min_length=1, max_length=MAX_STEPS)] | None = None
    skip: Annotated[Skip, Field(strict=False)] = Skip.PAST_LAST
    expect: Expectation | None = None
    score: Score | None = None
    then: Outcome
    suppress: Suppress | None = None
    mode: ModeField = Mode.LIVE
    effective: Effective | None = None
    budget: Budget | None = None
    tests: Annotated[tuple[RuleTest, ...], Field(strict=False, max_length=MAX_TESTS)] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> Rule:
        _CHECKS[self.kind](self)
        if len(set(self.group_by)) != len(self.group_by):
            raise ValueError("group_by names a column twice")
        if self.suppress is not None and self.kind is Kind.EVENT and not self.suppress.by:
            raise ValueError("suppress: a rule per event needs `by`, the columns whose values are told apart")
        if self.skip is not Skip.PAST_LAST and self.kind is not Kind.SEQUENCE:
            raise ValueError("skip: is for sequences; leave it out")
        if self.emit is Emit.FINAL and self.kind is not Kind.WINDOW:
            raise ValueError(f"emit: final is for windowed rules; a rule of kind {self.kind} has one time to alert")
        return self

    @property
    def kind(self) -> Kind:
        """What the rule looks at, by the entries that it has."""
        if self.sequence is not None:
            return Kind.SEQUENCE
        if self.expect is not None:
            return Kind.ABSENCE
        if self.score is not None:
            return Kind.SCORE
        return Kind.WINDOW if self.group_by or self.within is not None or self.having is not None else Kind.EVENT

    @property
    def windowed(self) -> bool:
        """Whether this is a windowed rule."""
        return self.kind is Kind.WINDOW

    @property
    def status(self) -> Mode:
        """The mode without its share."""
        return Mode.CANARY if isinstance(self.mode, Canary) else self.mode

    @property
    def mode_text(self) -> str:
        """The mode for people."""
        return f"canary {self.mode.percent:g}%" if isinstance(self.mode, Canary) else self.mode.value


def _refuse(rule: Rule, *names: str) -> None:
    given = {
        "where": rule.where is not None,
        "having": rule.having is not None,
        "within": rule.within is not None,
        "group_by": bool(rule.group_by),
        "expect": rule.expect is not None,
        "score": rule.score is not None,
    }
    for name in names:
        if given[name]:
            raise ValueError(f"{name}: has no meaning in a rule of kind {rule.kind}; leave it out")


def _check_event(rule: Rule) -> None:
    if rule.where is None:
        raise ValueError("a rule per event needs `where`; a windowed rule needs group_by, within and having")


def _check_window(rule: Rule) -> None:
    windowed = {"group_by": bool(rule.group_by), "within": rule.within is not None, "having": bool(rule.having)}
    if missing := [name for name, present in windowed.items() if not present]:
        raise ValueError(f"a windowed rule needs group_by, within and having; {' and '.join(missing)} is missing")
    if isinstance(rule.within, Span):
        raise ValueError("within: a length alone is for sequences; write a window, such as {tumbling: 1h}")


def _check_sequence(rule: Rule) -> None:
    _refuse(rule, "having", "expect", "score")
    if not rule.group_by:
        raise ValueError("a sequence needs group_by: whose events are looked at together")
    if not isinstance(rule.within, Span):
        raise ValueError("within: a sequence needs its longest duration, such as within: 1h")
    assert rule.sequence is not None
    check_sequence(rule.sequence, rule.within.span)


def _check_absence(rule: Rule) -> None:
    _refuse(rule, "where", "having", "within", "score")
    if not rule.group_by:
        raise ValueError("expect: needs group_by: whose event is expected")


def _check_score(rule: Rule) -> None:
    _refuse(rule, "where", "having", "within", "expect")
    if not rule.group_by:
        raise ValueError("score: needs group_by: whose scores are added")


_CHECKS: Final = {
    Kind.EVENT: _check_event,
    Kind.WINDOW: _check_window,
    Kind.SEQUENCE: _check_sequence,
    Kind.ABSENCE: _check_absence,
    Kind.SCORE: _check_score,
}


def canonical_json(rule: Rule) -> bytes:
    """The value of the rule's control record: keys sorted, defaults written out, UTF-8, no blanks."""
    document = rule.model_dump(mode="json", by_alias=True)
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
