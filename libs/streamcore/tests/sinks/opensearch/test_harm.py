"""Servers that are overloaded, killed in the middle of a request, or down for a while."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from headgate.local.servers.base import Lifetime
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from streamcore.sinks.opensearch.bulk import BulkSender, RequestSize
from streamcore.sinks.opensearch.settings import BulkLimits
from streamcore.sinks.sink import RetryPolicy, SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import Row, SearchIndex, index_on, table

pytestmark = [pytest.mark.opensearch, pytest.mark.slow]

_LIMITS = (
    ("indexing_pressure.memory.limit", "100kb"),
    ("node.processors", "1"),
    ("thread_pool.write.queue_size", "1"),
    ("http.max_content_length", "1mb"),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedOpenSearch]:
    """Start a server of these tests' own, with small limits."""
    folder = tmp_path_factory.mktemp("small-opensearch")
    one = EmbeddedOpenSearch(
        OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT, short_lived=True, extra=_LIMITS)
    )
    one.start()
    yield one
    one.kill()


@pytest.fixture
def small(node: EmbeddedOpenSearch) -> SearchIndex:
    """Return a search index on it."""
    return index_on(node)


def _rows(count: int, text: str = "x") -> list[Row]:
    return [(f"d{number}", text, number, False) for number in range(count)]


def _expected_documents(rows: list[Row]) -> dict[str, tuple[object, object]]:
    return {str(name): (text, stock) for name, text, stock, _ in rows}


def test_requests_shrink_until_the_server_accepts_them_and_grow_again(small: SearchIndex) -> None:
    sink = small.sink(limits=BulkLimits(2_000, 4_000_000, 2), properties={"name": {"type": "keyword", "index": False}})
    sink.open(small.owner())
    rows = _rows(2_000, "x" * 500)  # 1 MB, ten times what the server has room for
    assert sink.write(cut_id(0), {"products": table(rows)}).rows == 2_000
    assert sink.counts.overloads > 2
    assert small.contents() == _expected_documents(rows)
    session = sink._session
    assert session is not None
    assert session.sender.pace.size_bytes < 400_000
    before = session.sender.pace
    sink.write(cut_id(1), {"products": table(_rows(10))})
    assert session.sender.pace.documents > before.documents
    sink.close()


def test_single_documents_that_meet_a_full_queue_are_sent_again(small: SearchIndex) -> None:
    sink = small.sink(limits=BulkLimits(20, 1_000_000, 16))
    sink.open(small.owner())
    rows = _rows(1_000)
    for batch in range(2):
        assert sink.write(cut_id(batch), {"products": table(rows)}).rows == 1_000
    assert sink.counts.overloads > 0
    assert sink.counts.documents == 2_000
    assert small.contents() == _expected_documents(rows)
    sink.close()


def test_without_retries_of_rejected_documents_some_are_missing(
    small: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off."""
    monkeypatch.setattr(BulkSender, "_settle", lambda *_: (None, None))
    sink = small.sink(limits=BulkLimits(20, 1_000_000, 16))
    sink.open(small.owner())
    for batch in range(10):
        sink.write(cut_id(batch), {"products": table(_rows(3_000))})
        if len(small.contents()) < 3_000:
            break
        small.ask("POST", f"/{small.alias}-000001/_delete_by_query?refresh=true", {"query": {"match_all": {}}})
    assert len(small.contents()) < 3_000
    sink.close()


def test_a_document_above_the_request_limit_is_rejected_and_the_others_are_written(small: SearchIndex) -> None:
    sink = small.sink(limits=BulkLimits(100, 4_000_000, 1))
    sink.open(small.owner())
    rows = [*_rows(3), ("huge", "y" * 1_200_000, 0, False), ("last", "x", 9, False)]
    written = sink.write(cut_id(0), {"products": table(rows)})
    assert [one.row for one in written.rejected] == [3]
    assert written.rows == 4
    assert small.contents() == _expected_documents([*rows[:3], rows[4]])
    sink.close()


def test_a_server_killed_in_the_middle_of_a_cut_receives_the_rest_after_its_restart(
    small: SearchIndex, node: EmbeddedOpenSearch
) -> None:
    requests: list[str] = []
    starter: list[threading.Thread] = []

    def reached(step: str) -> None:
        requests.append(step)
        if requests.count("request") == 5 and not starter:
            node.kill()
            starter.append(threading.Thread(target=node.start))
            starter[0].start()

    patience = RetryPolicy(240_000, 50, 1_000)
    sink = small.sink(SinkHooks(on_step=reached), limits=BulkLimits(50, 50_000, 2), patience=patience)
    sink.open(small.owner())
    rows = _rows(2_000)
    written = sink.write(cut_id(0), {"products": table(rows)})
    starter[0].join()
    assert written.outcome is WriteOutcome.COMMITTED
    assert written.rows == 2_000
    assert sink.counts.failures > 0
    assert small.contents() == _expected_documents(rows)
    sink.close()


def check_reported(small: SearchIndex, messages: Sequence[str], reason: str) -> None:
    away, back = messages
    where = re.escape(f"OpenSearch {small.settings().hosts[0]}")
    assert re.match(
        rf"{where} is unavailable since \d\d:\d\d:\d\d UTC: .*{reason}.*\. Until it is back .*\. Start", away
    )
    assert re.fullmatch(rf"{where} is back after \d+ s", back)


def test_the_sink_waits_for_a_server_that_is_down_for_five_seconds_and_reports_the_outage(
    small: SearchIndex, node: EmbeddedOpenSearch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamcore.outages")
    sink = small.sink(request_timeout_ms=1_000)
    sink.open(small.owner())
    sink.write(cut_id(0), {"products": table(_rows(10))})
    node.pause()
    timer = threading.Timer(5, node.resume)
    timer.start()
    started = time.monotonic()
    rows = _rows(500, "later")
    assert sink.write(cut_id(1), {"products": table(rows)}).rows == 500
    assert time.monotonic() - started > 4
    timer.join()
    assert small.contents() == _expected_documents(rows)
    sink.close()
    check_reported(small, caplog.messages, "timed out")


def test_the_sink_waits_for_an_index_that_a_full_disk_blocks_and_reports_the_outage(
    small: SearchIndex, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamcore.outages")
    sink = small.sink()
    sink.open(small.owner())
    sink.write(cut_id(0), {"products": table(_rows(10))})
    full = {"index.blocks.read_only_allow_delete": True}  # as the server does when its disk is full
    small.ask("PUT", f"/{small.alias}/_settings", full)
    free = threading.Timer(4, small.ask, ["PUT", f"/{small.alias}/_settings", dict.fromkeys(full)])
    free.start()
    started = time.monotonic()
    rows = _rows(300, "later")
    written = sink.write(cut_id(1), {"products": table(rows)})
    free.join()
    assert (written.rows, list(written.rejected)) == (300, [])
    assert time.monotonic() - started > 2
    assert small.contents() == _expected_documents(rows)
    sink.close()
    check_reported(small, caplog.messages, "read-only")


def test_the_request_size_halves_and_grows_within_its_limits() -> None:
    limits = BulkLimits(100, 1_000, 1)
    pace = RequestSize(100, 1_000)
    assert pace.halve(100, 800).halve(100, 800) == RequestSize(50, 400)
    for _ in range(20):
        pace = pace.halve(pace.documents, pace.size_bytes)
    assert pace == RequestSize(1, 1)
    for _ in range(80):
        pace = pace.grow(limits)
    assert pace == RequestSize(100, 1_000)
