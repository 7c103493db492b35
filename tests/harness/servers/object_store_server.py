"""An HTTP server with many kinds of faults, on a port of this machine, and clients for it.

What it does with a request is in the key: ``slow`` answers after a while, ``hang`` never, ``drop`` closes the
connection without a word, ``half`` in the middle of the answer, ``fail`` says 500, ``gone`` says 404, ``odd`` answers
fields of other types than declared, ``none`` has nothing. ``flaky-2-...`` fails twice, then answers. Everything else is
answered at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

import orjson

from streamcore.enrich import Answer, Key
from streamcore.errors import Retryable


class Rejected(Exception):
    """The store rejected the request for good."""


class StoreServer:
    """Listens in a thread of its own.

    ``requests_by_key``: by key; ``peak``: the most requests at once; ``connections``: open, of ``accepted``.
    """

    def __init__(self, slow_s: float = 0.02) -> None:
        self.slow_s = slow_s
        self.requests_by_key: Counter[str] = Counter()
        self.peak = self.requests = self.accepted = self.connections = self._at_once = 0
        self.changed = threading.Condition()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> StoreServer:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def wait_until_idle(self) -> bool:
        """Wait until all connections are closed; return whether they are."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.connections, timeout=20)

    def wait_for_requests(self, requests: int) -> bool:
        """Wait until so many requests have come; return whether they have."""
        with self.changed:
            return self.changed.wait_for(lambda: self.requests_by_key.total() >= requests, timeout=20)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._handlers: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.ensure_future(self._connection(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note(connections=1)
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                self._note(at_once=1)
                try:
                    on = await self._answer(line.split()[1].decode().lstrip("/"), reader, writer)
                finally:
                    self._note(at_once=-1)
                if not on:
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._note(connections=-1)

    async def _answer(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays open."""
        keys = path.split(",")
        with self.changed:
            self.requests_by_key.update(keys)
            self.requests += 1
            self.changed.notify_all()
        habits = {key.split("-")[0] for key in keys}
        if "slow" in habits:
            await asyncio.sleep(self.slow_s)
        if "hang" in habits:
            await reader.read()  # up to the end: the client has given up
            return False
        if "drop" in habits:
            return False
        flaky = [key for key in keys if key.startswith("flaky") and self.requests_by_key[key] <= int(key.split("-")[1])]
        status = 500 if "fail" in habits or flaky else 404 if "gone" in habits else 200
        body = orjson.dumps({key: fields(key) for key in keys if not key.startswith("none")})
        head = f"HTTP/1.1 {status} .\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        if "half" in habits:
            writer.write(head + body[:3])
            await writer.drain()
            return False
        writer.write(head + body)
        await writer.drain()
        return True

    def _note(self, connections: int = 0, at_once: int = 0) -> None:
        with self.changed:
            self.connections += connections
            self.accepted += max(0, connections)
            self._at_once += at_once
            self.peak = max(self.peak, self._at_once)
            self.changed.notify_all()


def fields(key: str) -> dict[str, object]:
    """Return what the store holds under a key."""
    return {"text": key, "size": "large" if key.startswith("odd") else len(key)}


@dataclass
class Http:
    """A client with a connection for each call at once, kept between calls. Its settings are all that is pickled."""

    port: int
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def open(self) -> None:
        self.idle.append(await self._connect())

    async def get(self, key: Key) -> Answer:
        return (await self._request(str(key))).get(str(key))

    async def close(self) -> None:
        for _, writer in self.idle:
            writer.close()
            await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def _request(self, path: str) -> Mapping[str, dict[str, object]]:
        reader, writer = self.idle.pop() if self.idle else await self._connect()
        with _aborting(writer):
            writer.write(f"GET /{path} HTTP/1.1\r\n\r\n".encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.split(b"Content-Length: ")[1].split()[0]))
        self.idle.append((reader, writer))
        status = int(head.split()[1])
        if status == 500:
            raise Retryable("the store says 500")
        if status != 200:
            raise Rejected(f"the store says {status}")
        answer: Mapping[str, dict[str, object]] = orjson.loads(body)
        return answer


@dataclass
class HttpMany(Http):
    """The same store, many keys a request."""

    async def get_many(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        answers = await self._request(",".join(map(str, keys)))
        return {key: answers[str(key)] for key in keys if str(key) in answers}


@contextmanager
def _aborting(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Abort a connection on which something went wrong, or that was given up, is of no more use."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise


@dataclass(frozen=True)
class Client:
    """Makes clients; equal when the port is."""

    port: int

    def __call__(self) -> Http:
        return Http(self.port)


@dataclass(frozen=True)
class ManyClient:
    """Makes clients that ask for many keys at once."""

    port: int

    def __call__(self) -> HttpMany:
        return HttpMany(self.port)
