"""``within``: the windows of window rules, and the length of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.scalars import Duration, abbreviate
from streamcore.durations import render_duration

_WINDOWS: Final = "{tumbling: 1h}, {sliding: 24h, every: 1h}, {session: 30m} and {count: 100}"


class TumblingSpec(DocumentModel):
    """Windows side by side: [0, size), [size, 2 size) and so on, from the epoch."""

    tumbling: Annotated[Duration, Field(description="Size of the windows, which follow one another without a gap.")]

    @property
    def size_ms(self) -> int:
        """Length of the window."""
        return self.tumbling

    @property
    def slide_ms(self) -> int:
        """Distance from one window's start to the next one's: here, its length."""
        return self.tumbling


class SlidingSpec(DocumentModel):
    """Windows of length ``sliding``. A window starts every ``every``, which divides the length."""

    sliding: Annotated[Duration, Field(description="Size of the windows.")]
    every: Annotated[Duration, Field(description="Time between the starts of two windows; it divides the size.")]

    @model_validator(mode="before")
    @classmethod
    def _check_given(cls, value: object) -> object:
        if isinstance(value, Mapping) and "sliding" in value and "every" not in value:
            raise ValueError("every is missing: how often a window begins, such as {sliding: 1h, every: 1m}")
        return value

    @model_validator(mode="after")
    def _check_every(self) -> SlidingSpec:
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


class SessionSpec(DocumentModel):
    """Windows that begin with an event and end ``session`` after their last event, if no other came by then."""

    session: Annotated[Duration, Field(description="Gap without events after which a session ends.")]


class CountSpec(DocumentModel):
    """Windows of ``count`` events of a key that satisfy ``where``, in order of arrival.

    Without ``every`` the windows follow one another. With it, a window of the last ``count`` events ends after each
    ``every`` events; ``every`` divides ``count``, which the compiler checks.
    """

    count: Annotated[int, Field(ge=1, le=100_000), Field(description="Number of events in a window.")]
    every: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | None,
        Field(description="Number of events between the ends of two windows; it divides the count."),
    ] = None

    @model_validator(mode="after")
    def _check_every(self) -> CountSpec:
        if self.every is not None and self.every > self.count:
            raise ValueError(f"every: {self.every} must be at most count: {self.count}, or events would be left out")
        return self


class SequenceSpan(DocumentModel):
    """The longest duration of a sequence, from its first event to its last."""

    span: Annotated[Duration, Field(description="Longest time from the first event to the last.")]


_SPECS: Final[Mapping[str, type[DocumentModel]]] = {
    "tumbling": TumblingSpec,
    "sliding": SlidingSpec,
    "session": SessionSpec,
    "count": CountSpec,
}


def _read_within(value: object) -> object:
    if isinstance(value, TumblingSpec | SlidingSpec | SessionSpec | CountSpec | SequenceSpan):
        return value
    if isinstance(value, str):
        return {"span": value}
    if not isinstance(value, Mapping):
        raise ValueError(f"a window is one of {_WINDOWS}, not {abbreviate(value)}")
    if len(set(_SPECS) & set(value)) != 1 or "span" in value:
        raise ValueError(f"a window is one of {_WINDOWS}")
    return value


def _tag_for(value: object) -> str:
    if isinstance(value, Mapping):
        return next((name for name in _SPECS if name in value), "span")
    return next((name for name, kind in _SPECS.items() if isinstance(value, kind)), "span")


def _to_json(value: TumblingSpec | SlidingSpec | SessionSpec | CountSpec | SequenceSpan) -> str | dict[str, object]:
    if isinstance(value, SequenceSpan):
        return render_duration(value.span)
    return value.model_dump(mode="json", exclude_none=True)


Within = Annotated[
    Annotated[TumblingSpec, Tag("tumbling")]
    | Annotated[SlidingSpec, Tag("sliding")]
    | Annotated[SessionSpec, Tag("session")]
    | Annotated[CountSpec, Tag("count")]
    | Annotated[SequenceSpan, Tag("span")],
    Discriminator(_tag_for),
    BeforeValidator(_read_within),
    PlainSerializer(_to_json),
]
