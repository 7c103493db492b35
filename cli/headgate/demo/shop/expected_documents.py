"""The expected index of the search app after a part of the demo shop's stream, computed without the product.

The newest change of a product wins: the one with the latest time, or of several with that time the last one in the
partition. Popularity is counted from all events at the watermark: an event counts from its arrival until the watermark
reaches the end of the span that begins with the event's step.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.demo.shop.expected_alerts import DISORDER_MS
from headgate.demo.shop.settings import RecordFate, ShopRecord

_BEFORE_ALL_MS: Final = -(2**62)
#: The fields that a document takes from the change; it also has the price, in cents.
_FIELDS: Final = ("name", "description", "category", "currency", "in_stock", "updated_at")


@dataclass(frozen=True, slots=True)
class PopularitySpan:
    """A span of the app's settings. ``name``: the suffix of its columns; ``span_ms``: its length; ``step_ms``: its
    step."""

    name: str
    span_ms: int
    step_ms: int

    def end_ms(self, event_ms: int) -> int:
        """Return the watermark at which an event no longer counts."""
        return event_ms // self.step_ms * self.step_ms + self.span_ms

    def counts(self, event_ms: int, watermark_ms: int) -> bool:
        return watermark_ms < self.end_ms(event_ms)


SPANS: Final = (PopularitySpan("1h", 3_600_000, 60_000), PopularitySpan("1d", 86_400_000, 900_000))

#: A document by column; money in cents, times in epoch milliseconds.
ExpectedDocument = Mapping[str, str | int | bool | None]


@dataclass(frozen=True, slots=True)
class ExpectedDocuments:
    """The expected output. ``documents``: by id, at the watermark of the slowest partition, which is the app's unless
    that partition is idle.

    ``also``: other correct forms of a document: those at later watermarks, up to that of the fastest partition.
    ``late_at_most``: the most events that are too late for every span; how many are depends on the cuts.
    """

    documents: Mapping[str, ExpectedDocument]
    also: Mapping[str, tuple[ExpectedDocument, ...]]
    deleted: frozenset[str]
    dead_letters: int
    late_at_most: int

    def may_be(self, name: str, document: ExpectedDocument) -> bool:
        """Return whether ``document`` is a correct form of the expected document ``name``."""
        return document == self.documents.get(name) or document in self.also.get(name, ())


@dataclass(frozen=True, slots=True)
class _EventCounts:
    event_ms: int
    views: int
    units: int
    cents: int


@dataclass(slots=True)
class DocumentsExpectation:
    """Computes the expected documents; takes the records of both streams, each from the first. ``partitions``: the
    number of partitions of the event topic."""

    partitions: int
    spans: tuple[PopularitySpan, ...] = SPANS
    max_out_of_orderness_ms: int = DISORDER_MS
    _products: dict[str, Mapping[str, object]] = field(default_factory=dict)
    _events: dict[str, list[_EventCounts]] = field(default_factory=lambda: defaultdict(list))
    _latest_ms: dict[int, int] = field(default_factory=dict)
    _dead: int = 0
    _late_at_most: int = 0

    def change(self, record: ShopRecord) -> None:
        """Add the next product change; the changes of a product are in one partition, so they arrive in this order."""
        if record.fate is RecordFate.DEAD or record.value is None:
            self._dead += 1
            return
        change = json.loads(record.value)
        newest = self._products.get(change["product_id"])
        if newest is None or _time(change) >= _time(newest):
            self._products[change["product_id"]] = change

    def event(self, record: ShopRecord) -> None:
        """Add the next event of the shop."""
        if record.fate is RecordFate.DEAD or record.value is None:
            self._dead += 1
            return
        event = json.loads(record.value)
        partition = record.partition(self.partitions)
        self._latest_ms[partition] = max(self._latest_ms.get(partition, event["ts"]), event["ts"])
        counted = _event_counts(event)
        if counted is not None:
            self._events[event["product_id"]].append(counted)
            fastest_ms = max(self._latest_ms.values()) - self.max_out_of_orderness_ms
            self._late_at_most += not any(span.counts(counted.event_ms, fastest_ms) for span in self.spans)

    def result(self) -> ExpectedDocuments:
        """Return the expected index once the app has read the records so far and one refresh has passed."""
        times = self._latest_ms.values()
        fastest_ms = max(times, default=0) - self.max_out_of_orderness_ms
        slowest_ms = (
            min(times, default=0) - self.max_out_of_orderness_ms if len(times) == self.partitions else _BEFORE_ALL_MS
        )
        deleted = frozenset(name for name, change in self._products.items() if change["op"] == "delete")
        also = {name: forms for name in self._products if (forms := self._also(name, slowest_ms, fastest_ms))}
        return ExpectedDocuments(self.documents(slowest_ms), also, deleted, self._dead, self._late_at_most)

    def _also(self, name: str, slowest_ms: int, fastest_ms: int) -> tuple[ExpectedDocument, ...]:
        """Return the document at every watermark from the slowest to the fastest at which it changes."""
        change = self._products[name]
        ends_ms = {span.end_ms(one.event_ms) for span in self.spans for one in self._events.get(name, ())}
        between = sorted(end for end in ends_ms if slowest_ms < end <= fastest_ms)
        return () if change["op"] == "delete" else tuple(dict(self._document(name, change, end)) for end in between)

    def documents(self, watermark_ms: int) -> dict[str, ExpectedDocument]:
        """Return the documents at this watermark, by id."""
        return {
            name: dict(self._document(name, change, watermark_ms))
            for name, change in self._products.items()
            if change["op"] != "delete"
        }

    def _document(
        self, name: str, change: Mapping[str, object], watermark_ms: int
    ) -> Iterator[tuple[str, str | int | bool | None]]:
        for column in _FIELDS:
            value = change.get(column)
            assert value is None or isinstance(value, str | int)
            yield column, value
        price = change["price"]
        assert isinstance(price, int | float)
        yield "price", round(price * 100)
        for span in self.spans:
            mine = [one for one in self._events.get(name, ()) if span.counts(one.event_ms, watermark_ms)]
            yield f"views_{span.name}", sum(one.views for one in mine)
            yield f"units_{span.name}", sum(one.units for one in mine)
            yield f"revenue_{span.name}", sum(one.cents for one in mine)


def _time(change: Mapping[str, object]) -> int:
    updated_ms = change["updated_at"]
    assert isinstance(updated_ms, int)
    return updated_ms


def _event_counts(event: Mapping[str, object]) -> _EventCounts | None:
    """Return the counts of an event; None if it does not count."""
    event_ms, kind = event["ts"], event["type"]
    assert isinstance(event_ms, int)
    if event.get("product_id") is None:
        return None
    if kind == "view":
        return _EventCounts(event_ms, 1, 0, 0)
    if kind not in {"payment", "refund"} or event.get("status") != "ok":
        return None
    quantity, amount = event.get("quantity") or 0, event.get("amount") or 0
    assert isinstance(quantity, int)
    assert isinstance(amount, int | float)
    sign = 1 if kind == "payment" else -1
    return _EventCounts(event_ms, 0, sign * quantity, sign * round(amount * 100))
