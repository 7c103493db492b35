"""The meaning of a PostgreSQL error for a cut: try again, change the settings, leave a row out, or stop.

By SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html). A connection that cannot be made has none:
libpq gives the reason in words only, so a login that will never work is known by its words in English, and in any other
language found out by patience.
"""

from __future__ import annotations

import re

import psycopg

from streamcore.errors import ConfigError, Permanent, Retryable, StreamError

#: What a row holds: bad values, constraints, a view's or partition's check, a key too long for an index, a trigger's
#: own refusal; and two rows that only the server takes for one key.
_DATA = re.compile(r"22...|23...|44...|54000|P0001|21000")
#: Connection; conflicts with others; resources, among them a full disk; operators and restarts; a standby that is about
#: to take over; files that cannot be written for a while.
_AWAY = re.compile(r"08...|40...|55P03|53...|57...|25P03|25006|58...")
#: Login, rights, names, types, features.
_SETTINGS = re.compile(r"28...|42...|3D...|3F...|0A...|0L...|0P...")
_HOPELESS_LOGIN = re.compile(
    r"authentication failed|no password supplied|role .* does not exist|database .* does not exist|pg_hba\.conf"
    r"|certificate verify failed|does not support SSL|permission denied|certificate .*does not|server certificate"
    r"|root certificate|private key|certificate file|is not permitted to log in|not currently accepting connections"
    r"|invalid sslmode|tlsv1 alert unknown ca"
)


def is_data_error(error: psycopg.Error) -> bool:
    """Return whether the server refuses rows for their values."""
    return bool(_DATA.fullmatch(error.sqlstate or ""))


def translate_error(error: psycopg.Error, where: str) -> StreamError:
    """Return the error for the caller. ``where``: the action in progress."""
    state, words = error.sqlstate or "", error_text(error)
    text = f"postgres {where}: {words}" + (f" ({state})" if state else "")
    if not state:
        return ConfigError(text) if _HOPELESS_LOGIN.search(words) else Retryable(text)
    if _AWAY.fullmatch(state):
        return Retryable(text)
    return ConfigError(text) if _SETTINGS.fullmatch(state) else Permanent(text)


def error_text(error: psycopg.Error) -> str:
    """Return the server's words on one line, without the detail, which repeats whole rows."""
    primary = error.diag.message_primary
    return " ".join((primary or str(error)).replace("\0", "").split())[:500] or type(error).__name__
