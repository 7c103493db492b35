"""How a transcript writes down windows, triggers and evictors, and what they become.

One mapping with one entry a value: ``tumbling: {size_ms: 10}``, ``repeatedly: {after_count: 2}``. Triggers without
settings are an empty mapping: ``never: {}``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcore.durations import Milliseconds
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    AnyOf,
    Assigner,
    AtEndOfStream,
    CalendarDay,
    CountSliding,
    CountTumbling,
    Evictor,
    GlobalWindow,
    InSequence,
    KeepCount,
    KeepNear,
    KeepRecent,
    Never,
    OnPunctuation,
    OrFinally,
    Purging,
    Repeatedly,
    Session,
    Sliding,
    Trigger,
    Tumbling,
    WindowSpec,
)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class OneOf(Strict):
    """Exactly one of its fields is given."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"exactly one of {', '.join(type(self).model_fields)} is needed")
        return self

    @property
    def chosen(self) -> str:
        return next(iter(self.model_fields_set))


class Nothing(Strict):
    pass


class TumblingText(Strict):
    size_ms: int
    offset_ms: int = 0


class SlidingText(Strict):
    size_ms: int
    slide_ms: int
    offset_ms: int = 0


class SessionText(Strict):
    gap_ms: int
    gap_field: str | None = None


class CountSlidingText(Strict):
    count: int
    every: int


class AssignerText(OneOf):
    tumbling: TumblingText | None = None
    sliding: SlidingText | None = None
    session: SessionText | None = None
    global_window: Nothing | None = None
    calendar_day: str | None = None
    count_tumbling: int | None = None
    count_sliding: CountSlidingText | None = None

    def build(self) -> Assigner:
        match getattr(self, self.chosen):
            case TumblingText(size_ms=size_ms, offset_ms=offset_ms):
                return Tumbling(Milliseconds(size_ms), Milliseconds(offset_ms))
            case SlidingText(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms):
                return Sliding(Milliseconds(size_ms), Milliseconds(slide_ms), Milliseconds(offset_ms))
            case SessionText(gap_ms=gap_ms, gap_field=gap_field):
                return Session(Milliseconds(gap_ms), gap_field)
            case CountSlidingText(count=count, every=every):
                return CountSliding(count, every)
            case str(zone):
                return CalendarDay(zone)
            case int(count):
                return CountTumbling(count)
            case _:
                return GlobalWindow()


class AfterWatermarkText(Strict):
    early: TriggerText | None = None
    late: TriggerText | None = None

    def build(self) -> Trigger:
        early = None if self.early is None else self.early.build()
        return AfterWatermark(early, None if self.late is None else self.late.build())


class OrFinallyText(Strict):
    trigger: TriggerText
    until: TriggerText


class TriggerText(OneOf):
    after_watermark: AfterWatermarkText | None = None
    after_count: int | None = None
    after_processing_time_ms: int | None = None
    on_punctuation: str | None = None
    at_end_of_stream: Nothing | None = None
    never: Nothing | None = None
    repeatedly: TriggerText | None = None
    purging: TriggerText | None = None
    all_of: list[TriggerText] | None = None
    any_of: list[TriggerText] | None = None
    in_sequence: list[TriggerText] | None = None
    or_finally: OrFinallyText | None = None

    def build(self) -> Trigger:
        match self.chosen, getattr(self, self.chosen):
            case _, AfterWatermarkText() as text:
                return text.build()
            case "after_count", int(count):
                return AfterCount(count)
            case "after_processing_time_ms", int(delay_ms):
                return AfterProcessingTime(Milliseconds(delay_ms))
            case "on_punctuation", str(flag):
                return OnPunctuation(flag)
            case "repeatedly", TriggerText() as text:
                return Repeatedly(text.build())
            case "purging", TriggerText() as text:
                return Purging(text.build())
            case _, list(texts):
                several = _SEVERAL[self.chosen]
                return several(*(text.build() for text in texts))
            case _, OrFinallyText(trigger=trigger, until=until):
                return OrFinally(trigger.build(), until.build())
            case "at_end_of_stream", _:
                return AtEndOfStream()
            case _:
                return Never()


_SEVERAL: dict[str, Callable[..., Trigger]] = {"all_of": AllOf, "any_of": AnyOf, "in_sequence": InSequence}


class NearText(Strict):
    field: str
    delta: int


class EvictorText(OneOf):
    keep_count: int | None = None
    keep_recent_ms: int | None = None
    keep_near: NearText | None = None

    def build(self) -> Evictor:
        match self.chosen, getattr(self, self.chosen):
            case "keep_count", int(count):
                return KeepCount(count)
            case "keep_recent_ms", int(span_ms):
                return KeepRecent(Milliseconds(span_ms))
            case _, NearText(field=field, delta=delta):
                return KeepNear(field, Decimal(delta))
        raise ValueError("an evictor needs a setting")


class SpecText(Strict):
    """The spec; by default it fires once at the watermark, and panes discard."""

    windows: AssignerText
    trigger: TriggerText = TriggerText(after_watermark=AfterWatermarkText())
    accumulation: Accumulation = Field(default=Accumulation.DISCARDING, strict=False)
    allowed_lateness_ms: int = 0
    evictor: EvictorText | None = None

    def build(self) -> WindowSpec:
        return WindowSpec(
            self.windows.build(),
            self.trigger.build(),
            self.accumulation,
            Milliseconds(self.allowed_lateness_ms),
            None if self.evictor is None else self.evictor.build(),
        )
