"""The savepoints of one place: ``<place>/<app>/<name>/``, each with its manifest written last.

A savepoint without a manifest does not exist: it is not listed, cannot be read, and its name is free. Refuses to know
the contents of the files beside their digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streamcore.errors import ConfigError, CorruptState, StreamError
from streamcore.savepoint.manifest import MANIFEST, SavepointManifest, StateFile, sha256
from streamcore.storage import ObjectStore

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def default_name(app: str, batch: int, epoch: int) -> str:
    """Return the name of a savepoint for which the user gave none."""
    return f"{app}-b{batch}-e{epoch}"


def check_name(name: str) -> str:
    """Return the name; ``ConfigError`` where it is none."""
    if not _NAME.match(name):
        raise ConfigError(f"savepoint {name!r}: a name is small letters, digits and -, at most 63, as of a DNS label")
    return name


@dataclass(frozen=True, slots=True)
class Savepoint:
    """One that is complete."""

    folder: ObjectStore
    manifest: SavepointManifest

    def content(self, file: StateFile) -> bytes:
        """Read a file of it. ``CorruptState`` when it differs from the written file."""
        return read_verified(self.folder, file, f"savepoint {self.manifest.name}")

    def verify(self) -> list[str]:
        """Compare its files with the manifest; return a line for each fault."""
        found = (_fault(file, self.folder.read(file.path)) for file in self.manifest.files)
        return [fault for fault in found if fault is not None]


@dataclass(frozen=True, slots=True)
class SavepointRepository:
    """Those of one app. ``place``: the folder of all apps."""

    place: ObjectStore
    app: str

    def folder(self, name: str) -> ObjectStore:
        """Where the savepoint of that name is, or would be."""
        return self.place.under(self.app).under(check_name(name))

    def find(self, name: str) -> Savepoint | None:
        """Return the savepoint of that name, None where there is none."""
        folder = self.folder(name)
        content = folder.read(MANIFEST)
        return None if content is None else Savepoint(folder, SavepointManifest.from_json(content, folder.url))

    def get(self, name: str) -> Savepoint:
        """Return the savepoint of that name; ``ConfigError`` where there is none."""
        found = self.find(name)
        if found is None:
            known = [one.manifest.name for one in self]
            hint = f"there are {', '.join(known)}" if known else "there is none of this app"
            raise ConfigError(f"{self.place.under(self.app).url}: no savepoint {name}; {hint}")
        return found

    def __iter__(self) -> Iterator[Savepoint]:
        """All that are complete and can be read, the oldest first."""
        found = [one for name in self.place.under(self.app).folders() if (one := self._readable(name)) is not None]
        return iter(sorted(found, key=lambda one: (one.manifest.created_ms, one.manifest.name)))

    def _readable(self, name: str) -> Savepoint | None:
        try:
            return self.find(name)
        except StreamError:
            return None

    def create(self, name: str) -> ObjectStore:
        """Return an empty folder for a new one; ``ConfigError`` when the name is taken. The remains of an attempt
        go."""
        folder = self.folder(name)
        if folder.read(MANIFEST) is not None:
            raise ConfigError(f"{folder.url}: there is a savepoint {name}; give another name, or delete that one first")
        folder.remove()
        return folder

    def delete(self, name: str) -> None:
        """Remove one, its manifest first, so that no half of it is left; ``ConfigError`` where there is none."""
        self.get(name)
        self.discard(name)

    def discard(self, name: str) -> None:
        """Remove whatever is there under that name: one that is complete, a part that an attempt left, or nothing."""
        folder = self.folder(name)
        folder.discard(MANIFEST)
        folder.remove()

    def discard_all(self) -> int:
        """Remove all savepoints of the app, complete or not; return their number."""
        folder = self.place.under(self.app)
        found = folder.folders()
        for name in found:
            folder.under(name).discard(MANIFEST)
        folder.remove()
        return len(found)


def apps(place: ObjectStore) -> list[str]:
    """Return the apps that have savepoints at this place."""
    return [app for app in place.folders() if any(True for _ in SavepointRepository(place, app))]


def read_verified(folder: ObjectStore, file: StateFile, what: str) -> bytes:
    """Return a file in a folder. ``CorruptState``, which names ``what``, when it differs from the written file."""
    content = folder.read(file.path)
    if (fault := _fault(file, content)) is not None:
        raise CorruptState(f"{what}: {fault}; take the file from a copy")
    assert content is not None, "a missing file is a fault"
    return content


def _fault(file: StateFile, content: bytes | None) -> str | None:
    if content is None:
        return f"{file.path} is missing"
    if len(content) != file.bytes:
        return f"{file.path} has {len(content)} bytes, not {file.bytes}"
    if sha256(content) != file.sha256:
        return f"{file.path} is not what was written: its digest differs"
    return None
