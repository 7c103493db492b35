"""Calls of an assigner, a trigger or an evictor of the user, each of which can fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.errors import StreamError
from streamcore.windowing.assigners import Assigner
from streamcore.windowing.evictors import Evictor
from streamcore.windowing.model import AnyWindow, CountWindow, Element, Window
from streamcore.windowing.triggers import Trigger, TriggerContext, TriggerState


class FailedCallError(StreamError):
    """A call of the user's code failed; the message is the reason."""


class CheckedTrigger:
    """Calls a trigger of the user; ``FailedCallError`` if a call fails or returns no value that can be stored."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger

    def start(self) -> TriggerState:
        return self._state("start")

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        return self._state("observe", state, element, context)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return bool(self._call("ready", state, context))

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        return bool(self._call("purges", state, context))

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        return self._state("fire", state, context)

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return self._state("merge", states, context)

    def _state(self, method: str, *arguments: object) -> TriggerState:
        state = self._call(method, *arguments)
        if not _is_state(state):
            raise FailedCallError(f"{type(self.trigger).__name__}.{method}: returns no TriggerState")
        assert isinstance(state, TriggerState)
        return state

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self.trigger, method)(*arguments)
        except CALL_ERRORS as error:
            raise FailedCallError(failure_reason(f"{type(self.trigger).__name__}.{method}", error)) from error


def assigned_windows(assigner: Assigner, element: Element) -> tuple[AnyWindow, ...]:
    """Return the windows that an assigner of the user gives an element; ``FailedCallError`` if it fails."""
    call = f"{type(assigner).__name__}.windows"
    try:
        windows = tuple(assigner.windows(element))
    except CALL_ERRORS as error:
        raise FailedCallError(failure_reason(call, error)) from error
    kind = Window if assigner.in_event_time else CountWindow
    if not windows or not all(isinstance(window, kind) for window in windows):
        raise FailedCallError(f"{call}: returns no tuple of {kind.__name__}")
    return windows


def kept_elements(evictor: Evictor, elements: Sequence[Element]) -> tuple[Element, ...]:
    """Return the elements that an evictor of the user keeps; ``FailedCallError`` if it fails."""
    call = f"{type(evictor).__name__}.keep"
    try:
        kept = tuple(evictor.keep(tuple(elements)))
    except CALL_ERRORS as error:
        raise FailedCallError(failure_reason(call, error)) from error
    if not all(isinstance(element, Element) for element in kept):
        raise FailedCallError(f"{call}: returns no tuple of elements")
    return kept


def _is_state(state: object) -> bool:
    """Return whether it is a state with values that can be stored."""
    if not isinstance(state, TriggerState):
        return False
    done, count, since_ms, flag, parts = (getattr(state, field.name) for field in fields(TriggerState))
    are_numbers = isinstance(count, int) and isinstance(since_ms, int | None)
    return isinstance(done, bool) and are_numbers and isinstance(flag, bool) and all(_is_state(part) for part in parts)
