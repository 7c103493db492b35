"""The feed of a generator, as a value: an endless numbered stream whose records go to one topic or to several.

A service of ``headgate up`` selects the part of the shop's story, the topics and the form; records keep the number of
the story, so a feed continues at the right record after a stop of any kind (``headgate.demo.shop.producer``).
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
    """``records(start, stop)``: those of these numbers, in order of number, for each topic at most one of each; a
    pure function. ``topics``: all that it writes, first the ``clocks`` ones whose event time counts."""

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
        log = products.records(shop, start, stop)
        change = next(log, None)
        for event in records(shop, start, stop):
            while change is not None and change.index <= event.index:
                yield RoutedRecord(changes, change)
                change = next(log, None)
            yield RoutedRecord(events, event)

    return Feed(shop, (events, changes), both)


def formats_feed(topic: str, others: Callable[[str], str], shop: ShopSettings) -> Feed:
    """Return the shop's events as several systems write them: payments and others are JSON in ``topic``, each other
    format has a topic of its own (``others`` names it)."""
    topics = {None: topic} | {way: others(way) for way in ENCODINGS}

    def all_records(start: int, stop: int | None) -> Iterator[RoutedRecord]:
        for record in records(shop, start, stop):
            way, value = encode(record)
            yield RoutedRecord(topics[way], replace(record, value=value))

    return Feed(shop, tuple(topics.values()), all_records, clocks=len(topics))
