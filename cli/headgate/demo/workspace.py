"""The data folder of ``headgate up``: it holds one workspace.

A workspace belongs to one app. It records the names of the app and its topics and the settings of the demo shop, and
holds the app's checkpoint and logs. Promises: no two workspaces share a topic, not even a workspace and its replacement
by ``--fresh``, because a workspace takes only names that no topic has. One process uses a workspace at a time.
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
from headgate.demo.shop.settings import ShopSettings, shop_start_ms
from headgate.errors import InputError
from headgate.local import cache
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics

PARTITIONS = 4
_MAX_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class AppNames:
    """The names of an app and its topics. ``inputs``: the inputs beside ``events``; ``lanes``: the outputs. The topic
    of an input or lane is ``<app>.<name>``."""

    app: str
    inputs: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()

    @property
    def events(self) -> str:
        """The event topic, which has the app's name."""
        return self.app

    @property
    def control(self) -> str:
        """The control topic."""
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
        """All topics: those that the app reads and writes, its control topic and its markers topic."""
        return (*self.read, self.control, self.lane("markers"), *(self.lane(lane) for lane in self.lanes))


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace of ``folder``. ``broker`` identifies the Kafka that has its topics."""

    folder: Path
    names: AppNames
    shop: ShopSettings
    broker: str

    @property
    def checkpoint(self) -> Path:
        """The app's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def settings_file(self) -> Path:
        """The app's settings. The path in its command line also identifies the app's process as this workspace's."""
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
    """Return the data folder of a service in the cache. ``app``: the app's name in the first workspace."""
    return cache.root() / app


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder. Raises ``InputError``, naming the process, if another one holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "up.lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise InputError(
                f"data folder {folder}: in use by headgate up, process {handle.read().strip() or 'unknown'}; "
                "stop that process, or name another folder with --data"
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def load(folder: Path, broker: str, like: AppNames) -> Workspace | None:
    """Load the workspace of the folder; None if there is none, or if it belongs to another Kafka than ``broker``.

    ``like``: the names of the service; the file has only the app's name.
    """
    workspace = _read(folder, like)
    return workspace if workspace is not None and workspace.broker == broker else None


def load_any(folder: Path, like: AppNames) -> Workspace | None:
    """Load the workspace of the folder, on whichever Kafka; None if there is none, or if its file cannot be read."""
    try:
        return _read(folder, like)
    except InputError:
        return None


def _read(folder: Path, like: AppNames) -> Workspace | None:
    path = _file(folder)
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Workspace(
            folder, replace(like, app=document["app"]), ShopSettings(**document["shop"]), document["broker"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start with a new workspace: --fresh") from error


def has_topics(workspace: Workspace, kafka: KafkaSettings) -> bool:
    """Return whether Kafka still has the topics that the app reads."""
    return set(describe(kafka, workspace.names.all)) >= {*workspace.names.read, workspace.names.control}


def create(
    folder: Path, broker: str, kafka: KafkaSettings, seed: int | None, print_message: Print, like: AppNames
) -> Workspace:
    """Create a workspace in the folder, after deleting the topics and files of an old one.

    ``seed``: of the demo shop; None: a random one.
    """
    discard(folder, broker, kafka, print_message, like)
    with cache.exclusive("shop-names", print_message):
        names = _free_names(kafka, like)
        ensure_topics(kafka, [TopicSpec(topic, PARTITIONS) for topic in names.read])
    start_ms = shop_start_ms(time.time_ns() // 1_000_000)
    shop = ShopSettings(secrets.randbelow(2**31) if seed is None else seed, start_ms)
    workspace = Workspace(folder, names, shop, broker)
    part = folder / "workspace.part"
    part.write_text(json.dumps({"app": names.app, "shop": asdict(shop), "broker": broker}), encoding="utf-8")
    part.replace(_file(folder))
    return workspace


def discard(folder: Path, broker: str, kafka: KafkaSettings, print_message: Print, like: AppNames) -> None:
    """Delete the workspace's files, and its topics if they are on this Kafka. Other files of the folder stay."""
    old = load_any(folder, like)
    if old is not None and old.broker == broker:
        print_message(f"deleting the old shop {old.names.app} and its topics")
        delete_topics(kafka, old.names.all)
    _file(folder).unlink(missing_ok=True)
    for name in ("checkpoint", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _file(folder: Path) -> Path:
    return folder / "workspace.json"


def _free_names(kafka: KafkaSettings, like: AppNames) -> AppNames:
    """Return names of which no topic exists: ``like`` itself, or else with the app's name ``shop-2``, ``shop-3``,
    ..."""
    for number in range(1, _MAX_NAMES):
        names = like if number == 1 else replace(like, app=f"{like.app}-{number}")
        if not describe(kafka, names.all):
            return names
    raise InputError(f"kafka {kafka.bootstrap}: {_MAX_NAMES} workspaces have topics there; delete the topics of some")
