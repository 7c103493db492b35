"""Every error that streamcore raises on purpose.

::

    StreamError
    ├── ConfigError          the settings cannot work; change them and start again
    ├── Retryable            the call may succeed later (broker unreachable, timed out)
    ├── Permanent            the call will never succeed
    │   ├── Fenced           another owner took over; stop at once and write nothing more
    │   └── CorruptState     stored state does not read back as it was written
    └── Drained              not a failure: the app was asked to stop and rejected the next batch
"""

from __future__ import annotations


class StreamError(Exception):
    """The root. Catch it at the edge of a process, to print one line instead of a traceback."""


class ConfigError(StreamError):
    """Settings, schemas or topologies that cannot work. Catch it to show the user the setting to change."""


class Retryable(StreamError):
    """A system outside the process was unreachable or slow. Catch it to wait and try again within a limit."""


class Permanent(StreamError):
    """A failure that no retry can mend."""


class Fenced(Permanent):
    """Another owner holds the checkpoint or the transactional id. Never retried."""


class CorruptState(Permanent):
    """Stored state or a log that is damaged or missing. Restore from a savepoint."""


class Drained(StreamError):
    """Raised in the query's callback to reject the next batch, before any of it has run."""


def other_division(parts: str, stored: int, asked: int) -> str:
    """Return why an app of ``asked`` parts (shards, key groups) cannot continue from the state of ``stored`` parts."""
    return (
        f"it has {stored} {parts}, the app is set to {asked}; set it to {stored}, or take a savepoint and restore it, "
        f"which divides the state among {asked} {parts}"
    )
