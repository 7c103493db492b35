"""Looks up fields by a query in PostgreSQL: many keys in one statement, on connections that stay open.

The query has the placeholder ``{keys}`` for an array of keys, such as ``WHERE id = ANY({keys})``. The first column of
its result is the key, the others are fields. Of several rows with one key the first counts. Each statement runs alone,
read-only. The only module of ``streamcore.enrich`` that imports psycopg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from streamcore.enrich.spec import Answer, Key
from streamcore.errors import Permanent, Retryable
from streamcore.passwords import read_password

KEYS: Final = "{keys}"


@dataclass
class PostgresLookup:
    """The ``BatchLookupClient`` of a query. ``fields``: the columns that its result must have, beside the key."""

    host: str
    port: int
    database: str
    user: str
    query: str
    fields: tuple[str, ...]
    timeout_ms: int
    password_file: Path | None = None
    password_env: str | None = None
    sslmode: str = "prefer"
    ca_file: Path | None = None
    _idle: list[psycopg.AsyncConnection[tuple[Any, ...]]] = field(default_factory=list, repr=False, compare=False)

    async def open(self) -> None:
        """Open the first connection, so that a wrong address or login is the reason of all rows."""
        self._idle.append(await self._connect())

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer | Exception]:
        """Return the fields of the keys that the query finds. Raise ``Retryable`` or ``Permanent``.

        If the server rejects a value, each key is asked for alone, so that only its own value can fail it.
        """
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            answers = await self._ask(connection, keys)
        except psycopg.DataError as error:
            await connection.close()
            if len(keys) == 1:
                return {keys[0]: Permanent(self._explain(error))}
            return {key: answer for one in keys for key, answer in (await self.get_many([one])).items()}
        except psycopg.OperationalError as error:
            await connection.close()
            raise Retryable(self._explain(error)) from None
        except psycopg.Error as error:
            await connection.close()
            raise Permanent(self._explain(error)) from None
        except BaseException:  # a time-out cancels the call: the connection may be in the middle of an answer
            await connection.close()
            raise
        self._idle.append(connection)
        return answers

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            await self._idle.pop().close()

    async def _ask(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], keys: Sequence[Key]
    ) -> dict[Key, Answer]:
        parts = (part.replace("%", "%%") for part in self.query.split(KEYS))
        cursor = await connection.execute("%(keys)s".join(parts).encode(), {"keys": list(keys)})
        if cursor.description is None:
            raise Permanent(f"{self._name}: the query gives no rows; write SELECT")
        names = [column.name for column in cursor.description]
        if missing := [name for name in self.fields if name not in names[1:]]:
            raise Permanent(f"{self._name}: the query gives no column {missing[0]} after the key; it gives {names}")
        answers: dict[Key, Answer] = {}
        for row in await cursor.fetchall():
            answers.setdefault(row[0], dict(zip(names[1:], row[1:], strict=True)))
        return answers

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        try:
            return await psycopg.AsyncConnection.connect(
                host=self.host,
                port=self.port,
                dbname=self.database,
                user=self.user,
                password=read_password(self._name, self.password_file, self.password_env),
                sslmode=self.sslmode,
                sslrootcert=None if self.ca_file is None else str(self.ca_file),
                connect_timeout=max(2, self.timeout_ms // 1000),
                application_name="headgate-lookup",
                options=f"-c default_transaction_read_only=on -c statement_timeout={self.timeout_ms} -c TimeZone=UTC",
                client_encoding="UTF8",
                autocommit=True,
            )
        except psycopg.Error as error:
            raise Retryable(self._explain(error)) from None

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"

    def _explain(self, error: psycopg.Error) -> str:
        return f"{self._name}: {' '.join(str(error).split())}"
