"""The description of a service for ``headgate up``: its process, settings, inputs and requirements, its live view, and
the comparison of its output with the expected output.

Everything else (broker, workspace, generator, the order of start and stop) is the same for all and is in
``headgate.demo.stack``. A new service is a module in ``headgate.demo.services``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.console.messages import Print
from headgate.demo.shop.feed import Feed
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.verify.summary import VerifySummary
from headgate.demo.workspace import TopicNames, Workspace
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headgate.console.timeline import Timeline
    from headgate.demo.app_process import AppMetrics, AppProcess
    from headgate.demo.generator import Generator
    from headgate.local.java import Java
    from streamcore.service.config.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The environment of a service: Kafka, its workspace, Spark's jars, and the folder of stream files."""

    kafka: KafkaSettings
    workspace: Workspace
    jars: Path
    streams: Path


class RunView(Protocol):
    """A run as its live view and its verifier see it."""

    @property
    def kafka(self) -> KafkaSettings: ...

    @property
    def workspace(self) -> Workspace: ...

    @property
    def context(self) -> ServiceContext: ...

    @property
    def streams(self) -> Path | None:
        """The folder of stream files that the user names; None: the shipped one."""
        ...

    @property
    def app(self) -> AppProcess: ...

    @property
    def generator(self) -> Generator: ...

    def check(self) -> None:
        """Raise an error when a process of the run has ended."""
        ...


class Server(Protocol):
    """A real server that a service writes to, started by this process or run by another owner."""

    def start(self, say: Print) -> None:
        """Make sure that it is there."""
        ...

    def check(self) -> None:
        """Raise when it is gone."""
        ...

    def stop(self, say: Print) -> None:
        """End it, if we started it."""
        ...


class LiveView(Protocol):
    """The live view of one run."""

    def poll(self) -> None:
        """Take the records that have arrived; returns quickly."""
        ...

    def picture(self, phase: str, width: int, height: int) -> RenderableType:
        """For a terminal of this size."""
        ...

    def line(self) -> str:
        """All of it in a line, where there is no terminal."""
        ...

    def close(self) -> None:
        """Release the sources that the watch reads from."""
        ...


class VerifyResult(Protocol):
    """``good``: nothing lost, nothing twice, nothing too much."""

    @property
    def good(self) -> bool: ...

    def summary(self) -> VerifySummary:
        """Return the result in the schema of all services."""
        ...


class Verifier(Protocol):
    """Compares the actual output with the expected output; created before this run's events are sent."""

    def events_processed(self) -> None:
        """All events are processed, and the app still runs."""
        ...

    def compare(self) -> VerifyResult:
        """Compare the output with the expectation, after the app has stopped."""
        ...


class Service(Protocol):
    """One service. ``name`` is its name for users; ``module`` is run with ``python -m``."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> str: ...

    @property
    def names(self) -> TopicNames:
        """The names that a first workspace takes."""
        ...

    def load(self) -> None:
        """Import or read slow resources while the broker and the app start. Raise an error if one is invalid."""
        ...

    def server(self, folder: Path, java: Java) -> Server | None:
        """Return the server that the service needs beside Kafka, or None."""
        ...

    def settings(self, context: ServiceContext) -> ServiceSettings:
        """Of the app."""
        ...

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        ...

    def delete_leftovers(self, context: ServiceContext, say: Print) -> None:
        """Delete the data that an earlier shop of the same folder left outside Kafka. Called before ``prepare``, for a
        new shop."""
        ...

    def prepare(self, context: ServiceContext, say: Print) -> None:
        """Create the rules and tables that must exist before the first event."""
        ...

    def feed(self, names: TopicNames, shop: ShopSettings) -> Feed:
        """Return the records that the generator sends."""
        ...

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return, by name, whether each milestone of a first run has been reached."""
        ...

    def live_view(self, run: RunView, timeline: Timeline) -> LiveView:
        """Return the live view."""
        ...

    def verifier(self, run: RunView) -> Verifier:
        """Return the verifier of this run."""
        ...
