"""Adds the columns of an enrichment to a frame.

``Enricher.run`` is a blocking call around the asynchronous lookups, which run on a shared event-loop thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.enrich import event_loop as loop
from streamcore.enrich.client import LookupFailure
from streamcore.enrich.lookup_batch import LookupExecutor, LookupResults
from streamcore.enrich.spec import ATTEMPTS, REASON, Enrichment, Key, OnFailure, ResultOrder
from streamcore.enrich.type_check import to_series
from streamcore.errors import StreamError

_KEY_CODE = "__key_code"
_COUNTER_NAMES = (
    "lookups",
    "hits",
    "not_found",
    "retries",
    "timeouts",
    "not_asked",
    "failures",
    "rows_failed",
    "cache_evicted",
    "in_flight_peak",
    "rows_in_flight_peak",
)


@dataclass(frozen=True, slots=True)
class EnrichedRows:
    """The rows of the input, each in exactly one of two frames.

    ``rows``: with the added columns, null if the store has no answer for the key. ``failed``: rows whose lookup failed,
    with ``REASON`` and ``ATTEMPTS``; empty under ``OnFailure.NULL_COLUMNS``.
    """

    rows: pl.DataFrame
    failed: pl.DataFrame


def monotonic_ms() -> int:
    """Return the milliseconds of a clock that never goes back."""
    return time.monotonic_ns() // 1_000_000


class Enricher:
    """Runs an enrichment in this process; keeps its client, its connections and its cache between frames.

    The client is created by the first ``run``. Do not call ``run`` concurrently, nor in a process forked after the
    first ``run``. ``close`` may be called from another thread; a ``run`` in progress then raises ``StreamError``.
    """

    def __init__(self, spec: Enrichment, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self.spec = spec
        self._now_ms = now_ms
        self._loop: loop.LoopThread | None = None
        self._executor: LookupExecutor | None = None
        self._closed, self._lock = False, threading.Lock()
        self._rows_failed = 0

    def run(self, frame: pl.DataFrame) -> EnrichedRows:
        """Look up each distinct key of the frame once, and add the columns of the answers.

        A row with a null in its key is not looked up and gets nulls. Raises ``ConfigError`` if the frame's columns do
        not fit, and ``StreamError`` if the enricher is closed. A failed lookup does not raise: see
        ``EnrichedRows.failed``.
        """
        self.spec.check(frame.schema)
        codes, distinct_keys = _encode_keys(frame.select(self.spec.key))
        keys = _to_key_list(distinct_keys)
        results = self._look_up(keys, np.bincount(codes, minlength=len(keys) + 1)[:-1].tolist())
        return self._split(frame, codes, results)

    def take_metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call, and reset them.

        In keys: ``lookups`` (sent to the store), ``hits`` (answered by the cache), ``not_found``, ``failures``. In
        calls: ``retries``, ``timeouts``, ``in_flight_peak``, ``not_asked`` (not made: the budget was used up). In rows:
        ``rows_failed``, ``rows_in_flight_peak``. In cache entries: ``cache_evicted``, and ``cached``, the present
        number, which is not reset.
        """
        counts: Counter[str] = Counter() if self._executor is None else self._executor.counts
        result = {name: counts[name] for name in _COUNTER_NAMES} | {"rows_failed": self._rows_failed}
        counts.clear()
        self._rows_failed = 0
        return result | {"cached": 0 if self._executor is None else len(self._executor.cache)}

    def close(self) -> None:
        """Cancel the lookups in progress, close the client and release the event loop."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop is not None and self._executor is not None:
            self._loop.call(self._executor.close())
            loop.release()

    def _look_up(self, keys: Sequence[Key], rows_per_key: Sequence[int]) -> LookupResults:
        with self._lock:  # no lookup begins after ``close``
            thread, executor = self._get_executor()
            future = thread.submit(executor.look_up(keys, rows_per_key))
        try:
            return future.result()
        except CancelledError:
            raise StreamError(f"enrichment {self.spec.name} was closed during a lookup") from None
        except BaseException:  # such as KeyboardInterrupt in this thread: leave no lookup running
            thread.call(executor.cancel())
            raise

    def _get_executor(self) -> tuple[loop.LoopThread, LookupExecutor]:
        if self._closed:
            raise StreamError(f"enrichment {self.spec.name} is closed")
        if self._loop is None or self._executor is None:
            thread = loop.acquire()
            try:
                self._executor = thread.call(_create_executor(self.spec, self._now_ms))
            except BaseException:
                loop.release()
                raise
            self._loop = thread
        return self._loop, self._executor

    def _split(self, frame: pl.DataFrame, codes: npt.NDArray[np.int64], results: LookupResults) -> EnrichedRows:
        """Split the rows into enriched and failed, add the columns of each, and order both as requested."""
        failures = [result if isinstance(result, LookupFailure) else None for result in results.by_key]
        failed = np.array([failure is not None for failure in failures] + [False], dtype=bool)[codes]
        self._rows_failed += int(failed.sum())
        if self.spec.on_failure is OnFailure.NULL_COLUMNS:
            failed = np.zeros(len(codes), dtype=bool)
        order = np.arange(len(codes))
        if self.spec.order is ResultOrder.UNORDERED:
            order = np.argsort(_completion_ranks(results)[codes], kind="stable")
        rows, failed_rows = order[~failed[order]], order[failed[order]]
        failure_columns = [
            pl.Series(REASON, [failure and failure.reason for failure in failures] + [None], dtype=pl.String),
            pl.Series(ATTEMPTS, [failure and failure.attempts for failure in failures] + [None], dtype=pl.Int64),
        ]
        return EnrichedRows(
            frame[rows].hstack([column.gather(codes[rows]) for column in self._new_columns(results)]),
            frame[failed_rows].hstack([column.gather(codes[failed_rows]) for column in failure_columns]),
        )

    def _new_columns(self, results: LookupResults) -> list[pl.Series]:
        """Return each added column with one value per distinct key, and a final null for rows without a key."""
        answers = [result if isinstance(result, tuple) else None for result in results.by_key]
        return [
            to_series(name, [values and values[index] for values in answers] + [None], dtype)
            for index, (name, dtype) in enumerate(self.spec.columns.items())
        ]


async def _create_executor(spec: Enrichment, now_ms: Callable[[], int]) -> LookupExecutor:
    return LookupExecutor(spec, now_ms)


def _encode_keys(columns: pl.DataFrame) -> tuple[npt.NDArray[np.int64], pl.DataFrame]:
    """Return the code of each row's key, and the distinct keys by code.

    A row with a null in its key gets the code ``len(keys)``.
    """
    distinct = columns.drop_nulls().unique(maintain_order=True)
    coded = distinct.with_columns(pl.int_range(distinct.height, dtype=pl.Int64).alias(_KEY_CODE))
    joined = columns.join(coded, on=columns.columns, how="left", maintain_order="left")
    return joined[_KEY_CODE].fill_null(distinct.height).to_numpy(), distinct


def _to_key_list(distinct: pl.DataFrame) -> Sequence[Key]:
    return distinct.rows() if distinct.width > 1 else distinct.to_series().to_list()


def _completion_ranks(results: LookupResults) -> npt.NDArray[np.int64]:
    """Return the position of each key in the order of completion; -1 for rows without a key, which come first."""
    ranks = np.full(len(results.by_key) + 1, -1, dtype=np.int64)
    ranks[results.completion_order] = np.arange(len(results.completion_order))
    return ranks
