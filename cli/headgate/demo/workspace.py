"""One run of `headgate up` on disk: its names in Kafka, its invented stream, its checkpoint and its logs.

Promises: two workspaces never share a topic, and neither do a workspace and the one that `--fresh` puts in its place,
because a name is taken only when no topic has it. A workspace whose topics are gone is not continued. One process uses
a workspace at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headgate.console.messages import Print
from headgate.demo.shop.settings import ShopSettings, start_before
from headgate.errors import InputError
from headgate.local import cache
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics

PARTITIONS = 4
_MAX_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The app and the topics of one shop. ``inputs``: topics that are read beside ``events``, by their last name;
    ``lanes``: those that are written."""

    app: str
    inputs: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()

    @property
    def events(self) -> str:
        """The event topic."""
        return self.app

    @property
    def control(self) -> str:
        """Where rules are published."""
        return f"{self.app}.control"

    def input(self, name: str) -> str:
        """Return the topic of a further input."""
        return f"{self.app}.{name}"

    @property
    def read(self) -> tuple[str, ...]:
        """The topics that the app reads."""
        return (self.events, *(self.input(name) for name in self.inputs))

    def lane(self, lane: str) -> str:
        """Return the topic of a lane of the app."""
        return f"{self.app}.{lane}"

    @property
    def all(self) -> tuple[str, ...]:
        """Every topic."""
        return (*self.read, self.control, self.lane("markers"), *(self.lane(lane) for lane in self.lanes))


@dataclass(frozen=True, slots=True)
class Workspace:
    """A shop with its names. ``broker`` identifies the Kafka that holds it: no other Kafka has its topics."""

    folder: Path
    names: TopicNames
    shop: ShopSettings
    broker: str

    @property
    def checkpoint(self) -> Path:
        """The app's."""
        return self.folder / "checkpoint"

    @property
    def settings_file(self) -> Path:
        """The app's settings; the path also marks the app's process as this workspace's."""
        return self.folder / "settings.json"

    @property
    def log(self) -> Path:
        """The log of the app."""
        return self.folder / "app.log"

    @property
    def scratch(self) -> Path:
        """Spark's temporary files."""
        return self.folder / "tmp"


def default_folder(app: str) -> Path:
    """In the cache, by the first name of the service's app."""
    return cache.root() / app


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Be the one that uses the folder; ``InputError`` names the process that does already."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "up.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise InputError(
                f"data folder {folder}: in use by headgate up, process {handle.read().strip() or 'unknown'}; "
                "stop that one, or name another folder with --data"
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def load(folder: Path, broker: str, like: TopicNames) -> Workspace | None:
    """Load the workspace of this folder on this Kafka; None when there is none. ``like``: the topics of its
    service."""
    found = _read(folder, like)
    return found if found is not None and found.broker == broker else None


def load_any(folder: Path, like: TopicNames) -> Workspace | None:
    """Load the workspace of this folder on any Kafka; None also when it cannot be read."""
    try:
        return _read(folder, like)
    except InputError:
        return None


def _read(folder: Path, like: TopicNames) -> Workspace | None:
    path = _file(folder)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Workspace(folder, replace(like, app=found["app"]), ShopSettings(**found["shop"]), found["broker"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start anew with --fresh") from error


def is_whole(workspace: Workspace, kafka: KafkaSettings) -> bool:
    """Return whether Kafka still holds the topics that the workspace continues."""
    return set(describe(kafka, workspace.names.all)) >= {*workspace.names.read, workspace.names.control}


def create(
    folder: Path, broker: str, kafka: KafkaSettings, seed: int | None, print_message: Print, like: TopicNames
) -> Workspace:
    """Create a shop in this folder; delete the topics and files of an old one there."""
    discard(folder, broker, kafka, print_message, like)
    with cache.exclusive("shop-names", print_message):
        names = _free_names(kafka, like)
        ensure_topics(kafka, [TopicSpec(topic, PARTITIONS) for topic in names.read])
    start_ms = start_before(time.time_ns() // 1_000_000)
    shop = ShopSettings(secrets.randbelow(2**31) if seed is None else seed, start_ms)
    workspace = Workspace(folder, names, shop, broker)
    part = folder / "workspace.part"
    part.write_text(json.dumps({"app": names.app, "shop": asdict(shop), "broker": broker}), encoding="utf-8")
    part.replace(_file(folder))
    return workspace


def discard(folder: Path, broker: str, kafka: KafkaSettings, print_message: Print, like: TopicNames) -> None:
    """Delete the workspace's files and its topics. No other files of the folder are deleted."""
    old = load_any(folder, like)
    if old is not None and old.broker == broker:
        print_message(f"deleting the old shop {old.names.app} and its topics")
        delete_topics(kafka, old.names.all)
    _file(folder).unlink(missing_ok=True)
    for name in ("checkpoint", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _file(folder: Path) -> Path:
    return folder / "workspace.json"


def _free_names(kafka: KafkaSettings, like: TopicNames) -> TopicNames:
    """``shop``, else the first of ``shop-2``, ``shop-3``, ... of which no topic exists."""
    for number in range(1, _MAX_NAMES):
        names = like if number == 1 else replace(like, app=f"{like.app}-{number}")
        if not describe(kafka, names.all):
            return names
    raise InputError(f"kafka {kafka.bootstrap}: {_MAX_NAMES} shops are there; delete the topics of some")
