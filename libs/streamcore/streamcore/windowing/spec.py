"""The specification of a windowed computation, with the checks of its options.

Every ``WindowSpec`` can run: options that would lose data silently, never fire or have no effect raise ``ConfigError``
with a hint.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.windowing.assigners import Assigner
from streamcore.windowing.composite_triggers import Purging
from streamcore.windowing.evictors import Evictor
from streamcore.windowing.model import Accumulation
from streamcore.windowing.triggers import AfterWatermark, Earliest, Trigger, walk


@dataclass(frozen=True)
class WindowSpec:
    """The windows, their trigger, the contents of a pane, and the allowed lateness.

    ``allowed_lateness_ms``: how long after its end, by the watermark, a window accepts elements.
    """

    assigner: Assigner
    trigger: Trigger
    accumulation: Accumulation
    allowed_lateness_ms: DurationField = DurationField(0)
    evictor: Evictor | None = None

    def __post_init__(self) -> None:
        self._check_lateness()
        self._check_accumulation()
        self._check_session()

    @property
    def calls_user_code(self) -> bool:
        """Return whether the assigner, the evictor or a part of the trigger is of the user."""
        return not all(part is None or is_built_in(part) for part in (self.assigner, self.evictor, *walk(self.trigger)))

    def _check_lateness(self) -> None:
        _reject(self.allowed_lateness_ms < 0, f"allowed_lateness_ms must not be negative: {self.allowed_lateness_ms}")
        is_never_late = not (self.assigner.in_event_time and self.assigner.ends)
        trigger = self.trigger.trigger if isinstance(self.trigger, Purging) else self.trigger
        finishes = isinstance(trigger, AfterWatermark) and trigger.late is None
        if self.allowed_lateness_ms:
            _reject(
                is_never_late, "an element is never late for a count or global window: leave out allowed_lateness_ms"
            )
            _reject(
                finishes,
                "AfterWatermark without late finishes at the window's end, so allowed_lateness_ms has no effect: "
                "give it late=AfterCount(1) for a pane per late element, or late=Never() for one closing pane",
            )

    def _check_accumulation(self) -> None:
        purging = any(isinstance(part, Purging) for part in walk(self.trigger))
        _reject(
            purging and self.accumulation is Accumulation.DISCARDING,
            "discarding panes empty the window already: leave out Purging",
        )
        _reject(
            purging and self.accumulation is Accumulation.RETRACTING,
            "a retraction would revoke a pane that Purging has made final: use Accumulation.ACCUMULATING",
        )
        _reject(
            self.evictor is not None and self.accumulation is Accumulation.DISCARDING,
            "an element that an evictor leaves out of a discarding pane would be in no pane: "
            "use ACCUMULATING or RETRACTING",
        )

    def _check_session(self) -> None:
        finish = self.trigger.earliest_finish
        too_early = finish is Earliest.BEFORE_END or (finish is Earliest.AT_END and self.allowed_lateness_ms > 0)
        _reject(
            self.assigner.merges and too_early,
            "a session cannot accept elements after its trigger has finished: wrap the trigger in Repeatedly",
        )


def is_built_in(part: Assigner | Evictor | Trigger) -> bool:
    """Return whether an assigner, an evictor or a trigger is of this package, so that its calls do not fail."""
    return type(part).__module__.rpartition(".")[0] == __package__


def _reject(condition: object, message: str) -> None:
    if condition:
        raise ConfigError(message)
