"""Bounds and sizes that an app may set. Imports nothing, so that settings can be read before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a single record or cut may not exceed.

    ``max_future_ms``: an event time further ahead of the clock than this is rejected, so that one wrong timestamp
    cannot
    push the watermark past all other events. ``flush_rows``: rows that a stage-1 task holds before it packs them.
    """

    max_record_bytes: int = 256 * 1024
    max_future_ms: int = 5 * 60_000
    events_per_cut: int = 500_000
    flush_rows: int = 250_000


@dataclass(frozen=True, slots=True)
class StateSettings:
    """``buckets``: how many cuts it takes to write every row again, and the most log blobs that a load reads."""

    buckets: int = 64
