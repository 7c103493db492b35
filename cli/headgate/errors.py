"""Every error that the command raises on purpose.

::

    HeadgateError          shown as one line, with what to do next
    ├── SetupError         something for the development set-up could not be fetched, verified or run
    ├── BrokerError        the local broker cannot be started, stopped or reached
    ├── DatabaseError      the local PostgreSQL cannot be started or stopped
    ├── OpenSearchError    the local OpenSearch cannot be started, stopped or reached
    └── InputError         a file, an option or a topic that the user named does not fit

They extend ``StreamError``, so that ``main`` prints one line for any error of any package.
"""

from __future__ import annotations

from streamcore.errors import StreamError


class HeadgateError(StreamError):
    """The root. ``main`` catches it; nobody else should need to."""


class SetupError(HeadgateError):
    """A download, a checksum or a Java runtime. Catch it to say that the rest can go on without it, if it can."""


class BrokerError(HeadgateError):
    """The local broker. Catch it to go on with somebody else's Kafka."""


class DatabaseError(HeadgateError):
    """The local PostgreSQL. Catch it to go on with somebody else's."""


class OpenSearchError(HeadgateError):
    """The local OpenSearch. Catch it to go on with somebody else's."""


class InputError(HeadgateError):
    """What the user gave cannot be used. Catch it to ask again."""
