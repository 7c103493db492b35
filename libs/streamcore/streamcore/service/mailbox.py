"""Where requests come from and reports go to: files in a folder here, annotations of the own pod in ``streamcore.pod``.

A mailbox holds one request, the newest, and one report. It outlives the process, so a service that starts again finds
what it answered. Refuses to know what is asked and what is said.
"""

from __future__ import annotations

import threading
from typing import Protocol

from streamcore.checkpoint.files import make_folder, read_whole, write_text
from streamcore.location import Location, ObjectPath

_LOOK_S = 0.2
_LOOK_OBJECTS_S = 2.0  # each look is a request


class Mailbox(Protocol):
    """Texts in, texts out. Used by two threads: one waits for requests, one publishes."""

    @property
    def is_own(self) -> bool:
        """Is it this process's alone? Else it is that of whoever owns the checkpoint."""
        ...

    def newest(self) -> str | None:
        """The newest request that is known, or None."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Return when there may be another request, or when the time is over."""
        ...

    def last_report(self) -> str | None:
        """What was published last, by an earlier process too. ``Retryable`` when nobody can say."""
        ...

    def publish(self, report: str) -> None:
        """Replace the report. ``Retryable`` when that is not possible now."""
        ...

    def close(self) -> None:
        """Let go of threads and connections."""
        ...


class FileMailbox:
    """``request.json`` and ``report.json`` in a folder, or under a prefix of a bucket. Whoever asks must replace the
    file, as ``ask`` does."""

    def __init__(self, folder: Location, *, is_own: bool = False) -> None:
        self._is_own = is_own
        self._request, self._report = folder / "request.json", folder / "report.json"
        self._closed = threading.Event()
        self._look_s = _LOOK_OBJECTS_S if isinstance(folder, ObjectPath) else _LOOK_S
        make_folder(folder)

    @property
    def is_own(self) -> bool:
        """See ``Mailbox``."""
        return self._is_own

    def newest(self) -> str | None:
        """See ``Mailbox``."""
        return _text(self._request)

    def wait(self, timeout_s: float) -> None:
        """See ``Mailbox``; looks again a few times a second."""
        self._closed.wait(min(timeout_s, self._look_s))

    def last_report(self) -> str | None:
        """See ``Mailbox``."""
        return _text(self._report)

    def publish(self, report: str) -> None:
        """See ``Mailbox``."""
        write_text(self._report, report)

    def close(self) -> None:
        """See ``Mailbox``."""
        self._closed.set()

    def ask(self, request: str) -> None:
        """Put a request there, for the process that looks."""
        write_text(self._request, request)


def standby_mailbox(checkpoint: Location) -> Location:
    """The folder of a standby's mailbox, where it is files."""
    return checkpoint / "standby"


def _text(path: Location) -> str | None:
    found = read_whole(path)
    return None if found is None else found.decode("utf-8", "replace")
