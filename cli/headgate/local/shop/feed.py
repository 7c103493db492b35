"""What a generator sends, as a value: an endless numbered stream whose records go to one topic or to several.

A service of ``headgate up`` says what of the shop's story it wants to read, where and in which form; records keep the
number of the story, so a stop of any kind finds its place again (``headgate.local.shop.produce``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headgate.local.shop import products
from headgate.local.shop.formats import ENCODINGS, encoded
from headgate.local.shop.settings import ShopRecord, ShopSettings
from headgate.local.shop.stream import records


@dataclass(frozen=True, slots=True)
class Addressed:
    """A record and the topic that it goes to."""

    topic: str
    record: ShopRecord


@dataclass(frozen=True, slots=True)
class Feed:
    """``records(start, stop)``: those of these numbers, in order of number, for each topic at most one of each; a
    pure function. ``topics``: all that it writes, first the ``clocks`` ones whose event time counts."""

    shop: ShopSettings
    topics: tuple[str, ...]
    records: Callable[[int, int | None], Iterator[Addressed]]
    clocks: int = 1


def shop_feed(topic: str, shop: ShopSettings) -> Feed:
    """The shop's events as they are, in one topic."""
    return Feed(shop, (topic,), lambda start, stop: (Addressed(topic, r) for r in records(shop, start, stop)))


def search_feed(events: str, changes: str, shop: ShopSettings) -> Feed:
    """The shop's events in one topic, and what becomes of its products in another."""

    def both(start: int, stop: int | None) -> Iterator[Addressed]:
        log = products.records(shop, start, stop)
        change = next(log, None)
        for event in records(shop, start, stop):
            while change is not None and change.index <= event.index:
                yield Addressed(changes, change)
                change = next(log, None)
            yield Addressed(events, event)

    return Feed(shop, (events, changes), both)


def formats_feed(topic: str, others: Callable[[str], str], shop: ShopSettings) -> Feed:
    """The shop's events as several systems write them: payments and what else is JSON in ``topic``, each other format
    in a topic of its own (``others`` names it)."""
    topics = {None: topic} | {way: others(way) for way in ENCODINGS}

    def all_of(start: int, stop: int | None) -> Iterator[Addressed]:
        for record in records(shop, start, stop):
            way, value = encoded(record)
            yield Addressed(topics[way], replace(record, value=value))

    return Feed(shop, tuple(topics.values()), all_of, clocks=len(topics))
