"""The errors that the ``headgate`` command raises itself.

::

    HeadgateError          shown as one line, with the next step
    ├── SetupError         something for the development set-up could not be fetched, verified or run
    ├── BrokerError        the local broker cannot be started, stopped or reached
    ├── DatabaseError      the local PostgreSQL cannot be started or stopped
    ├── OpenSearchError    the local OpenSearch cannot be started, stopped or reached
    └── InputError         a file, option or topic that the user named cannot be used

They extend ``StreamError``, so that ``main`` prints one line for any error of any package.
"""

from __future__ import annotations

from streamcore.errors import StreamError


class HeadgateError(StreamError):
    """The root of all errors of the command. Only ``main`` should need to catch it."""


class SetupError(HeadgateError):
    """A download, a checksum or a Java runtime failed. Catch it to report that the rest can continue, if it can."""


class BrokerError(HeadgateError):
    """The local broker failed. Catch it to continue with an external Kafka."""


class DatabaseError(HeadgateError):
    """The local PostgreSQL failed. Catch it to continue with an external one."""


class OpenSearchError(HeadgateError):
    """The local OpenSearch failed. Catch it to continue with an external one."""


class InputError(HeadgateError):
    """The user's input cannot be used. Catch it to ask again."""
