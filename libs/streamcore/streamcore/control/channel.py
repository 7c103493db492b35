"""How commands arrive and the status leaves: files in a folder here, annotations of the pod in
``streamcore.control.pod_channel``.

A channel holds one command, the newest, and one status. It outlives the process, so a service that starts again finds
the results of its predecessor. Does not know the content of commands and statuses.
"""

from __future__ import annotations

import threading
from typing import Protocol

from streamcore.storage.atomic_files import make_folder, read_whole, write_text
from streamcore.storage.location import Location, ObjectPath

_STATUS = "status.json"
_POLL_S = 0.2
_POLL_OBJECTS_S = 2.0  # each poll is a request to the object store


class ControlChannel(Protocol):
    """Texts in, texts out. Used by two threads: one waits for commands, one publishes."""

    @property
    def exclusive(self) -> bool:
        """Return whether the channel belongs to this process alone, else to the owner of the checkpoint."""
        ...

    def latest_command(self) -> str | None:
        """Return the newest command that is known, or None."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Block until there may be another command, or for ``timeout_s`` seconds."""
        ...

    def last_status(self) -> str | None:
        """Return the status that was published last, by any process. ``Retryable`` when it cannot be read now."""
        ...

    def publish(self, status: str) -> None:
        """Replace the status. ``Retryable`` when that is not possible now."""
        ...

    def close(self) -> None:
        """Release threads and connections."""
        ...


class FileChannel:
    """``command.json`` and ``status.json`` in a folder, or under a prefix of a bucket. A sender must replace the file
    atomically, as ``send`` does."""

    def __init__(self, folder: Location, *, exclusive: bool = False) -> None:
        self._exclusive = exclusive
        self._command, self._status = folder / "command.json", folder / _STATUS
        self._closed = threading.Event()
        self._poll_s = _POLL_OBJECTS_S if isinstance(folder, ObjectPath) else _POLL_S
        make_folder(folder)

    @property
    def exclusive(self) -> bool:
        """Return the value that ``ControlChannel.exclusive`` specifies."""
        return self._exclusive

    def latest_command(self) -> str | None:
        """Return the command that ``ControlChannel.latest_command`` specifies."""
        return _read_text(self._command)

    def wait(self, timeout_s: float) -> None:
        """Wait as ``ControlChannel`` promises; polls a few times a second."""
        self._closed.wait(min(timeout_s, self._poll_s))

    def last_status(self) -> str | None:
        """Return the status that ``ControlChannel.last_status`` specifies."""
        return _read_text(self._status)

    def publish(self, status: str) -> None:
        """Replace the status, as ``ControlChannel`` promises."""
        write_text(self._status, status)

    def close(self) -> None:
        """End a wait."""
        self._closed.set()

    def send(self, command: str) -> None:
        """Write a command for the process that polls."""
        write_text(self._command, command)


def standby_channel(checkpoint: Location) -> Location:
    """Return the folder of a standby's ``FileChannel``."""
    return checkpoint / "standby"


def last_status(folder: Location) -> str | None:
    """Return the status that was published last in the folder of a ``FileChannel``; None without one."""
    return _read_text(folder / _STATUS)


def _read_text(path: Location) -> str | None:
    content = read_whole(path)
    return None if content is None else content.decode("utf-8", "replace")
