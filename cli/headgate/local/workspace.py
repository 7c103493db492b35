"""One shop of `headgate up` on disk: its names in Kafka, its invented stream, its checkpoint and its logs.

Promises: two workspaces never share a topic, and neither do a workspace and what `--fresh` made of it, because a name
is taken only when no topic has it. A workspace whose topics are gone is not continued. One process uses a workspace
at a time.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from headgate.errors import InputError
from headgate.local import cache
from headgate.local.shop.settings import ShopSettings, start_before
from headgate.talk import Say
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics
from streamcore.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

PARTITIONS = 4
FIRST_NAME = "shop"
_MAX_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Names:
    """The app and the topics of one shop."""

    app: str

    @property
    def events(self) -> str:
        """The event topic."""
        return self.app

    @property
    def control(self) -> str:
        """Where rules are published."""
        return f"{self.app}.control"

    def lane(self, lane: str) -> str:
        """The topic of a lane of the app."""
        return f"{self.app}.{lane}"

    @property
    def all(self) -> tuple[str, ...]:
        """Every topic."""
        lanes = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)
        return (self.events, self.control, self.lane("markers"), *(self.lane(lane) for lane in lanes))


@dataclass(frozen=True, slots=True)
class Workspace:
    """A shop with its names. ``broker`` says which Kafka holds it: another one knows nothing of it."""

    folder: Path
    names: Names
    shop: ShopSettings
    broker: str

    @property
    def checkpoint(self) -> Path:
        """The app's."""
        return self.folder / "checkpoint"

    @property
    def settings_file(self) -> Path:
        """The app's settings; the path also marks the app's process as this workspace's."""
        return self.folder / "rules.json"

    @property
    def log(self) -> Path:
        """What the app says."""
        return self.folder / "rules.log"

    @property
    def scratch(self) -> Path:
        """Spark's temporary files."""
        return self.folder / "tmp"


def default_folder() -> Path:
    """``shop/`` in the cache."""
    return cache.root() / "shop"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
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


def load(folder: Path, broker: str) -> Workspace | None:
    """The workspace of this folder on this Kafka, None when there is none."""
    path = _file(folder)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        workspace = Workspace(folder, Names(found["app"]), ShopSettings(**found["shop"]), found["broker"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start anew with --fresh") from error
    return workspace if workspace.broker == broker else None


def is_whole(workspace: Workspace, kafka: KafkaSettings) -> bool:
    """Whether Kafka still holds what the workspace continues."""
    return set(describe(kafka, workspace.names.all)) >= {workspace.names.events, workspace.names.control}


def create(folder: Path, broker: str, kafka: KafkaSettings, seed: int | None, say: Say) -> Workspace:
    """A new shop in this folder; the topics and files of an old one there are deleted."""
    discard(folder, broker, kafka, say)
    with cache.exclusive("shop-names", say):
        names = _free_names(kafka)
        ensure_topics(kafka, [TopicSpec(names.events, PARTITIONS)])
    start_ms = start_before(time.time_ns() // 1_000_000)
    shop = ShopSettings(secrets.randbelow(2**31) if seed is None else seed, start_ms)
    workspace = Workspace(folder, names, shop, broker)
    part = folder / "workspace.part"
    part.write_text(json.dumps({"app": names.app, "shop": asdict(shop), "broker": broker}), encoding="utf-8")
    part.replace(_file(folder))
    return workspace


def discard(folder: Path, broker: str, kafka: KafkaSettings, say: Say) -> None:
    """Delete what was in the folder and its topics. Only what a workspace is made of is deleted."""
    old = load(folder, broker)
    if old is not None:
        say(f"deleting the old shop {old.names.app} and its topics")
        delete_topics(kafka, old.names.all)
    _file(folder).unlink(missing_ok=True)
    for name in ("checkpoint", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _file(folder: Path) -> Path:
    return folder / "workspace.json"


def _free_names(kafka: KafkaSettings) -> Names:
    """``shop``, else the first of ``shop-2``, ``shop-3``, ... of which no topic exists."""
    for number in range(1, _MAX_NAMES):
        names = Names(FIRST_NAME if number == 1 else f"{FIRST_NAME}-{number}")
        if not describe(kafka, names.all):
            return names
    raise InputError(f"kafka {kafka.bootstrap}: {_MAX_NAMES} shops are there; delete the topics of some")
