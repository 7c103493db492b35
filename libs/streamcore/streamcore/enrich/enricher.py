"""Frames in, frames with more columns out: the plain call around the look-ups.

Knows frames, and no event loop but for the one that it is lent.
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

_NUMBER = "__number"
_COUNTER_NAMES = (
    "look_ups",
    "hits",
    "not_found",
    "retries",
    "timeouts",
    "failures",
    "rows_failed",
    "cache_evicted",
    "in_flight_peak",
    "rows_in_flight_peak",
)


@dataclass(frozen=True, slots=True)
class EnrichedRows:
    """Every row of the input in exactly one of two frames.

    ``rows``: with the added columns, null where nothing was found. ``failed``: with ``REASON`` and ``ATTEMPTS``; empty
    under ``OnFailure.NULL_COLUMNS``.
    """

    rows: pl.DataFrame
    failed: pl.DataFrame


def monotonic_ms() -> int:
    """Return milliseconds that never go back."""
    return time.monotonic_ns() // 1_000_000


class Enricher:
    """Runs an enrichment in this process; keeps its client, its connections and its cache between frames.

    Nothing happens before the first ``run``. ``close`` it at the end; another thread may, and then a ``run`` that is
    under way ends with ``StreamError``. One ``run`` at a time, and not in a process forked after the first.
    """

    def __init__(self, spec: Enrichment, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self.spec = spec
        self._now_ms = now_ms
        self._loop: loop.LoopThread | None = None
        self._executor: LookupExecutor | None = None
        self._closed, self._lock = False, threading.Lock()
        self._rows_failed = 0

    def run(self, frame: pl.DataFrame) -> EnrichedRows:
        """Look every distinct key of the frame up once and add the values found.

        A row with a null in its key is not looked up: nothing is found for it. ``ConfigError`` when the frame's
        columns do not fit; nothing else that a client or a store does raises.
        """
        self.spec.check(frame.schema)
        codes, distinct = _distinct(frame.select(self.spec.key))
        keys = _keys(distinct)
        results = self._look_up(keys, np.bincount(codes, minlength=len(keys) + 1)[:-1].tolist())
        return self._split(frame, codes, results)

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call.

        In keys: ``look_ups`` (asked of the store), ``hits`` (answered by the cache), ``not_found``, ``failures``. In
        calls: ``retries``, ``timeouts``, ``in_flight_peak``. In rows: ``rows_failed``, ``rows_in_flight_peak``. And
        ``cache_evicted``, and ``cached``: the entries now.
        """
        counts: Counter[str] = Counter() if self._executor is None else self._executor.counts
        result = {name: counts[name] for name in _COUNTER_NAMES} | {"rows_failed": self._rows_failed}
        counts.clear()
        self._rows_failed = 0
        return result | {"cached": 0 if self._executor is None else len(self._executor.cache)}

    def close(self) -> None:
        """Cancel the look-ups under way, close the client, give the event loop back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop is not None and self._executor is not None:
            self._loop.call(self._executor.close())
            loop.release()

    def _look_up(self, keys: Sequence[Key], rows: Sequence[int]) -> LookupResults:
        with self._lock:  # so that nothing begins behind a ``close``
            thread, executor = self._open_executor()
            found = thread.submit(executor.look_up(keys, rows))
        try:
            return found.result()
        except CancelledError:
            raise StreamError(f"enrichment {self.spec.name} was closed while it looked up") from None
        except BaseException:  # an interrupt from outside: leave nothing running behind
            thread.call(executor.cancel())
            raise

    def _open_executor(self) -> tuple[loop.LoopThread, LookupExecutor]:
        if self._closed:
            raise StreamError(f"enrichment {self.spec.name} is closed")
        if self._loop is None or self._executor is None:
            self._loop = loop.acquire()
            self._executor = self._loop.call(_create_executor(self.spec, self._now_ms))
        return self._loop, self._executor

    def _split(self, frame: pl.DataFrame, codes: npt.NDArray[np.int64], results: LookupResults) -> EnrichedRows:
        """Put the values found beside the rows, in the requested order."""
        failures = [result if isinstance(result, LookupFailure) else None for result in results.by_key]
        failed = np.array([f is not None for f in failures] + [False], dtype=bool)[codes]
        self._rows_failed += int(failed.sum())
        if self.spec.on_failure is OnFailure.NULL_COLUMNS:
            failed = np.zeros(len(codes), dtype=bool)
        order = np.arange(len(codes))
        if self.spec.order is ResultOrder.UNORDERED:
            order = np.argsort(_ranks(results)[codes], kind="stable")
        rows, others = order[~failed[order]], order[failed[order]]
        why = [
            pl.Series(REASON, [f and f.reason for f in failures] + [None], dtype=pl.String),
            pl.Series(ATTEMPTS, [f and f.attempts for f in failures] + [None], dtype=pl.Int64),
        ]
        return EnrichedRows(
            frame[rows].hstack([column.gather(codes[rows]) for column in self._new_columns(results)]),
            frame[others].hstack([column.gather(codes[others]) for column in why]),
        )

    def _new_columns(self, results: LookupResults) -> list[pl.Series]:
        """Return the new columns by key, and a null for rows without one."""
        found = [result if isinstance(result, tuple) else None for result in results.by_key]
        return [
            to_series(name, [values and values[place] for values in found] + [None], dtype)
            for place, (name, dtype) in enumerate(self.spec.columns.items())
        ]


async def _create_executor(spec: Enrichment, now_ms: Callable[[], int]) -> LookupExecutor:
    return LookupExecutor(spec, now_ms)


def _distinct(columns: pl.DataFrame) -> tuple[npt.NDArray[np.int64], pl.DataFrame]:
    """Return, for every row, the number of its key, and the keys. A null in its key gives a row the number behind
    the last."""
    distinct = columns.drop_nulls().unique(maintain_order=True)
    numbered = distinct.with_columns(pl.int_range(distinct.height, dtype=pl.Int64).alias(_NUMBER))
    joined = columns.join(numbered, on=columns.columns, how="left", maintain_order="left")
    return joined[_NUMBER].fill_null(distinct.height).to_numpy(), distinct


def _keys(distinct: pl.DataFrame) -> Sequence[Key]:
    return distinct.rows() if distinct.width > 1 else distinct.to_series().to_list()


def _ranks(results: LookupResults) -> npt.NDArray[np.int64]:
    """Return when each key ended; rows without a key are there from the beginning."""
    ranks = np.full(len(results.by_key) + 1, -1, dtype=np.int64)
    ranks[results.ended] = np.arange(len(results.ended))
    return ranks
