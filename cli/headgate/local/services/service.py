"""What ``headgate up`` must know of a service: its process, its settings, what it reads and needs, how it is shown and
how its output is compared with what must come.

Everything else (broker, workspace, generator, the order of start and stop) is the same for all and is in
``headgate.local.stack``. A new service is a module beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headgate.local.shop.feed import Feed
from headgate.local.shop.settings import ShopSettings
from headgate.local.workspace import Names, Workspace
from headgate.output import Json
from headgate.talk import Say
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headgate.local.app_process import Figures
    from headgate.local.java import Java
    from headgate.local.stack import Stack
    from headgate.timeline import Timeline
    from streamcore.service.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class Ground:
    """What a service stands on: Kafka, its workspace, Spark's jars, and the folder of stream files."""

    kafka: KafkaSettings
    shop: Workspace
    jars: Path
    streams: Path


class Server(Protocol):
    """A real server that a service writes to, started by us or somebody else's."""

    def start(self, say: Say) -> None:
        """Make sure that it is there."""
        ...

    def check(self) -> None:
        """Raise when it is gone."""
        ...

    def stop(self, say: Say) -> None:
        """End it, if we started it."""
        ...


class Screen(Protocol):
    """The live view of one run."""

    def poll(self) -> None:
        """Take what has come; quick."""
        ...

    def picture(self, phase: str, width: int, height: int) -> RenderableType:
        """For a terminal of this size."""
        ...

    def line(self) -> str:
        """All of it in a line, where there is no terminal."""
        ...

    def close(self) -> None:
        """Let go of what it reads from."""
        ...


class Verdict(Protocol):
    """``good``: nothing lost, nothing twice, nothing too much."""

    @property
    def good(self) -> bool: ...

    def document(self) -> dict[str, Json]:
        """For programs."""
        ...


class Check(Protocol):
    """Compares what came out with what must have; made before this run's events are sent."""

    def processed(self) -> None:
        """All events are processed, and the app still runs."""
        ...

    def verdict(self) -> Verdict:
        """The app has stopped."""
        ...


class Service(Protocol):
    """One service. ``name`` is what people call it; ``module`` is run with ``python -m``."""

    @property
    def name(self) -> str: ...

    @property
    def module(self) -> str: ...

    @property
    def names(self) -> Names:
        """The names that a first workspace takes."""
        ...

    def load(self) -> None:
        """What takes long to import or to read, while broker and app start. Raises what is wrong with it."""
        ...

    def server(self, folder: Path, java: Java) -> Server | None:
        """What it needs beside Kafka; None: nothing."""
        ...

    def settings(self, ground: Ground) -> ServiceSettings:
        """Of the app."""
        ...

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """What the app writes, and its control topic."""
        ...

    def forget(self, ground: Ground, say: Say) -> None:
        """The shop is new: delete what an earlier one of the same folder left outside Kafka. Comes before
        ``prepare``."""
        ...

    def prepare(self, ground: Ground, say: Say) -> None:
        """What must be there before the first event: rules, tables."""
        ...

    def feed(self, names: Names, shop: ShopSettings) -> Feed:
        """What the generator sends."""
        ...

    def milestones(self, figures: Figures) -> Mapping[str, bool]:
        """What a first run wants to know the time of, and whether it has happened."""
        ...

    def screen(self, stack: Stack, timeline: Timeline) -> Screen:
        """The live view."""
        ...

    def check(self, stack: Stack) -> Check:
        """The comparison."""
        ...
