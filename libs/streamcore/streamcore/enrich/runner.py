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

from streamcore.enrich import loop
from streamcore.enrich.asking import Asking, Outcomes
from streamcore.enrich.fit import series
from streamcore.enrich.store import Failure
from streamcore.enrich.values import ATTEMPTS, REASON, Enrichment, Key, OnFailure, Order
from streamcore.errors import StreamError

_NUMBER = "__number"
_COUNTED = (
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
class Enriched:
    """Every row of the input in exactly one of two frames.

    ``rows``: with the added columns, null where nothing was found. ``failed``: with ``REASON`` and ``ATTEMPTS``; empty
    under ``OnFailure.NULL_COLUMNS``.
    """

    rows: pl.DataFrame
    failed: pl.DataFrame


def monotonic_ms() -> int:
    """Milliseconds that never go back."""
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
        self._asking: Asking | None = None
        self._closed, self._lock = False, threading.Lock()
        self._rows_failed = 0

    def run(self, frame: pl.DataFrame) -> Enriched:
        """Look every distinct key of the frame up once and add what was found.

        A row with a null in its key is not looked up: nothing is found for it. ``ConfigError`` when the frame's
        columns do not fit; nothing else that a client or a store does raises.
        """
        self.spec.check(frame.schema)
        codes, distinct = _distinct(frame.select(self.spec.key))
        keys = _keys(distinct)
        outcomes = self._look_up(keys, np.bincount(codes, minlength=len(keys) + 1)[:-1].tolist())
        return self._split(frame, codes, outcomes)

    def metrics(self) -> Mapping[str, int]:
        """What was counted since the last call.

        In keys: ``look_ups`` (asked of the store), ``hits`` (answered by the cache), ``not_found``, ``failures``. In
        calls: ``retries``, ``timeouts``, ``in_flight_peak``. In rows: ``rows_failed``, ``rows_in_flight_peak``. And
        ``cache_evicted``, and ``cached``: the entries now.
        """
        counts: Counter[str] = Counter() if self._asking is None else self._asking.counts
        result = {name: counts[name] for name in _COUNTED} | {"rows_failed": self._rows_failed}
        counts.clear()
        self._rows_failed = 0
        return result | {"cached": 0 if self._asking is None else len(self._asking.cache)}

    def close(self) -> None:
        """Cancel what is under way, close the client, give the event loop back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._loop is not None and self._asking is not None:
            self._loop.call(self._asking.close())
            loop.release()

    def _look_up(self, keys: Sequence[Key], rows: Sequence[int]) -> Outcomes:
        with self._lock:  # so that nothing begins behind a ``close``
            thread, asking = self._opened()
            found = thread.submit(asking.look_up(keys, rows))
        try:
            return found.result()
        except CancelledError:
            raise StreamError(f"enrichment {self.spec.name} was closed while it looked up") from None
        except BaseException:  # an interrupt from outside: leave nothing running behind
            thread.call(asking.cancel())
            raise

    def _opened(self) -> tuple[loop.LoopThread, Asking]:
        if self._closed:
            raise StreamError(f"enrichment {self.spec.name} is closed")
        if self._loop is None or self._asking is None:
            self._loop = loop.acquire()
            self._asking = self._loop.call(_make(self.spec, self._now_ms))
        return self._loop, self._asking

    def _split(self, frame: pl.DataFrame, codes: npt.NDArray[np.int64], outcomes: Outcomes) -> Enriched:
        """Put what was found beside the rows, in the order that was asked for."""
        failures = [outcome if isinstance(outcome, Failure) else None for outcome in outcomes.of]
        failed = np.array([f is not None for f in failures] + [False], dtype=bool)[codes]
        self._rows_failed += int(failed.sum())
        if self.spec.on_failure is OnFailure.NULL_COLUMNS:
            failed = np.zeros(len(codes), dtype=bool)
        order = np.arange(len(codes))
        if self.spec.order is Order.UNORDERED:
            order = np.argsort(_ranks(outcomes)[codes], kind="stable")
        rows, others = order[~failed[order]], order[failed[order]]
        why = [
            pl.Series(REASON, [f and f.reason for f in failures] + [None], dtype=pl.String),
            pl.Series(ATTEMPTS, [f and f.attempts for f in failures] + [None], dtype=pl.Int64),
        ]
        return Enriched(
            frame[rows].hstack([column.gather(codes[rows]) for column in self._added(outcomes)]),
            frame[others].hstack([column.gather(codes[others]) for column in why]),
        )

    def _added(self, outcomes: Outcomes) -> list[pl.Series]:
        """The new columns by key, and a null for rows without one."""
        found = [outcome if isinstance(outcome, tuple) else None for outcome in outcomes.of]
        return [
            series(name, [values and values[place] for values in found] + [None], dtype)
            for place, (name, dtype) in enumerate(self.spec.adds.items())
        ]


async def _make(spec: Enrichment, now_ms: Callable[[], int]) -> Asking:
    return Asking(spec, now_ms)


def _distinct(columns: pl.DataFrame) -> tuple[npt.NDArray[np.int64], pl.DataFrame]:
    """For every row the number of its key, and the keys. A null in its key gives a row the number behind the last."""
    distinct = columns.drop_nulls().unique(maintain_order=True)
    numbered = distinct.with_columns(pl.int_range(distinct.height, dtype=pl.Int64).alias(_NUMBER))
    joined = columns.join(numbered, on=columns.columns, how="left", maintain_order="left")
    return joined[_NUMBER].fill_null(distinct.height).to_numpy(), distinct


def _keys(distinct: pl.DataFrame) -> Sequence[Key]:
    return distinct.rows() if distinct.width > 1 else distinct.to_series().to_list()


def _ranks(outcomes: Outcomes) -> npt.NDArray[np.int64]:
    """When each key ended; rows without a key are there from the beginning."""
    ranks = np.full(len(outcomes.of) + 1, -1, dtype=np.int64)
    ranks[outcomes.ended] = np.arange(len(outcomes.ended))
    return ranks
