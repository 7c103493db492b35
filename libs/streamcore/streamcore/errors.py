"""Every error that streamcore raises on purpose.

::

    StreamError
    ├── ConfigError          the settings cannot work; change them and start again
    ├── Retryable            the same call may go through later (broker away, timed out)
    ├── Permanent            the same call will never go through
    │   ├── Fenced           another owner took over; stop at once and write nothing more
    │   └── CorruptState     stored state does not read back as it was written
    └── Drained              not a failure: the app was asked to stop and refused the next batch
"""

from __future__ import annotations


class StreamError(Exception):
    """The root. Catch it at the edge of a process, to print one line instead of a traceback."""


class ConfigError(StreamError):
    """Settings, schemas or topologies that cannot work. Catch it to show the user the setting to change."""


class Retryable(StreamError):
    """The outside was not reachable. Catch it to wait and try again within a limit."""


class Permanent(StreamError):
    """Trying again cannot help."""


class Fenced(Permanent):
    """Another owner holds the checkpoint or the transactional id. Never retried."""


class CorruptState(Permanent):
    """State or a log of it that fails its own checks. Restore from a savepoint."""


class Drained(StreamError):
    """Raised inside the query to refuse the next batch before anything of it ran."""
