"""The states of a trigger in columns: when it is ready, and after how many elements it will be.

A *condition*, once it is ready, remains so until a pane fires: a count, processing time, the end of the stream, and
all or any of them; or a punctuation alone. Supported are conditions that restart after each pane: ``Repeatedly``, and
``AfterWatermark`` with a condition as ``early`` and as ``late``; and ``Purging`` around any of these. So a pane resets
the whole state, except that the window has fired at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.windowing.composite_triggers import AllOf, AnyOf, Purging, Repeatedly
from streamcore.windowing.triggers import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AtEndOfStream,
    Never,
    OnPunctuation,
    Trigger,
)

Mask = npt.NDArray[np.bool_]
#: States of several windows by column, each of shape (windows,).
TriggerStates = Mapping[str, Ints]
#: A number of elements that never arrive, and a clock that is never reached.
NEVER = 2**62


@dataclass(frozen=True)
class _Node:
    """A trigger in its place. ``column``: the column of its state, if it has one."""

    trigger: Trigger
    parts: tuple[_Node, ...]
    column: str


@dataclass(frozen=True)
class TriggerPhase:
    """The condition of panes before the end of a window, or after it. ``purges``: each pane empties the window."""

    condition: _Node
    purges: bool

    @property
    def flag(self) -> str | None:
        """Return the field of a punctuation; None for other conditions."""
        trigger = self.condition.trigger
        return trigger.flag if isinstance(trigger, OnPunctuation) else None


class TriggerColumns:
    """The states of one supported trigger.

    ``early``: the phase before the pane at the end of the window, or the only one. ``late``: the phase after it, None
    without ``AfterWatermark``. ``ended``: the column that is 1 after the pane at the end, None without
    ``AfterWatermark``. ``start``: the state of a new window. ``wakes``: the columns with the clock at which processing
    time is up, ``NEVER`` if it does not run, with the delays.
    """

    def __init__(self, trigger: Trigger) -> None:
        self._root = _node(trigger, iter(range(1_000)))
        node, self.purges_at_end = _unwrap(self._root)
        at_end = isinstance(node.trigger, AfterWatermark)
        self.ended = node.column if at_end else None
        phases = [TriggerPhase(*_unwrap(part)) for part in node.parts] if at_end else [TriggerPhase(node, False)]
        phases = [TriggerPhase(phase.condition, phase.purges or self.purges_at_end) for phase in phases]
        self.early, self.late = phases[0], phases[-1] if at_end else None
        nodes = [*_walk(self._root)]
        self.wakes = {n.column: n.trigger.delay_ms for n in nodes if isinstance(n.trigger, AfterProcessingTime)}
        self._texts: dict[tuple[str, ...], pl.Expr] = {}
        self.start = {n.column: NEVER if n.column in self.wakes else 0 for n in nodes if n.column}

    @property
    def fires_early(self) -> bool:
        """Return whether a pane can be due before the end of a window."""
        return not isinstance(self.early.condition.trigger, Never)

    # --- decisions ----------------------------------------------------------------------------------------------

    def find_ready(self, states: TriggerStates, past_end: Mask, clock_ms: int, *, stream_ended: bool) -> Mask:
        """Return whether a pane is due. ``past_end``, of shape (windows,): whether the window's end has passed."""
        early = _ready(self.early.condition, states, len(past_end), clock_ms, stream_ended)
        if self.ended is None or self.late is None:
            return early
        late = _ready(self.late.condition, states, len(past_end), clock_ms, stream_ended)
        ended = states[self.ended] == 1
        ready: Mask = np.where(ended, late, early | past_end)
        return ready

    def find_purging(self, states: TriggerStates, past_end: Mask) -> Mask:
        """Return whether a pane that fires now empties its window."""
        if self.ended is None or self.late is None:
            return np.full(len(past_end), self.early.purges)
        ended = states[self.ended] == 1
        return np.where(ended, self.late.purges, np.where(past_end, self.purges_at_end, self.early.purges))

    def elements_until_ready(self, phase: TriggerPhase, states: TriggerStates, count: int, clock_ms: int) -> Ints:
        """Return, for each of ``count`` windows, after how many further elements the condition is ready, at least 1."""
        return _until_ready(phase.condition, states, count, clock_ms)

    def period(self, phase: TriggerPhase, clock_ms: int) -> int:
        """Return how many elements after a pane the next pane fires, at one clock."""
        start = {name: np.array([value]) for name, value in self.start.items()}
        return int(_until_ready(phase.condition, start, 1, clock_ms)[0])

    def observe(self, states: TriggerStates, is_late: Mask, counts: Ints, clock_ms: int) -> dict[str, Ints]:
        """Return the states after further elements that fire no pane.

        ``is_late``, of shape (windows,): whether the late phase observes them. ``counts``: their numbers.
        """
        observed = dict(states)
        for phase, is_active in ((self.early, ~is_late), (self.late, is_late)):
            for node in _walk(phase.condition) if phase else ():
                if isinstance(node.trigger, AfterCount):
                    observed[node.column] = states[node.column] + np.where(is_active, counts, 0)
                elif isinstance(node.trigger, AfterProcessingTime):
                    starts = is_active & (counts > 0) & (states[node.column] == NEVER)
                    observed[node.column] = np.where(starts, clock_ms + node.trigger.delay_ms, states[node.column])
        return observed

    # --- the stored form ----------------------------------------------------------------------------------------

    def encode(self, states: TriggerStates, numbers: Mapping[str, pl.Series]) -> pl.Series:
        """Return the JSON of ``WindowTable``: the state of the trigger, then the numbers."""
        columns = {name: pl.Series(name, values) for name, values in states.items()}
        frame = pl.DataFrame([*columns.values(), *numbers.values()])
        return frame.select(self._stored_text(tuple(numbers))).to_series()

    def _stored_text(self, numbers: tuple[str, ...]) -> pl.Expr:
        """Return the text of ``encode``. Its constants are joined: in a small cut each costs as much as a column."""
        found = self._texts.get(numbers)
        if found is None:
            parts = ["[", *self._json(self._root), *(part for name in numbers for part in (",", pl.col(name))), "]"]
            joined: list[pl.Expr | str] = []
            for part in parts:
                if isinstance(part, str) and joined and isinstance(before := joined[-1], str):
                    joined[-1] = before + part
                else:
                    joined.append(part)
            columns = [pl.lit(part) if isinstance(part, str) else part.cast(pl.String) for part in joined]
            found = self._texts[numbers] = pl.concat_str(columns).cast(pl.Binary)
        return found

    def decode(self, stored: pl.Series, numbers: list[str]) -> dict[str, Ints]:
        """Return the columns of ``encode`` by name."""
        tokens = pl.col("stored").list
        order = [*(self._stored_columns(self._root)), *numbers]
        frame = pl.DataFrame({"stored": stored.cast(pl.String).str.extract_all("[a-z0-9-]+")})
        texts = frame.select(tokens.get(place).alias(name) for place, name in enumerate(order) if name)
        digits = texts.with_columns(pl.all().replace({"false": "0", "true": "1", "null": None}).cast(pl.Int64))
        clocks = [(pl.col(name) + delay_ms).fill_null(NEVER) for name, delay_ms in self.wakes.items()]
        return {column.name: column.to_numpy().copy() for column in digits.with_columns(clocks)}

    def _json(self, node: _Node) -> Iterator[pl.Expr | str]:
        """Yield the text of ``[done, count, since_ms, flag, [parts]]``. A stored trigger is never done."""
        column = pl.col(node.column) if node.column else pl.lit(0)
        count: pl.Expr | str = "0"
        since_ms: pl.Expr | str = "null"
        flag: pl.Expr | str = "false"
        match node.trigger:
            case AfterCount():
                count = column
            case AfterProcessingTime(delay_ms):
                clock = (column - delay_ms).cast(pl.String)
                since_ms = pl.when(column < NEVER).then(clock).otherwise(pl.lit("null"))
            case AfterWatermark():
                flag = pl.when(column == 1).then(pl.lit("true")).otherwise(pl.lit("false"))
        yield from ("[false,", count, ",", since_ms, ",", flag, ",[")
        for place, part in enumerate(node.parts):
            yield from ([","] if place else [])
            yield from self._json(part)
        yield "]]"

    def _stored_columns(self, node: _Node) -> Iterator[str]:
        """Yield, for each value of the JSON of a state, the name of its column, or nothing."""
        place = {AfterCount: 1, AfterProcessingTime: 2, AfterWatermark: 3}.get(type(node.trigger), 0)
        yield from (node.column if number == place else "" for number in range(4))
        for part in node.parts:
            yield from self._stored_columns(part)


def has_columns(trigger: Trigger) -> bool:
    """Return whether ``TriggerColumns`` supports the trigger."""
    inner, repeats = trigger, False
    while isinstance(inner, Repeatedly | Purging):
        repeats |= isinstance(inner, Repeatedly)
        inner = inner.trigger
    if not isinstance(inner, AfterWatermark):
        return repeats and _is_condition(inner)
    return not repeats and all(_is_condition(_unwrap_trigger(part)) for part in inner.parts)


def _is_condition(trigger: Trigger) -> bool:
    return isinstance(trigger, OnPunctuation) or _is_counted(trigger)


def _is_counted(trigger: Trigger) -> bool:
    if isinstance(trigger, AnyOf | AllOf):
        return all(_is_counted(part) for part in trigger.parts)
    return isinstance(trigger, AfterCount | AfterProcessingTime | AtEndOfStream | Never)


def _unwrap_trigger(trigger: Trigger) -> Trigger:
    while isinstance(trigger, Repeatedly | Purging):
        trigger = trigger.trigger
    return trigger


def _node(trigger: Trigger, numbers: Iterator[int]) -> _Node:
    has_state = isinstance(trigger, AfterCount | AfterProcessingTime | AfterWatermark)
    column = f"{type(trigger).__name__}.{next(numbers)}" if has_state else ""
    return _Node(trigger, tuple(_node(part, numbers) for part in trigger.parts), column)


def _unwrap(node: _Node) -> tuple[_Node, bool]:
    """Return the trigger within ``Repeatedly`` and ``Purging``, and whether it purges."""
    purges = False
    while isinstance(node.trigger, Repeatedly | Purging):
        purges |= isinstance(node.trigger, Purging)
        (node,) = node.parts
    return node, purges


def _walk(node: _Node) -> Iterator[_Node]:
    yield node
    for part in node.parts:
        yield from _walk(part)


def _ready(node: _Node, states: TriggerStates, size: int, clock_ms: int, stream_ended: bool) -> Mask:
    parts = [_ready(part, states, size, clock_ms, stream_ended) for part in node.parts]
    ready: Mask = np.full(size, stream_ended and isinstance(node.trigger, AtEndOfStream))
    match node.trigger:
        case AnyOf():
            ready = np.logical_or.reduce(parts)
        case AllOf():
            ready = np.logical_and.reduce(parts)
        case AfterCount(count):
            ready = states[node.column] >= count
        case AfterProcessingTime():
            ready = states[node.column] <= clock_ms
    return ready


def _until_ready(node: _Node, states: TriggerStates, size: int, clock_ms: int) -> Ints:
    parts = [_until_ready(part, states, size, clock_ms) for part in node.parts]
    elements: Ints = np.full(size, NEVER)
    match node.trigger:
        case AnyOf():
            elements = np.minimum.reduce(parts)
        case AllOf():
            elements = np.maximum.reduce(parts)
        case AfterCount(count):
            elements = np.maximum(count - states[node.column], 1)
        case AfterProcessingTime(delay_ms):
            wakes_ms = np.where(states[node.column] == NEVER, clock_ms + delay_ms, states[node.column])
            elements = np.where(wakes_ms <= clock_ms, 1, NEVER)
    return elements
