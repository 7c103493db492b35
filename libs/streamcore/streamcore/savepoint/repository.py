"""The savepoints in one folder of an object store: ``<place>/<app>/<name>/``. The manifest of each is written last.

A savepoint without a manifest does not exist: it is not listed, cannot be read, and its name is free. Of the other
files this module knows only size and digest.
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
    """Return the name if it is valid. Raise ``ConfigError`` if not."""
    if not _NAME.match(name):
        raise ConfigError(f"savepoint {name!r}: a name has a-z, 0-9 and -, at most 63, as a DNS label")
    return name


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A complete savepoint."""

    folder: ObjectStore
    manifest: SavepointManifest

    def content(self, file: StateFile) -> bytes:
        """Read a file of the savepoint. Raise ``CorruptState`` if its size or digest differs from the manifest."""
        return read_verified(self.folder, file, f"savepoint {self.manifest.name}")

    def verify(self) -> list[str]:
        """Compare the files with the manifest; return a line for each fault."""
        faults = (_fault(file, self.folder.read(file.path)) for file in self.manifest.files)
        return [fault for fault in faults if fault is not None]


@dataclass(frozen=True, slots=True)
class SavepointRepository:
    """The savepoints of one app. ``place``: the folder with the savepoints of all apps."""

    place: ObjectStore
    app: str

    def folder(self, name: str) -> ObjectStore:
        """Return the folder of the savepoint with this name, which need not exist."""
        return self.place.under(self.app).under(check_name(name))

    def find(self, name: str) -> Savepoint | None:
        """Return the savepoint with this name, or None."""
        folder = self.folder(name)
        content = folder.read(MANIFEST)
        return None if content is None else Savepoint(folder, SavepointManifest.from_json(content, folder.url))

    def get(self, name: str) -> Savepoint:
        """Return the savepoint with this name. Raise ``ConfigError`` if there is none."""
        found = self.find(name)
        if found is None:
            known = [one.manifest.name for one in self]
            hint = f"there are {', '.join(known)}" if known else "there is none of this app"
            raise ConfigError(f"{self.place.under(self.app).url}: no savepoint {name}; {hint}")
        return found

    def __iter__(self) -> Iterator[Savepoint]:
        """Yield all complete savepoints whose manifest can be read, the oldest first."""
        readable = [self._find_readable(name) for name in self.place.under(self.app).folders()]
        savepoints = [savepoint for savepoint in readable if savepoint is not None]
        return iter(sorted(savepoints, key=lambda savepoint: (savepoint.manifest.created_ms, savepoint.manifest.name)))

    def _find_readable(self, name: str) -> Savepoint | None:
        try:
            return self.find(name)
        except StreamError:
            return None

    def create(self, name: str) -> ObjectStore:
        """Return an empty folder for a new savepoint. Files of an incomplete savepoint with this name are removed.

        Raises ``ConfigError`` if a complete savepoint has the name.
        """
        folder = self.folder(name)
        if folder.read(MANIFEST) is not None:
            raise ConfigError(f"{folder.url}: there is a savepoint {name}; give another name, or delete that one first")
        folder.remove()
        return folder

    def delete(self, name: str) -> None:
        """Remove a savepoint, its manifest first, so that a crash leaves no damaged savepoint. Raise ``ConfigError`` if
        it does not exist."""
        self.get(name)
        self.discard(name)

    def discard(self, name: str) -> None:
        """Remove the savepoint with this name, complete or not. Do nothing if it does not exist."""
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
    """Return the apps that have savepoints in the folder ``place``."""
    return [app for app in place.folders() if any(True for _ in SavepointRepository(place, app))]


def read_verified(folder: ObjectStore, file: StateFile, what: str) -> bytes:
    """Read a file. Raise ``CorruptState``, naming ``what``, if its size or digest differs from the manifest."""
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
