"""Feeds: the demo shop's stream as a service reads it, with a topic and an encoding for each record.

A record keeps its index in the stream, so a feed continues at the right record after any kind of stop
(``headgate.demo.shop.producer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headgate.demo.shop import products
from headgate.demo.shop.formats import ENCODINGS, encode
from headgate.demo.shop.settings import ShopRecord, ShopSettings
from headgate.demo.shop.stream import records


@dataclass(frozen=True, slots=True)
class RoutedRecord:
    """A record and the topic that it goes to."""

    topic: str
    record: ShopRecord


@dataclass(frozen=True, slots=True)
class Feed:
    """The input of a service. ``records(start, stop)`` yields the records with an index from ``start`` to before
    ``stop`` (None: without end) in order of the index, at most one per index and topic; it is a pure function.
    ``topics``: all topics; the first ``clocks`` of them determine the watermark."""

    shop: ShopSettings
    topics: tuple[str, ...]
    records: Callable[[int, int | None], Iterator[RoutedRecord]]
    clocks: int = 1


def shop_feed(topic: str, shop: ShopSettings) -> Feed:
    """Return the shop's events unchanged, in one topic."""
    return Feed(shop, (topic,), lambda start, stop: (RoutedRecord(topic, r) for r in records(shop, start, stop)))


def search_feed(events: str, changes: str, shop: ShopSettings) -> Feed:
    """Return the shop's events in one topic, and the changes of its products in another."""

    def both(start: int, stop: int | None) -> Iterator[RoutedRecord]:
        product_changes = products.records(shop, start, stop)
        change = next(product_changes, None)
        for event in records(shop, start, stop):
            while change is not None and change.index <= event.index:
                yield RoutedRecord(changes, change)
                change = next(product_changes, None)
            yield RoutedRecord(events, event)

    return Feed(shop, (events, changes), both)


def formats_feed(topic: str, find_topic: Callable[[str], str], shop: ShopSettings) -> Feed:
    """Return the shop's events as several systems write them: payments and others are JSON in ``topic``, each other
    format has its own topic, ``find_topic(format)``."""
    topics = {None: topic} | {name: find_topic(name) for name in ENCODINGS}

    def all_records(start: int, stop: int | None) -> Iterator[RoutedRecord]:
        for record in records(shop, start, stop):
            format_name, value = encode(record)
            yield RoutedRecord(topics[format_name], replace(record, value=value))

    return Feed(shop, tuple(topics.values()), all_records, clocks=len(topics))
