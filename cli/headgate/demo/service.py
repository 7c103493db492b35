"""The interface between ``headgate up`` and the services that it runs.

A service (etl, rules, search, sessions) implements ``Service``: its process, its settings, the records that it is fed,
the server that it needs, its live view, and its verifier. ``headgate.demo.stack`` does what all services share: broker,
workspace, generator, and the order of start and stop. A new service is a module in ``headgate.demo.services``.
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
from headgate.demo.workspace import AppNames, Workspace
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
    """The environment of a service. ``jars``: the folder of Spark's jars. ``streams``: the folder of stream files that
    the service reads, the shipped one unless the user names another."""

    kafka: KafkaSettings
    workspace: Workspace
    jars: Path
    streams: Path


class ServiceRun(Protocol):
    """The part of a run that its live view and its verifier use."""

    @property
    def kafka(self) -> KafkaSettings: ...

    @property
    def workspace(self) -> Workspace: ...

    @property
    def context(self) -> ServiceContext: ...

    @property
    def user_streams(self) -> Path | None:
        """The folder of stream files that the user named; None if the user named none, and the service reads
        the shipped one, ``context.streams``."""
        ...

    @property
    def app(self) -> AppProcess: ...

    @property
    def generator(self) -> Generator: ...

    def raise_if_ended(self) -> None:
        """Raise an error if a process of the run has ended."""
        ...


class Server(Protocol):
    """A server that a service writes to, such as PostgreSQL: a local one, or an external one that the user named."""

    def start(self, print_message: Print) -> None:
        """Start a local server that does not run yet; raise an error if an external server does not answer."""
        ...

    def raise_if_ended(self) -> None:
        """Raise an error if a local server has ended."""
        ...

    def stop(self, print_message: Print) -> None:
        """Stop the server if ``start`` started it."""
        ...


class LiveView(Protocol):
    """The live view of one run."""

    def poll(self) -> None:
        """Read the records that have arrived, without waiting for more."""
        ...

    def render(self, phase: str, width: int, height: int) -> RenderableType:
        """Draw the view for a terminal of ``width`` columns and ``height`` lines. ``phase`` is a word or two for its
        first line, such as ``running``."""
        ...

    def status_line(self) -> str:
        """Return the most important figures as one line, for output that does not go to a terminal."""
        ...

    def close(self) -> None:
        """Close the consumers and connections of the live view."""
        ...


class VerifyResult(Protocol):
    """The outcome of a verification."""

    @property
    def passed(self) -> bool:
        """Whether no output is missing, duplicated, wrong or unexpected, and every input record is accounted for."""
        ...

    def summary(self) -> VerifySummary:
        """Return the outcome in the form that all services share."""
        ...


class Verifier(Protocol):
    """Compares the actual output with the expected output; created before this run's events are sent."""

    def on_events_processed(self) -> None:
        """Do what needs the running app. Called once, after the app has processed all events, before it stops."""
        ...

    def compare(self) -> VerifyResult:
        """Read the output and compare it with the expected output. Called after the app has stopped."""
        ...


class Service(Protocol):
    """One service. ``name`` is its name for users; ``module`` is the Python module that runs its app."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> str: ...

    @property
    def app_names(self) -> AppNames:
        """The names of the app and its topics in the first workspace. In a further workspace, a number follows
        the name of the app."""
        ...

    def preload(self) -> None:
        """Import slow modules and read files while the broker and the app start. Raises ``InputError`` if a file is
        invalid."""
        ...

    def server(self, folder: Path, java: Java) -> Server | None:
        """Return the server that the service needs beside Kafka, not yet started, or None. ``folder`` holds the data of
        a local server."""
        ...

    def settings(self, context: ServiceContext) -> ServiceSettings:
        """Return the app's settings."""
        ...

    def app_topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        ...

    def delete_leftovers(self, context: ServiceContext, print_message: Print) -> None:
        """Delete the data outside Kafka of an earlier workspace in the same folder. Called for a new workspace, before
        ``prepare``."""
        ...

    def prepare(self, context: ServiceContext, print_message: Print) -> None:
        """Create the rules and tables that must exist before the first event."""
        ...

    def event_feed(self, names: AppNames, shop: ShopSettings) -> Feed:
        """Return the records that the generator sends."""
        ...

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return, by name, whether each milestone of a first run has been reached."""
        ...

    def live_view(self, run: ServiceRun, timeline: Timeline) -> LiveView:
        """Return a new live view of the run. The caller closes it."""
        ...

    def verifier(self, run: ServiceRun) -> Verifier:
        """Return a verifier. It has already read the output of earlier runs, which it does not count as this run's."""
        ...
