"""The generator of the search service: two topics with one order of records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.demo.shop import products, stream
from headgate.demo.shop.feed import RoutedRecord, search_feed
from headgate.demo.shop.settings import ShopSettings

SHOP = ShopSettings(seed=7, start_ms=1_700_000_000_000)
FEED = search_feed("search", "search.products", SHOP)
STOP = 5_400


def read_feed(start: int, stop: int) -> list[RoutedRecord]:
    return [*FEED.records(start, stop)]


@pytest.mark.slow
def test_each_topic_gets_exactly_its_records() -> None:
    parts = {"search": stream.records(SHOP, 0, STOP), "search.products": products.records(SHOP, 0, STOP)}
    every = read_feed(0, STOP)
    assert FEED.topics == tuple(parts)
    for topic, part in parts.items():
        assert [one.record for one in every if one.topic == topic] == [*part]


@pytest.mark.slow
def test_records_are_in_order_and_a_change_precedes_the_event_of_its_index() -> None:
    places = [(one.record.index, one.topic != "search.products") for one in read_feed(0, STOP)]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


@given(cut=st.integers(0, STOP))
def test_a_second_run_sends_the_rest_wherever_the_first_stopped(cut: int) -> None:
    begin, end = max(0, cut - 60), min(STOP, cut + 60)
    assert read_feed(begin, cut) + read_feed(cut, end) == read_feed(begin, end)
