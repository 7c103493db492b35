"""Telemetry of a service, when its settings ask for it: modules that cost memory and time are imported only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from streamcore.engine.lag import Lag
from streamcore.memory.memory_use import MemoryUse
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.observers import CutListener


class TelemetryHook(Protocol):
    """Telemetry that is on, or nothing."""

    def observers(self) -> Sequence[CutListener]:
        """Who has to hear of cuts."""
        ...

    def watch(self, lag: Callable[[], Lag]) -> None:
        """Set the function that returns the lag; it is called at each scrape."""
        ...

    def watch_memory(self, memory: Callable[[], MemoryUse | None]) -> None:
        """Set the function that returns the memory in use, None without a limit."""
        ...

    def watch_lineage(self, counts: Mapping[str, int]) -> None:
        """Set the counts of lineage events by their result, which are read at each scrape."""
        ...

    def savepoint_done(self, at_ms: int) -> None:
        """Record the time of a complete savepoint, in milliseconds."""
        ...

    def command_done(self, do: str, traceparent: str | None, began_ns: int) -> None:
        """Record a finished command: from ``began_ns``, since 1970, to now."""
        ...


class NoTelemetry:
    """Telemetry without a receiver."""

    def observers(self) -> Sequence[CutListener]:
        return ()

    def watch(self, lag: Callable[[], Lag]) -> None:
        """See ``TelemetryHook``."""

    def watch_memory(self, memory: Callable[[], MemoryUse | None]) -> None:
        """See ``TelemetryHook``."""

    def watch_lineage(self, counts: Mapping[str, int]) -> None:
        """See ``TelemetryHook``."""

    def savepoint_done(self, at_ms: int) -> None:
        """See ``TelemetryHook``."""

    def command_done(self, do: str, traceparent: str | None, began_ns: int) -> None:
        """See ``TelemetryHook``."""


@contextmanager
def telemetry_for(settings: ServiceSettings) -> Iterator[TelemetryHook]:
    """For as long as the app runs. ``ConfigError`` when the port is taken."""
    if not settings.telemetry.is_on:
        yield NoTelemetry()
        return
    from streamcore.telemetry import Telemetry, TelemetrySettings

    config = settings.telemetry
    with Telemetry(TelemetrySettings(settings.app, config.prometheus_port, config.otlp_endpoint)) as telemetry:
        yield telemetry
