"""Enrichment against a real server that is slow, fails, hangs and drops connections.

No test depends on durations, except for time-outs with wide margins.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.enrich import (
    Answer,
    Caching,
    EnrichedRows,
    Enricher,
    Enrichment,
    Key,
    LookupRetries,
    OnFailure,
    ResultOrder,
    close_shared_enrichers,
    shared_enricher,
)
from streamcore.errors import ConfigError, StreamError
from tests.harness.servers.object_store_server import Client, Http, ManyClient, Rejected, StoreServer

NO_CACHE = Caching(max_entries=0)
QUICK = LookupRetries(attempts=3, pause_ms=1)
ONCE = LookupRetries(attempts=1)
LONG_MS = 60_000
SHORT_MS = 200


@pytest.fixture(autouse=True, scope="module")
def _no_other_enrichers() -> None:
    """Close the enrichers of earlier tests in this process: they share the event loop."""
    close_shared_enrichers()


@pytest.fixture
def server() -> Iterator[StoreServer]:
    """Yield a store; at the end no connection to it and no event loop may be left."""
    with StoreServer() as one:
        yield one
        assert one.wait_until_idle(), "a connection is still open"
    gc.collect()  # leaked objects warn now, and warnings are errors
    assert not [t for t in threading.enumerate() if t.name == "enrichment"]


def enrichment(server: StoreServer, **options: object) -> Enrichment:
    usual: dict[str, object] = {
        "name": "customers",
        "create_client": Client(server.port),
        "key": ("id",),
        "columns": {"text": pl.String(), "size": pl.Int64()},
        "timeout_ms": LONG_MS,
        "retries": QUICK,
        "cache": NO_CACHE,
    }
    return Enrichment(**(usual | options))  # type: ignore[arg-type]


@pytest.fixture
def enrich(server: StoreServer) -> Iterator[Enrich]:
    """Enriches rows with these ids by the server; ``configure`` sets the other arguments of the enrichment."""
    one = Enrich(server)
    yield one
    one.close()


class Enrich:
    """Create an enricher with these options."""

    def __init__(self, server: StoreServer) -> None:
        self.server = server
        self.now_ms = 0
        self.enrichers: list[Enricher] = []

    def configure(self, **options: object) -> Enrich:
        self.enrichers.append(Enricher(enrichment(self.server, **options), lambda: self.now_ms))
        return self

    def __call__(self, *ids: str | None) -> EnrichedRows:
        rows = pl.DataFrame({"id": ids, "row": range(len(ids))}, schema={"id": pl.String(), "row": pl.Int64()})
        out = self.enrichers[-1].run(rows)
        both = sorted(out.rows["row"].to_list() + out.failed["row"].to_list())
        assert both == list(range(len(ids))), "every row in exactly one frame"
        return out

    def metrics(self) -> Mapping[str, int]:
        return self.enrichers[-1].take_metrics()

    def close(self) -> None:
        for one in self.enrichers:
            one.close()


# --- rows and columns ---------------------------------------------------------------------------------------------


def test_rows_get_the_values_of_the_store_or_nulls(enrich: Enrich) -> None:
    out = enrich.configure()("a", "none-1", None, "bcd")
    assert out.rows.to_dicts() == [
        {"id": "a", "row": 0, "text": "a", "size": 1},
        {"id": "none-1", "row": 1, "text": None, "size": None},
        {"id": None, "row": 2, "text": None, "size": None},
        {"id": "bcd", "row": 3, "text": "bcd", "size": 3},
    ]
    assert out.failed.schema == {"id": pl.String(), "row": pl.Int64(), "reason": pl.String(), "attempts": pl.Int64()}
    assert {**enrich.metrics(), "in_flight_peak": 0} == {
        "lookups": 3, "hits": 0, "not_found": 1, "retries": 0, "timeouts": 0, "failures": 0, "rows_failed": 0,
        "cache_evicted": 0, "in_flight_peak": 0, "rows_in_flight_peak": 3, "cached": 0, "not_asked": 0,
    }  # fmt: skip


def test_an_empty_frame_gives_empty_frames_without_a_request(enrich: Enrich) -> None:
    out = enrich.configure()()
    assert (out.rows.height, out.failed.height) == (0, 0)
    assert out.rows.columns == ["id", "row", "text", "size"]
    assert not enrich.server.requests_by_key


def test_each_distinct_key_of_a_frame_is_looked_up_once(enrich: Enrich) -> None:
    out = enrich.configure(rows_in_flight=7)(*[f"k{n % 40}" for n in range(400)])
    assert out.rows["text"].to_list() == [f"k{n % 40}" for n in range(400)]
    assert set(enrich.server.requests_by_key.values()) == {1}


def test_ordered_keeps_the_order_of_the_rows_whichever_look_up_ends_first(enrich: Enrich) -> None:
    ids = ["slow-1", "b", "slow-2", "c", "slow-1"]
    assert enrich.configure()(*ids).rows["id"].to_list() == ids


def test_unordered_gives_rows_as_their_look_ups_end_and_keeps_the_order_of_a_key(enrich: Enrich) -> None:
    enrich.configure(order=ResultOrder.UNORDERED, cache=Caching())("cached")
    out = enrich("flaky-2-x", "b", "none-1", "flaky-2-x", "cached", "odd-1", None)
    rows, failed = out.rows["row"].to_list(), out.failed["row"].to_list()
    assert rows[:2] == [6, 4], "a row without a look-up ends immediately"
    assert rows[-2:] == [0, 3], "a retried row ends last"
    assert sorted(rows[2:-2]) == [1, 2]
    assert failed == [5]


def test_a_key_of_several_columns_reaches_the_client_as_a_tuple() -> None:
    one = Enricher(Enrichment("pairs", Pairs, ("a", "b"), {"sum": pl.Int64()}))
    out = one.run(pl.DataFrame({"a": [1, 2, 1, None], "b": [10, 20, 10, 1]}))
    one.close()
    assert out.rows["sum"].to_list() == [11, 22, 11, None]


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "attempts", "says"),
    [
        ("fail-1", 3, "the store says 500"),
        ("drop-1", 3, "IncompleteReadError"),
        ("half-1", 3, "IncompleteReadError"),
        ("gone-1", 1, "Rejected: the store says 404"),
        ("odd-1", 1, "size: str where a whole number was declared"),
    ],
)
def test_a_failure_goes_to_the_failed_frame_with_reason_and_attempts(
    enrich: Enrich, key: str, attempts: int, says: str
) -> None:
    out = enrich.configure()("a", key, "b", key)
    assert out.rows["id"].to_list() == ["a", "b"]
    assert out.failed["row"].to_list() == [1, 3]
    assert out.failed["attempts"].to_list() == [attempts, attempts]
    assert says in out.failed["reason"][0]
    assert enrich.server.requests_by_key[key] == attempts
    metrics = enrich.metrics()
    assert (metrics["failures"], metrics["rows_failed"], metrics["retries"]) == (1, 2, attempts - 1)


def test_a_failure_can_give_nulls_instead(enrich: Enrich) -> None:
    out = enrich.configure(on_failure=OnFailure.NULL_COLUMNS)("a", "gone-1")
    assert out.rows.select("id", "text").rows() == [("a", "a"), ("gone-1", None)]
    assert out.failed.height == 0
    assert enrich.metrics()["rows_failed"] == 1


def test_a_look_up_that_fails_for_a_while_is_retried_until_it_succeeds(enrich: Enrich) -> None:
    out = enrich.configure()("flaky-2-a", "flaky-1-b")
    assert out.rows["text"].to_list() == ["flaky-2-a", "flaky-1-b"]
    assert enrich.metrics()["retries"] == 3


def test_a_look_up_that_hangs_times_out_without_delaying_the_others(enrich: Enrich) -> None:
    retries = LookupRetries(attempts=2, pause_ms=1)
    out = enrich.configure(timeout_ms=SHORT_MS, retries=retries)("hang-1", "a", "hang-2")
    assert out.rows["id"].to_list() == ["a"]
    assert out.failed.select("reason", "attempts").rows() == [(f"no answer within {SHORT_MS} ms", 2)] * 2
    assert enrich.metrics()["timeouts"] == 4


def test_failing_calls_take_no_more_of_a_frame_than_their_budget_and_the_others_are_answered(enrich: Enrich) -> None:
    enrich.configure(timeout_ms=SHORT_MS, retries=QUICK, concurrency=4, failure_budget_ms=2 * SHORT_MS)
    started_s = time.monotonic()
    out = enrich(*[name for n in range(20) for name in (f"hang-{n}", f"a-{n}")])
    # All hanging keys together would take 20 * 3 * SHORT_MS / 4, which is 15 times SHORT_MS.
    assert time.monotonic() - started_s < 8 * SHORT_MS / 1000
    assert out.rows.height + out.failed.height == 40
    assert {*out.failed.filter(~pl.col("id").str.starts_with("hang"))["attempts"].to_list()} <= {0}
    assert out.failed.filter(pl.col("reason").str.contains("not asked for, because calls failed for 400 ms")).height
    assert enrich.metrics()["not_asked"] > 0


@pytest.mark.slow
def test_without_a_budget_the_same_frame_waits_for_each_hanging_key(enrich: Enrich) -> None:
    """The protection off."""
    enrich.configure(timeout_ms=SHORT_MS, retries=QUICK, concurrency=4, failure_budget_ms=LONG_MS)
    started_s = time.monotonic()
    out = enrich(*[name for n in range(20) for name in (f"hang-{n}", f"a-{n}")])
    assert time.monotonic() - started_s > 14 * SHORT_MS / 1000
    assert (out.rows.height, out.failed.height) == (20, 20)


def test_slow_calls_that_succeed_cost_nothing_of_the_budget(enrich: Enrich) -> None:
    enrich.configure(concurrency=1, failure_budget_ms=1)
    assert enrich(*[f"slow-{n}" for n in range(5)]).rows.height == 5


@pytest.mark.slow
def test_a_store_that_does_not_answer_at_all_is_asked_once_a_frame_until_it_does(enrich: Enrich) -> None:
    enrich.configure(timeout_ms=SHORT_MS, retries=ONCE, concurrency=2, failure_budget_ms=SHORT_MS)
    assert enrich(*[f"hang-{n}" for n in range(8)]).failed.height == 8
    before = enrich.server.requests_by_key.total()
    assert enrich(*[f"hang-{n}" for n in range(8)]).failed.height == 8
    assert enrich.server.requests_by_key.total() == before + 1
    assert enrich("a", "b", "c").rows.height == 3, "the first call was answered"
    assert enrich("hang-1", "d").rows.height == 1


def test_a_connection_that_the_store_closed_causes_a_retry_and_no_failed_row(enrich: Enrich) -> None:
    enrich.configure(concurrency=1)
    for ids in (["a"], ["b"], ["drop-1"]):
        enrich(*ids)
    assert enrich("c").rows["text"].to_list() == ["c"]


def test_a_store_that_is_down_fails_the_rows_and_is_called_again_for_the_next_frame(server: StoreServer) -> None:
    with StoreServer() as gone:
        port = gone.port
    one = Enricher(enrichment(server, create_client=Client(port)))
    out = one.run(pl.DataFrame({"id": ["a", "b"]}))
    assert out.failed["attempts"].to_list() == [3, 3]
    assert "the store does not open: ConnectionRefusedError" in out.failed["reason"][0]
    one.close()
    stubborn = Enricher(enrichment(server, create_client=SecondTime(server.port), retries=ONCE))
    assert stubborn.run(pl.DataFrame({"id": ["a"]})).failed.height == 1
    assert stubborn.run(pl.DataFrame({"id": ["a"]})).rows["text"].to_list() == ["a"]
    stubborn.close()


def test_any_exception_of_a_client_fails_only_its_rows() -> None:
    one = Enricher(Enrichment("wild", Wild, ("id",), {"text": pl.String()}))
    out = one.run(pl.DataFrame({"id": [*WILD, "fine"]}))
    assert one.run(pl.DataFrame({"id": ["fine"]})).rows["text"].to_list() == ["fine"]
    one.close()
    assert out.rows["id"].to_list() == ["fine"]
    assert dict(out.failed.select("id", "reason").rows()) == WILD


# --- limits -------------------------------------------------------------------------------------------------------


def test_no_more_calls_are_in_flight_than_allowed(enrich: Enrich) -> None:
    out = enrich.configure(concurrency=3)(*[f"slow-{n}" for n in range(30)])
    assert out.rows.height == 30
    assert enrich.server.peak <= 3
    assert enrich.metrics()["in_flight_peak"] == 3


def test_no_more_rows_wait_than_allowed_except_for_a_key_with_more(enrich: Enrich) -> None:
    enrich.configure(concurrency=50, rows_in_flight=5)(*[f"slow-{n}" for n in range(30)])
    assert enrich.server.peak <= 5
    assert enrich.metrics()["rows_in_flight_peak"] == 5
    enrich("slow-1", *["slow-2"] * 20, "slow-3")
    assert enrich.metrics()["rows_in_flight_peak"] == 20


def test_a_pause_before_a_retry_does_not_count_against_the_concurrency(enrich: Enrich) -> None:
    enrich.configure(concurrency=1, order=ResultOrder.UNORDERED)
    out = enrich("flaky-1-a", "b", "c")
    assert out.rows["row"].to_list() == [1, 2, 0]


@pytest.mark.parametrize(("attempts", "pause_s"), [(1, 0.1), (2, 0.3), (3, 0.9), (4, 2.0), (5_000, 2.0)])
def test_retry_pauses_grow_up_to_the_maximum(attempts: int, pause_s: float) -> None:
    retries = LookupRetries(attempts=9_999, pause_ms=100, growth=3, longest_pause_ms=2_000)
    assert retries.pause_s(attempts) == pytest.approx(pause_s)


# --- many keys a call ---------------------------------------------------------------------------------------------


def test_a_batch_client_looks_up_many_keys_in_one_call(enrich: Enrich, server: StoreServer) -> None:
    enrich.configure(create_client=ManyClient(server.port), batch_keys=10, concurrency=2)
    out = enrich(*[f"k{n}" for n in range(25)], "none-1", "k3")
    assert out.rows["text"].to_list() == [*[f"k{n}" for n in range(25)], None, "k3"]
    assert server.requests == 3
    assert enrich.metrics()["lookups"] == 26


def test_a_batch_call_fails_or_is_retried_as_a_whole(enrich: Enrich, server: StoreServer) -> None:
    out = enrich.configure(create_client=ManyClient(server.port), batch_keys=2)(
        "a", "gone-1", "b", "flaky-1-c", "odd-1", "d"
    )
    assert out.failed["id"].to_list() == ["a", "gone-1", "odd-1"]
    assert out.rows["id"].to_list() == ["b", "flaky-1-c", "d"]


# --- the cache ----------------------------------------------------------------------------------------------------


def test_the_cache_keeps_found_and_missing_rows_for_their_times_to_live_and_no_failures(enrich: Enrich) -> None:
    requests = enrich.server.requests_by_key
    enrich.configure(cache=Caching(found_ttl_ms=100, missing_ttl_ms=10))
    for enrich.now_ms, found, missing, failed in (
        (0, 1, 1, 1),
        (9, 1, 1, 2),
        (10, 1, 2, 3),
        (99, 1, 3, 4),
        (100, 2, 3, 5),
    ):
        out = enrich("a", "none-1", "gone-1")
        assert (requests["a"], requests["none-1"], requests["gone-1"]) == (found, missing, failed)
        assert out.rows["text"].to_list() == ["a", None]


def test_the_cache_is_bounded_and_evicts_the_least_recently_used_key(enrich: Enrich) -> None:
    enrich.configure(cache=Caching(max_entries=2), concurrency=1)
    for ids in (["a"], ["b"], ["a"], ["c"], ["a"], ["b"]):
        enrich(*ids)
    assert enrich.server.requests_by_key == {"a": 1, "b": 2, "c": 1}
    metrics = enrich.metrics()
    assert (metrics["hits"], metrics["cache_evicted"], metrics["cached"]) == (2, 2, 2)
    assert enrich.metrics()["hits"] == 0


@settings(max_examples=30)
@given(data=st.data())
def test_enrichment_equals_a_dictionary_for_any_frames(data: st.DataObject, shared_server: StoreServer) -> None:
    """The store, the cache and the order, compared with the definition row by row."""
    keys = st.none() | st.sampled_from(["a", "bb", "none-1", "gone-1", "fail-1", "odd-1", "slow-1"])
    frames = data.draw(st.lists(st.lists(keys, max_size=12), min_size=1, max_size=3))
    many = data.draw(st.booleans())
    one = Enricher(
        enrichment(
            shared_server,
            create_client=Client(shared_server.port) if not many else ManyClient(shared_server.port),
            batch_keys=1,
            order=data.draw(st.sampled_from(ResultOrder)),
            cache=Caching(max_entries=data.draw(st.sampled_from([0, 1, 100]))),
            concurrency=data.draw(st.integers(1, 4)),
            rows_in_flight=data.draw(st.integers(1, 5)),
            retries=LookupRetries(attempts=2, pause_ms=0),
        )
    )
    for ids in frames:
        out = one.run(pl.DataFrame({"id": pl.Series(ids, dtype=pl.String), "row": range(len(ids))}))
        fail = {"gone-1", "fail-1", "odd-1"}
        text = [None if key is None or key == "none-1" else key for key in ids]
        assert sorted(out.rows.select("row", "text").rows()) == [
            (row, text[row]) for row, key in enumerate(ids) if key not in fail
        ]
        assert sorted(out.failed["row"].to_list()) == [row for row, key in enumerate(ids) if key in fail]
        if one.spec.order is ResultOrder.ORDERED:
            assert out.rows["row"].is_sorted()
            assert out.failed["row"].is_sorted()
    one.close()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[StoreServer]:
    with StoreServer(slow_s=0.001) as one:
        yield one


# --- one loop a process -------------------------------------------------------------------------------------------


def test_connections_and_the_event_loop_last_until_the_last_enricher_is_closed(server: StoreServer) -> None:
    first, second = Enricher(enrichment(server)), Enricher(enrichment(server))
    for _ in range(5):
        for one in (first, second):
            one.run(pl.DataFrame({"id": ["a"]}))
    assert server.accepted == 2
    assert len([t for t in threading.enumerate() if t.name == "enrichment"]) == 1
    first.close()
    first.close()
    assert second.run(pl.DataFrame({"id": ["a"]})).rows.height == 1
    second.close()


@pytest.mark.parametrize(("client", "requests"), [("Client", 10), ("HangingOpen", 1)])
def test_closing_cancels_running_look_ups(server: StoreServer, client: str, requests: int) -> None:
    one, other, raised = (
        Enricher(enrichment(server, create_client=_CLIENTS[client](server.port))),
        Enricher(enrichment(server)),
        [],
    )
    other.run(pl.DataFrame({"id": ["keeps-the-loop"]}))

    def run() -> None:
        try:
            one.run(pl.DataFrame({"id": [f"hang-{n}" for n in range(10)]}))
        except StreamError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    assert server.wait_for_requests(1 + requests)
    one.close()
    thread.join()
    assert raised == ["enrichment customers was closed during a lookup"]
    assert other.run(pl.DataFrame({"id": ["a"]})).rows.height == 1
    other.close()
    assert server.wait_until_idle()
    with pytest.raises(StreamError, match="is closed"):
        one.run(pl.DataFrame({"id": ["a"]}))


def test_a_client_that_fails_to_open_is_closed(server: StoreServer) -> None:
    one, other = Enricher(enrichment(server, create_client=HalfOpen(server.port))), Enricher(enrichment(server))
    out = one.run(pl.DataFrame({"id": ["a"]}))
    assert out.failed.select("reason", "attempts").rows() == [
        ("the store does not open: Rejected: on second thoughts", 1)
    ]
    assert server.wait_until_idle()
    one.close()
    other.close()


def test_a_client_that_hangs_in_close_is_abandoned(server: StoreServer) -> None:
    one = Enricher(enrichment(server, create_client=HangingClose(server.port), timeout_ms=SHORT_MS))
    assert one.run(pl.DataFrame({"id": ["a"]})).rows.height == 1
    one.close()


def test_an_enricher_that_never_ran_can_be_closed(server: StoreServer) -> None:
    Enricher(enrichment(server)).close()


def test_an_executor_that_cannot_be_created_releases_the_loop(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    enricher = Enricher(enrichment(server))
    with monkeypatch.context() as patched:
        patched.setattr("streamcore.enrich.enricher.LookupExecutor", fail)
        with pytest.raises(MemoryError):
            enricher.run(pl.DataFrame({"id": ["a"]}))
    assert not [t for t in threading.enumerate() if t.name == "enrichment"]
    assert enricher.run(pl.DataFrame({"id": ["a"]})).rows.height == 1
    enricher.close()


def test_tasks_that_a_client_left_behind_end_with_the_loop() -> None:
    Careless.cancelled = 0
    one = Enricher(Enrichment("careless", Careless, ("id",), {"text": pl.String()}))
    assert one.run(pl.DataFrame({"id": ["a", "b"]})).rows.height == 2
    one.close()
    assert Careless.cancelled == 2


def test_a_process_keeps_one_enricher_for_a_name_until_its_settings_change(server: StoreServer) -> None:
    one = shared_enricher(enrichment(server))
    assert shared_enricher(enrichment(server)) is one
    one.run(pl.DataFrame({"id": ["a"]}))
    other = shared_enricher(enrichment(server, concurrency=7))
    assert other is not one
    assert server.wait_until_idle(), "the replaced enricher is closed"
    other.run(pl.DataFrame({"id": ["a"]}))
    close_shared_enrichers()
    assert shared_enricher(enrichment(server)) is not other
    close_shared_enrichers()


# --- what cannot be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ()}, "at least one column"),
        ({"key": ("a", "a")}, "each once"),
        ({"columns": {}}, "has no columns"),
        ({"columns": {"x": pl.Int8()}}, "cannot be Int8"),
        ({"columns": {"x": pl.Datetime("us")}}, "cannot be Datetime"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"timeout_ms": 0}, "timeout_ms must be at least 1"),
        ({"rows_in_flight": 0}, "rows_in_flight must be at least 1"),
        ({"batch_keys": 0}, "batch_keys must be at least 1"),
    ],
)
def test_invalid_enrichments_are_rejected(options: dict[str, object], says: str) -> None:
    usual: dict[str, object] = {"name": "x", "create_client": Pairs, "key": ("a",), "columns": {"x": pl.String()}}
    with pytest.raises(ConfigError, match=says):
        Enrichment(**(usual | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"attempts": 0}, {"pause_ms": -1}, {"growth": 0.5}, {"longest_pause_ms": 1}])
def test_invalid_retries_are_rejected(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        LookupRetries(**options)  # type: ignore[arg-type]


def test_a_cache_of_negative_size_is_rejected() -> None:
    with pytest.raises(ConfigError):
        Caching(found_ttl_ms=-1)


@pytest.mark.parametrize(
    ("columns", "says"),
    [(["a"], "no key column"), (["id", "text"], r"already have \['text'\]"), (["id", "reason"], r"\['reason'\]")],
)
def test_frames_that_do_not_fit_are_rejected(columns: list[str], says: str) -> None:
    spec = Enrichment("x", Pairs, ("id",), {"text": pl.String()})
    with pytest.raises(ConfigError, match=says):
        spec.check(dict.fromkeys(columns, pl.String()))


# --- clients ------------------------------------------------------------------------------------------------------


class Pairs:
    """Adds two numbers."""

    async def open(self) -> None:
        pass

    async def get(self, key: Key) -> Answer:
        assert isinstance(key, tuple)
        return {"sum": sum(key)}

    async def close(self) -> None:
        raise RuntimeError("of no use to anybody")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


class Trap(dict[str, object]):
    def get(self, key: object, default: object = None) -> object:
        raise RuntimeError("trap")


WILD = {
    "value": "ValueError: no",
    "exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt",
    "cancelled": "CancelledError",
    "unprintable": "Unprintable",
    "number": "the store answered int where a mapping of fields or None was expected",
    "trap": "RuntimeError: trap",
    "surrogate": "ValueError: ?",
    "long": f"ValueError: {'x' * 488}",
}


class Wild:
    """Behaves as a client should not."""

    async def open(self) -> None:
        pass

    async def get(self, key: Key) -> Answer:
        match key:
            case "value":
                raise ValueError("no")
            case "exit":
                sys.exit(3)
            case "interrupt":
                raise KeyboardInterrupt
            case "cancelled":
                raise asyncio.CancelledError
            case "unprintable":
                raise Unprintable
            case "number":
                return 5  # type: ignore[return-value]
            case "trap":
                return Trap()
            case "surrogate":
                raise ValueError("\ud800")
            case "long":
                raise ValueError("x" * 10_000)
        return {"text": key}

    async def close(self) -> None:
        pass


class Careless:
    """Leaves tasks behind."""

    cancelled = 0

    async def open(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    async def get(self, key: Key) -> Answer:
        self.tasks.append(asyncio.create_task(self.forever()))
        await asyncio.sleep(0)
        return {"text": key}

    async def forever(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            Careless.cancelled += 1

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class HangingOpen:
    """Creates clients whose ``open`` never returns."""

    port: int

    def __call__(self) -> Http:
        return _HangingOpen(self.port)


class _HangingOpen(Http):
    async def open(self) -> None:
        await self._request("hang-open")


@dataclass(frozen=True)
class HalfOpen:
    """Creates clients that connect and then fail to open."""

    port: int

    def __call__(self) -> Http:
        return _HalfOpen(self.port)


class _HalfOpen(Http):
    async def open(self) -> None:
        await super().open()
        raise Rejected("on second thoughts")


@dataclass(frozen=True)
class HangingClose:
    """Creates clients that hang after closing their connections."""

    port: int

    def __call__(self) -> Http:
        return _HangingClose(self.port)


class _HangingClose(Http):
    async def close(self) -> None:
        await super().close()
        await asyncio.Event().wait()


class SecondTime:
    """Creates a client that opens only the second time."""

    def __init__(self, port: int) -> None:
        self.ports: Sequence[int] = (1, port)

    def __call__(self) -> object:
        port, *rest = self.ports
        self.ports = rest or self.ports
        return Client(port)()


_CLIENTS: Mapping[str, Callable[[int], object]] = {"Client": Client, "HangingOpen": HangingOpen}
