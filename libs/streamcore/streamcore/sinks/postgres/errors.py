"""The meaning of a PostgreSQL error for a cut: try again, change the settings, leave a row out, or stop.

The SQLSTATE decides (https://www.postgresql.org/docs/current/errcodes-appendix.html). A failed connection attempt has
no SQLSTATE, only libpq's message. English messages of rejected logins are recognised; in another language, a rejected
login is retried until the time limit.
"""

from __future__ import annotations

import re

import psycopg

from streamcore.errors import ConfigError, Permanent, Retryable, StreamError

#: Faults of a row: bad values, constraints, the check of a view or partition, a key too long for an index, an exception
#: of a trigger; and two rows with keys that only the server considers equal.
_DATA = re.compile(r"22...|23...|44...|54000|P0001|21000")
#: Faults that may pass: connection; conflicts of transactions; resources, such as a full disk; shutdowns and restarts;
#: a standby that is about to take over; input/output errors.
_AWAY = re.compile(r"08...|40...|55P03|53...|57...|25P03|25006|58...")
#: Faults of the settings: login, permissions, names, types, features.
_SETTINGS = re.compile(r"28...|42...|3D...|3F...|0A...|0L...|0P...")
_HOPELESS_LOGIN = re.compile(
    r"authentication failed|no password supplied|role .* does not exist|database .* does not exist|pg_hba\.conf"
    r"|certificate verify failed|does not support SSL|permission denied|certificate .*does not|server certificate"
    r"|root certificate|private key|certificate file|is not permitted to log in|not currently accepting connections"
    r"|invalid sslmode|tlsv1 alert unknown ca"
)


def is_data_error(error: psycopg.Error) -> bool:
    """Return whether the server rejected rows for their values."""
    return bool(_DATA.fullmatch(error.sqlstate or ""))


def translate_error(error: psycopg.Error, where: str) -> StreamError:
    """Return the ``Retryable``, ``ConfigError`` or ``Permanent`` to raise instead.

    ``where``: database and action, for the message.
    """
    state, message = error.sqlstate or "", error_text(error)
    text = f"postgres {where}: {message}" + (f" ({state})" if state else "")
    if not state:
        return ConfigError(text) if _HOPELESS_LOGIN.search(message) else Retryable(text)
    if _AWAY.fullmatch(state):
        return Retryable(text)
    return ConfigError(text) if _SETTINGS.fullmatch(state) else Permanent(text)


def error_text(error: psycopg.Error) -> str:
    """Return the server's message on one line, without the detail, which repeats whole rows."""
    primary = error.diag.message_primary
    return " ".join((primary or str(error)).replace("\0", "").split())[:500] or type(error).__name__
