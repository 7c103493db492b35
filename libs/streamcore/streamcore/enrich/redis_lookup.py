"""Looks up fields in Redis, or another server that speaks its protocol (RESP 2): many keys in one round trip.

A record is a hash, whose values are text, or a string with a JSON object. Written on asyncio's streams: the part of
the protocol that a lookup needs is three kinds of replies.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from streamcore.enrich.spec import Answer, Key
from streamcore.errors import Permanent, Retryable, StreamError
from streamcore.passwords import read_password

KEY: Final = "{key}"
#: First words of errors that may pass.
_LATER: Final = frozenset({"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "OOM"})
_MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
_Reply = bytes | int | list["_Reply"] | StreamError | None


@dataclass
class _RedisConnection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, commands: Sequence[Sequence[bytes]]) -> list[_Reply]:
        """Send the commands at once; return the reply of each, an error as an exception."""
        self.writer.write(b"".join(map(_encode, commands)))
        await self.writer.drain()
        return [await self._read_reply() for _ in commands]

    async def _read_reply(self) -> _Reply:
        line = await self.reader.readuntil(b"\r\n")
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text
        if kind == b"-":
            said = text.decode("utf-8", "replace")
            return Retryable(said) if said.partition(" ")[0] in _LATER else Permanent(said)
        if kind == b":":
            return int(text)
        length = int(text)
        if length < 0:
            return None
        if kind == b"*":
            return [await self._read_reply() for _ in range(length)]
        if kind != b"$" or length > _MAX_REPLY_BYTES:
            raise Permanent(f"the server sent what is no reply of RESP 2, or too long: {line[:20]!r}")
        return (await self.reader.readexactly(length + 2))[:-2]

    def close(self) -> None:
        self.writer.close()


@dataclass
class RedisLookup:
    """The ``BatchLookupClient`` of a Redis server.

    ``record_key``: a record's name with the placeholder ``{key}``. ``fields``: those of a hash that are read; with
    ``is_json``, the record is a string with a JSON object.
    """

    host: str
    port: int
    database: int
    record_key: str
    fields: tuple[str, ...]
    is_json: bool
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    tls: bool = False
    ca_file: Path | None = None
    _idle: list[_RedisConnection] = field(default_factory=list, repr=False, compare=False)

    async def open(self) -> None:
        """Open the first connection, so that a wrong address or login is the reason of all rows."""
        self._idle.append(await self._connect())

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer | Exception]:
        """Return the fields of the keys that the server has, or why it has no answer. Raise ``Retryable``."""
        connection = self._idle.pop() if self._idle else await self._connect()
        names = [self.record_key.replace(KEY, str(key)).encode() for key in keys]
        fields = [name.encode() for name in self.fields]
        commands = [[b"GET", name] if self.is_json else [b"HMGET", name, *fields] for name in names]
        try:
            replies = await connection.ask(commands)
        except (OSError, EOFError) as error:
            connection.close()
            raise Retryable(f"{self._name}: the connection ended: {error}") from None
        except BaseException:  # a time-out cancels the call: the connection may be in the middle of a reply
            connection.close()
            raise
        self._idle.append(connection)
        if again := next((reply for reply in replies if isinstance(reply, Retryable)), None):
            raise Retryable(f"{self._name}: {again}")
        return {key: self._to_answer(reply) for key, reply in zip(keys, replies, strict=True)}

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            connection = self._idle.pop()
            connection.close()
            await connection.writer.wait_closed()

    def _to_answer(self, reply: _Reply) -> Answer | Exception:
        if isinstance(reply, StreamError):
            return Permanent(f"{self._name}: {reply}")
        try:
            if isinstance(reply, list):
                values = [value.decode() if isinstance(value, bytes) else None for value in reply]
                found = any(value is not None for value in values)
                return dict(zip(self.fields, values, strict=True)) if found else None
            document = None if reply is None else orjson.loads(reply if isinstance(reply, bytes) else str(reply))
        except ValueError as error:
            return Permanent(f"{self._name}: the record is no {'JSON' if self.is_json else 'UTF-8 text'}: {error}")
        if document is not None and not isinstance(document, dict):
            return Permanent(f"{self._name}: the record is no JSON object")
        return document

    async def _connect(self) -> _RedisConnection:
        try:
            context = None
            if self.tls:
                context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            connection = _RedisConnection(*await asyncio.open_connection(self.host, self.port, ssl=context))
        except OSError as error:
            raise Retryable(f"{self._name}: {error.strerror or error}") from None
        try:
            await self._log_in(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _log_in(self, connection: _RedisConnection) -> None:
        password = read_password(self._name, self.password_file, self.password_env)
        commands: list[list[bytes]] = []
        if password is not None:
            commands.append([b"AUTH", *([self.user.encode()] if self.user else []), password.encode()])
        commands.append([b"SELECT", str(self.database).encode()])
        try:
            replies = await connection.ask(commands)
        except (OSError, EOFError) as error:
            raise Retryable(f"{self._name}: the connection ended: {error}") from None
        for reply in replies:
            if isinstance(reply, StreamError):
                raise type(reply)(f"{self._name}: {reply}")

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}"


def _encode(command: Sequence[bytes]) -> bytes:
    parts = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in command)
    return b"*%d\r\n%b" % (len(command), parts)
