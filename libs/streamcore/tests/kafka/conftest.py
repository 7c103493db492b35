"""Topics of a test's own, and a wire to the broker that a test can cut."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of one test. ``app`` is unique too, so that transactional ids are."""

    app: str
    out: str
    markers: str


#: Creates a test's topics on a broker.
NewTopics = Callable[[KafkaSettings], Topics]


@pytest.fixture
def new_topics() -> NewTopics:
    def create(kafka: KafkaSettings) -> Topics:
        app = f"kafka-test-{uuid.uuid4().hex[:8]}"
        names = Topics(app, f"{app}.out", f"{app}.markers")
        ensure_topics(kafka, [TopicSpec(names.out, 2), TopicSpec(names.markers, 1, compacted=True)])
        return names

    return create


@pytest.fixture
def topics(kafka: KafkaSettings, new_topics: NewTopics) -> Iterator[Topics]:
    names = new_topics(kafka)
    yield names
    delete_topics(kafka, [names.out, names.markers])


@pytest.fixture
def wire(kafka: KafkaSettings) -> Iterator[Wire]:
    host, port = kafka.bootstrap.split(":")
    wire = Wire(host, int(port))
    wire.connect()
    yield wire
    wire.cut()


class Wire:
    """Carries Kafka's frames between clients and one broker, and can lose them.

    The broker's address inside its answers is replaced by ours, so that clients stay on the wire.
    """

    def __init__(self, host: str, port: int) -> None:
        self._broker = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._address: tuple[str, int] = self._listener.getsockname()
        self._lost_requests: Counter[int] = Counter()
        self._lost_answers: Counter[int] = Counter()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.seen: Counter[int] = Counter()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._address[1]}"

    def lose_requests(self, api: int, count: int) -> None:
        """The next requests of this kind never reach the broker: the connection breaks instead."""
        self._lost_requests[api] = count

    def lose_answers(self, api: int, count: int) -> None:
        """The broker executes the next requests of this kind, and the connection breaks before the response."""
        self._lost_answers[api] = count

    def connect(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Simulate an unavailable broker: close every connection, accept none."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            _break(*pair)
        self._pairs.clear()

    def restore(self) -> None:
        self._listener = socket.create_server(self._address)
        self.connect()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                broker = socket.create_connection(self._broker)
                self._pairs.append((client, broker))
                kinds: dict[int, int] = {}
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, broker, kinds), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        with suppress(OSError):
            while frame := _read_frame(client):
                api, _, correlation = struct.unpack(">hhi", frame[:8])
                self.seen[api] += 1
                if self._lost_requests[api] > 0:
                    self._lost_requests[api] -= 1
                    break
                kinds[correlation] = api
                broker.sendall(struct.pack(">i", len(frame)) + frame)
        _break(client, broker)

    def _answers(self, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        with suppress(OSError):
            while frame := _read_frame(broker):
                api = kinds.pop(struct.unpack(">i", frame[:4])[0])
                if self._lost_answers[api] > 0:
                    self._lost_answers[api] -= 1
                    break
                client.sendall(struct.pack(">i", len(frame)) + self._rewrite_address(frame))
        _break(client, broker)

    def _rewrite_address(self, frame: bytes) -> bytes:
        host, port = self._broker
        assert len(host) == len(self._address[0]), "the broker must be advertised under an address as long as ours"
        old, new = (h.encode() + struct.pack(">i", p) for h, p in ((host, port), self._address))
        return frame.replace(old, new)


def _read_frame(source: socket.socket) -> bytes:
    """Return one length-prefixed frame, or nothing at the end."""
    size = _read_exactly(source, 4)
    return _read_exactly(source, struct.unpack(">i", size)[0]) if size else b""


def _read_exactly(source: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = source.recv(min(1 << 16, size - len(parts)))
        if not part:
            return b""
        parts += part
    return parts


def _break(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
