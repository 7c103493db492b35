"""Deterministic input: orders of a few users.

Two streams. ``orders`` has the volume and rejects extra fields; what goes into ``probe`` is in the next cut, whatever
the backlog of the other. Event times lie in the past, so that nothing depends on when a test runs; each user's events
are in order, while users lag behind each other by less than the app's allowed disorder.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path

import yaml

from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import StreamSchema

PARTITIONS = 2
START_MS = 1_704_067_200_000  # 2024-01-01
DISORDER_MS = 10_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000
LAST_MS = START_MS + 365 * DAY_MS  # later than any order
TICK = "tick"  # moves the watermark; no rule of ours looks at it
_LAG_MS = 5_000

_STREAM = """\
name: {name}
event_time: ts
event_id: ref
keys: [[user]]
fields:
  id: long not null
  ts: timestamp not null
  user: string
  kind: string not null
  amount: decimal(12,2)
  country: string
  ref: string
"""


@dataclass(frozen=True, slots=True)
class Order:
    """An event."""

    id: int
    ts: int
    user: str | None
    kind: str
    amount: Decimal | None = None
    country: str | None = None

    @property
    def value(self) -> bytes:
        """Return the value of the record. Amounts are text, which keeps their digits."""
        return json.dumps(asdict(self), default=str).encode()

    @property
    def partition(self) -> int:
        """Return the partition, which is the same for all events of a user."""
        return zlib.crc32((self.user or "").encode()) % PARTITIONS


@dataclass(frozen=True, slots=True)
class Sent:
    """An order and its offset."""

    order: Order
    topic: str
    partition: int
    offset: int


def write_streams(folder: Path, deduplicate: str | None = None) -> tuple[Path, Path]:
    """Return the schema files of ``orders`` and ``probe``. ``deduplicate``: of ``orders``, by its ``id``."""
    folder.mkdir(parents=True, exist_ok=True)
    files = (folder / "orders.yaml", folder / "probe.yaml")
    for file in files:
        file.write_text(_STREAM.format(name=file.stem))
    if deduplicate is not None:
        text = files[0].read_text().replace("event_id: ref", f"event_id: id\ndeduplicate: {deduplicate}")
        files[0].write_text(text)
    return files


def stream_text(name: str) -> str:
    """Return the text of the schema file of a stream."""
    return _STREAM.format(name=name)


def schemas() -> dict[str, StreamSchema]:
    """Return both schemas by name."""
    return {name: StreamSchema.parse(yaml.safe_load(_STREAM.format(name=name))) for name in ("orders", "probe")}


def orders(count: int, *, seed: int, start_ms: int = START_MS, step_ms: int = 100, users: int = 150) -> list[Order]:
    """Return ``count`` orders from ``start_ms`` on, ``step_ms`` apart, in order of arrival."""
    chance = random.Random(seed)
    lags = {u: chance.randrange(_LAG_MS) for u in range(users)}
    arrivals = []
    for n in range(count):
        user = min(int(chance.expovariate(6 / users)), users - 1)
        amount = None if chance.random() < 0.02 else Decimal(chance.randrange(1, 100_000)).scaleb(-2)
        country = chance.choice(["GB", "DE", "FR", "XX", None])
        kind = "pay" if chance.random() < 0.6 else "view"
        order = Order(n, start_ms + n * step_ms, f"u{seed}-{user}", kind, amount, country)
        arrivals.append((order.ts + lags[user], n, order))
    return [order for _, _, order in sorted(arrivals, key=lambda a: a[:2])]


def ticks(at_ms: int) -> Iterator[tuple[int, Order]]:
    """Return an event for every partition that takes the watermark to ``at_ms`` less the disorder."""
    for partition in range(PARTITIONS):
        yield partition, Order(0, at_ms, TICK, TICK)


def send(
    kafka: KafkaSettings, topic: str, wanted: Sequence[Order], encode: Callable[[Order], bytes] | None = None
) -> list[Sent]:
    """Send orders in order; return the offset of each. ``encode``: makes the value of a record, JSON without it."""
    values = [o.value if encode is None else encode(o) for o in wanted]
    places = _send(
        kafka, topic, [(o.partition, (o.user or "").encode(), v) for o, v in zip(wanted, values, strict=True)]
    )
    return [Sent(order, topic, *place) for order, place in zip(wanted, places, strict=True)]


def send_ticks(kafka: KafkaSettings, topic: str, at_ms: int, encode: Callable[[Order], bytes] | None = None) -> int:
    """Advance the watermark; return the number of records sent for it. ``encode``: as in ``send``."""
    values = [(p, o.value if encode is None else encode(o)) for p, o in ticks(at_ms)]
    return len(_send(kafka, topic, [(p, TICK.encode(), value) for p, value in values]))


def send_raw(
    kafka: KafkaSettings, topic: str, records: Sequence[tuple[bytes | None, bytes | None]], partition: int = 0
) -> list[int]:
    """Send keys and values unchanged; return their offsets."""
    return [offset for _, offset in _send(kafka, topic, [(partition, key, value) for key, value in records])]


def _send(
    kafka: KafkaSettings, topic: str, records: Sequence[tuple[int, bytes | None, bytes | None]]
) -> list[tuple[int, int]]:
    producer = clients.producer(kafka)
    places: dict[int, tuple[int, int]] = {}
    for number, (partition, key, value) in enumerate(records):

        def delivered(error: object, message: object, number: int = number) -> None:
            assert error is None, f"{topic}: {error}"
            places[number] = (message.partition(), message.offset())  # type: ignore[attr-defined]

        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0, f"{topic}: not all records were delivered"
    return [places[number] for number in range(len(records))]
