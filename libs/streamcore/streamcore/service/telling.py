"""Telemetry of a service, when its settings ask for it: what costs memory and time to import is imported then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from streamcore.lag import Lag
from streamcore.service.observers import Observer
from streamcore.service.settings import ServiceSettings


class Telling(Protocol):
    """Telemetry that is on, or nothing."""

    def observers(self) -> Sequence[Observer]:
        """Who has to hear of cuts."""
        ...

    def watch(self, lag: Callable[[], Lag]) -> None:
        """Ask for the lag there, whenever somebody wants to know."""
        ...

    def saved(self, at_ms: int) -> None:
        """A savepoint is complete."""
        ...

    def carried_out(self, do: str, traceparent: str | None, began_ns: int) -> None:
        """What was asked is done: from ``began_ns``, since 1970, to now."""
        ...


class Silent:
    """Nobody is to be told."""

    def observers(self) -> Sequence[Observer]:
        return ()

    def watch(self, lag: Callable[[], Lag]) -> None:
        """See ``Telling``."""

    def saved(self, at_ms: int) -> None:
        """See ``Telling``."""

    def carried_out(self, do: str, traceparent: str | None, began_ns: int) -> None:
        """See ``Telling``."""


@contextmanager
def telling(settings: ServiceSettings) -> Iterator[Telling]:
    """For as long as the app runs. ``ConfigError`` when the port is taken."""
    if not settings.telemetry.is_on:
        yield Silent()
        return
    from streamcore.telemetry import Telemetry, TelemetrySettings

    said = settings.telemetry
    with Telemetry(TelemetrySettings(settings.app, said.prometheus_port, said.otlp_endpoint)) as telemetry:
        yield telemetry
