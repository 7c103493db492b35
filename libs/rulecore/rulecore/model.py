"""One version of one rule, as its author wrote it: the shape of the document, checked field by field.

Promises: a ``Rule`` that exists has every field of the right type and within its limits, fields that do not go
together are refused with a sentence that says what to write instead, and ``canonical_json`` gives the same bytes for
the same rule. Refuses to know streams, columns and expressions: ``rulecore.compiled`` reads those.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from rulecore.values import MAX_TEXT, Column, Duration, Expected, Expression, Scalar, render_duration, short

MAX_MESSAGE: Final = 500
MAX_GROUP_COLUMNS: Final = 16
MAX_TESTS: Final = 100
MAX_TEST_EVENTS: Final = 1_000

#: What the design has and this version does not, by the place where an author would write it.
LATER: Final[Mapping[str, str]] = {
    "sequence": "sequence rules",
    "expect": "absence rules",
    "absence": "absence rules",
    "score": "score rules",
    "suppress": "`suppress` entries",
    "canary": "canary rules",
}
_KINDS: Final = "rules per event (`where`) and windowed rules (`group_by`, `within`, `having`)"
_WINDOWS: Final = "{tumbling: 1h} and {sliding: 24h, every: 1h}"


class Severity(enum.StrEnum):
    """How bad an alert is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Mode(enum.StrEnum):
    """``live`` alerts, ``shadow`` evaluates and alerts on a lane of its own, ``paused`` is not evaluated."""

    LIVE = "live"
    SHADOW = "shadow"
    PAUSED = "paused"


class Emit(enum.StrEnum):
    """``early``: at the event that makes ``having`` true; ``final``: when the watermark passes the window's end."""

    EARLY = "early"
    FINAL = "final"


class Document(BaseModel):
    """What all parts of a rule share: no coercion, no unknown entries, no change after reading."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", revalidate_instances="never")


class Tumbling(Document):
    """Windows side by side: [0, size), [size, 2 size) and so on, from the epoch."""

    tumbling: Duration

    @property
    def size_ms(self) -> int:
        """Length of the window."""
        return self.tumbling

    @property
    def slide_ms(self) -> int:
        """Distance from one window's start to the next one's: here, its length."""
        return self.tumbling


class Sliding(Document):
    """Windows of one length that start ``every`` so often; ``every`` divides the length."""

    sliding: Duration
    every: Duration

    @model_validator(mode="after")
    def _divides(self) -> Sliding:
        if self.sliding % self.every:
            raise ValueError(
                f"every: {render_duration(self.every)} must divide sliding: {render_duration(self.sliding)}, "
                "for a window is made of whole panes"
            )
        return self

    @property
    def size_ms(self) -> int:
        """Length of the window."""
        return self.sliding

    @property
    def slide_ms(self) -> int:
        """Distance from one window's start to the next one's."""
        return self.every


def _supported_window(value: object) -> object:
    for later in ("session", "count"):
        if isinstance(value, Mapping) and later in value:
            raise ValueError(f"{later} windows are not supported yet; supported are {_WINDOWS}")
    if isinstance(value, Mapping) and not ({"tumbling", "sliding"} & set(value)):
        raise ValueError(f"a window is one of {_WINDOWS}")
    if not isinstance(value, Mapping | Tumbling | Sliding):
        raise ValueError(f"a window is one of {_WINDOWS}, not {short(value)}")
    return value


def _window_kind(value: object) -> Literal["tumbling", "sliding"]:
    is_tumbling = "tumbling" in value if isinstance(value, Mapping) else isinstance(value, Tumbling)
    return "tumbling" if is_tumbling else "sliding"


Within = Annotated[
    Annotated[Tumbling, Tag("tumbling")] | Annotated[Sliding, Tag("sliding")],
    Discriminator(_window_kind),
    BeforeValidator(_supported_window),
]


class Outcome(Document):
    """What an alert says. ``message`` is a template, see ``rulecore.message``."""

    severity: Annotated[Severity, Field(strict=False)]
    outcome: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")] = "review"
    score: Annotated[int, Field(ge=0, le=1_000)] = 0
    message: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]


class RuleTest(Document):
    """Events of the rule's stream, in order of arrival, and the alerts that must come of them, in order.

    See ``rulecore.ruletests`` for what may be left out of an event, and how an expected alert is compared.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    events: Annotated[tuple[dict[Column, Scalar], ...], Field(strict=False, max_length=MAX_TEST_EVENTS)]
    expect: Annotated[tuple[dict[Column, Expected], ...], Field(strict=False, max_length=MAX_TEST_EVENTS)]


class Rule(Document):
    """One immutable version of a rule."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
    version: Annotated[int, Field(ge=1, lt=2**31)]
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    on: Column
    where: Expression | None = None
    group_by: Annotated[tuple[Column, ...], Field(strict=False, max_length=MAX_GROUP_COLUMNS)] = ()
    within: Within | None = None
    having: Expression | None = None
    emit: Annotated[Emit, Field(strict=False)] = Emit.EARLY
    then: Outcome
    mode: Annotated[Mode, Field(strict=False)] = Mode.LIVE
    tests: Annotated[tuple[RuleTest, ...], Field(strict=False, max_length=MAX_TESTS)] = ()

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        for name, what in LATER.items():
            if name in value:
                raise ValueError(f"{name}: {what} are not supported yet; supported are {_KINDS}")
        mode = value.get("mode")
        if (isinstance(mode, Mapping) and "canary" in mode) or mode == "canary":
            raise ValueError("mode: canary rules are not supported yet; supported are live, shadow and paused")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Rule:
        windowed = {"group_by": bool(self.group_by), "within": self.within is not None, "having": bool(self.having)}
        missing = [name for name, present in windowed.items() if not present]
        if missing and len(missing) < len(windowed):
            raise ValueError(f"a windowed rule needs group_by, within and having; {' and '.join(missing)} is missing")
        if missing and self.where is None:
            raise ValueError("a rule per event needs `where`; a windowed rule needs group_by, within and having")
        if missing and self.emit is Emit.FINAL:
            raise ValueError("emit: final is for windowed rules; a rule per event alerts at once, leave `emit` out")
        if len(set(self.group_by)) != len(self.group_by):
            raise ValueError("group_by names a column twice")
        return self

    @property
    def windowed(self) -> bool:
        """Whether this is a windowed rule; otherwise it is one per event."""
        return self.within is not None


def canonical_json(rule: Rule) -> bytes:
    """The value of the rule's control record: keys sorted, defaults written out, UTF-8, no blanks."""
    return orjson.dumps(rule.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
