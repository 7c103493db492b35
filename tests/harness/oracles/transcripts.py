"""Window semantics as data: transcripts in YAML, read strictly and run on anything that takes their inputs.

A transcript declares windows, feeds elements, watermarks and clock times one step after the other, and
says after each step which panes fire and what is dropped, all of it. Every mistake in a file, and every difference
between what it expects and what happened, names the file, the transcript and the step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from streamcore.aggregates import Aggregate, Collect, Count, First, Last, Max, Mean, Min, Sum
from streamcore.windowing import DroppedElement, DropReason, FiredPane, Timing, WindowCounts, WindowOutput, WindowSpec
from streamcore.windowing.model import AnyWindow, CountWindow, Fields, Scalar
from streamcore.yaml_loader import SAFE_LOADER
from tests.harness.oracles.transcript_spec import SpecText, Strict

_FOLDER = Path(__file__).parents[3] / "libs/streamcore/tests/windowing/transcripts"

#: What a transcript's ``function`` names.
FUNCTIONS: dict[str, Aggregate] = {
    "count": Count(),
    "sum": Sum("v"),
    "mean": Mean("v"),
    "min": Min("v"),
    "max": Max("v"),
    "first": First("v"),
    "last": Last("v"),
    "collect": Collect("v"),
}


class Runner(Protocol):
    """What a transcript is run on: the reference, or a kernel behind the same inputs."""

    @property
    def counts(self) -> WindowCounts: ...
    def element(self, key: Hashable, value: Fields, event_ms: int) -> WindowOutput: ...
    def watermark(self, watermark_ms: int) -> WindowOutput: ...
    def clock(self, clock_ms: int) -> WindowOutput: ...
    def end_of_stream(self) -> WindowOutput: ...


class MakeRunner(Protocol):
    """Makes a fresh runner for one transcript."""

    def __call__(self, spec: WindowSpec, function: Aggregate) -> Runner: ...


class TranscriptError(Exception):
    """A file that cannot be read as transcripts."""


class Mismatch(AssertionError):
    """What happened is not what the transcript says. ``step``: in which step, from one; ``None``: in the counts."""

    def __init__(self, message: str, step: int | None) -> None:
        super().__init__(message)
        self.step = step


class ElementText(Strict):
    """``at``: event time. ``v``: the value of field ``v``; other fields under ``also``."""

    at: int
    key: str = "a"
    v: Scalar = None
    also: dict[str, Scalar] = Field(default_factory=dict)

    @property
    def value(self) -> Fields:
        return {"v": self.v, **self.also}


class PaneText(Strict):
    """An expected pane. ``elements``: their field ``v``, where the value alone does not say enough."""

    window: tuple[int, int] = Field(strict=False)
    pane: int
    timing: Timing = Field(strict=False)
    value: Any
    key: str = "a"
    final: bool = False
    retraction: bool = False
    elements: list[Scalar] | None = None


class DropText(Strict):
    """An expected dropped element, by its field ``v``."""

    v: Scalar
    window: tuple[int, int] = Field(strict=False)
    reason: DropReason = Field(strict=False)
    late_ms: int
    key: str = "a"


class StepText(Strict):
    """One input and everything that it brings about."""

    element: ElementText | None = None
    watermark: int | None = None
    clock: int | None = None
    end: bool | None = None
    fires: list[PaneText] = Field(default_factory=list)
    drops: list[DropText] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_input(self) -> Self:
        given = [name for name in ("element", "watermark", "clock", "end") if getattr(self, name) is not None]
        if len(given) != 1 or self.end is False:
            raise ValueError("a step is exactly one of element, watermark, clock, end: true")
        return self

    def feed(self, runner: Runner) -> WindowOutput:
        if self.element is not None:
            return runner.element(self.element.key, self.element.value, self.element.at)
        if self.watermark is not None:
            return runner.watermark(self.watermark)
        return runner.clock(self.clock) if self.clock is not None else runner.end_of_stream()


class Transcript(Strict):
    """One situation. ``wrong``: it says what must not happen, and ``because`` says why."""

    name: str
    spec: SpecText
    steps: list[StepText] = Field(min_length=1)
    function: Literal["count", "sum", "mean", "min", "max", "first", "last", "collect"] = "collect"
    counts: dict[str, int] = Field(default_factory=dict)
    wrong: bool = False
    because: str = ""
    file: str = ""

    @model_validator(mode="after")
    def _wrong_says_why(self) -> Self:
        if self.wrong != bool(self.because):
            raise ValueError("a wrong transcript says why under because; a right one has no because")
        return self

    @property
    def label(self) -> str:
        return f"{self.file}: {self.name}"

    def run(self, make: MakeRunner) -> None:
        """Feed all steps; ``Mismatch`` at the first difference."""
        runner = make(self.spec.build(), FUNCTIONS[self.function])
        for number, step in enumerate(self.steps, start=1):
            _compare(_At(self.label, number), step, step.feed(runner))
        total = _At(self.label)
        for name, count in self.counts.items():
            total.same(f"counts: {name}", getattr(runner.counts, name), count)
        total.same("counts balance", runner.counts.is_balanced, True)


class _At:
    """A place in a transcript, where what is seen and what is wanted must be the same."""

    def __init__(self, transcript: str, step: int | None = None) -> None:
        self.step = step
        self.place = transcript if step is None else f"{transcript}: step {step}"

    def same(self, what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            raise Mismatch(f"{self.place}: {what}\n  wanted: {wanted}\n  seen:   {seen}", self.step)


def _compare(at: _At, step: StepText, output: WindowOutput) -> None:
    panes = by_key(output.firings)
    at.same("panes", [_pane_seen(pane) for pane in panes], [_pane_wanted(pane) for pane in by_key(step.fires)])
    at.same("only pane 0 is the first", [pane for pane in panes if pane.is_first != (pane.pane_index == 0)], [])
    for pane, wanted in zip(panes, by_key(step.fires), strict=True):
        if wanted.elements is not None:
            at.same("elements", [element.value.get("v") for element in pane.elements], wanted.elements)
    at.same("dropped", by_key(map(_drop_seen, output.dropped)), by_key(step.drops))


class _UniqueKeys(SAFE_LOADER):  # type: ignore[valid-type,misc]
    """YAML in which writing a key twice is an error and not a loss."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value]
        if len(set(names)) != len(names):
            raise TranscriptError(f"a key stands twice, line {node.start_mark.line + 1}")
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


@cache
def load_all() -> tuple[Transcript, ...]:
    """Return the transcripts of all files of the repository: read once, for the tests of several modules run them."""
    return tuple(transcript for path in sorted(_FOLDER.glob("*.yaml")) for transcript in load(path))


def load(path: Path) -> list[Transcript]:
    """Return all transcripts of a file; ``TranscriptError`` with the place of everything that is wrong in it."""
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)  # a subclass of SafeLoader
    except (yaml.YAMLError, TranscriptError) as error:
        raise TranscriptError(f"{path.name}: {error}") from error
    if not isinstance(entries, list):
        raise TranscriptError(f"{path.name}: a list of transcripts is needed")
    found = [_read(path.name, number, entry) for number, entry in enumerate(entries, start=1)]
    names = [transcript.name for transcript in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TranscriptError(f"{path.name}: two transcripts are named {twice[0]!r}")
    return found


def _read(file: str, number: int, entry: Any) -> Transcript:
    if not isinstance(entry, dict):
        raise TranscriptError(f"{file}: transcript {number} is no mapping")
    name = entry.get("name", f"number {number}")
    try:
        return Transcript.model_validate({**entry, "file": file})
    except ValidationError as error:
        problems = "; ".join(f"{_place(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        raise TranscriptError(f"{file}: {name}: {problems}") from error


def _place(loc: tuple[int | str, ...]) -> str:
    """Return the place of an error; steps are counted from one, as in the differences."""
    if loc[:1] == ("steps",) and len(loc) > 1 and isinstance(loc[1], int):
        return ".".join(["step " + str(loc[1] + 1), *map(str, loc[2:])])
    return ".".join(map(str, loc))


class _Keyed(Protocol):
    @property
    def key(self) -> Any: ...


_K = TypeVar("_K", bound=_Keyed)


def by_key(panes: Iterable[_K]) -> list[_K]:
    """Order matters within a key and not between keys."""
    return sorted(panes, key=lambda pane: str(pane.key))


def _pane_seen(firing: FiredPane) -> PaneText:
    value = list(firing.value) if isinstance(firing.value, tuple) else firing.value
    return PaneText(
        window=_bounds(firing.window),
        pane=firing.pane_index,
        timing=firing.timing,
        value=value,
        key=str(firing.key),
        final=firing.is_final,
        retraction=firing.is_retraction,
    )


def _pane_wanted(pane: PaneText) -> PaneText:
    return pane.model_copy(update={"elements": None})


def _drop_seen(dropped: DroppedElement) -> DropText:
    return DropText(
        v=dropped.element.value.get("v"),
        window=_bounds(dropped.window),
        reason=dropped.reason,
        late_ms=dropped.lateness_ms,
        key=str(dropped.element.key),
    )


def _bounds(window: AnyWindow) -> tuple[int, int]:
    return (window.first, window.end) if isinstance(window, CountWindow) else (window.start_ms, window.end_ms)
