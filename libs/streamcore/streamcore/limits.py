"""Bounds and sizes that an app may set. Imports nothing, so that settings can be read before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

#: The highest limit of ids of a deduplication in a shard: its index holds entry numbers of 32 bits.
MAX_EVENT_IDS = 2**30
#: The default of ``Limits.max_record_values``: no record of 256 KB exceeds it that has text for each of the values.
MAX_RECORD_VALUES = 128 * 1024
#: The default of ``Limits.max_batch_values``: about 150 MB while they are decoded.
MAX_BATCH_VALUES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a single record or cut may not exceed."""

    #: Most bytes of a record; larger ones are rejected.
    max_record_bytes: int = 256 * 1024
    #: Milliseconds by which an event time may be ahead of the clock. A later one is rejected, so that one wrong
    #: timestamp cannot push the watermark past all other events.
    max_future_ms: int = 5 * 60_000
    #: Most events of a cut.
    events_per_cut: int = 500_000
    #: Most control records of a cut, except the first cut of an epoch, which takes all.
    control_records_per_cut: int = 1_000
    #: Most rows that a stage-1 task holds before it packs them.
    flush_rows: int = 250_000
    #: Most ids that a shard remembers of a stream with ``deduplicate``; beyond it the oldest are forgotten.
    max_event_ids: int = 10_000_000
    #: Most values in the arrays and maps of a record; one with more is rejected. An element that is a struct also
    #: counts as each of its declared members, there or not: each takes memory.
    max_record_values: int = MAX_RECORD_VALUES
    #: Most values in the arrays and maps of the records that a task decodes and holds at once, counted likewise;
    #: records with more together are decoded and packed in parts.
    max_batch_values: int = MAX_BATCH_VALUES
    #: Milliseconds after which a cut begins without input: the clock advances, and partitions become idle.
    empty_cut_interval_ms: int = 1_000
    #: The earliest plausible event time in epoch milliseconds. None: only numbers of a wrong unit are implausible.
    min_event_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Settings of the state of an app."""

    #: Number of cuts in which every row is written again; also the most log blobs that a load reads.
    buckets: int = 64
    #: About how many bytes of memory the keyed tables of a worker's shards may take; the keys least recently used
    #: beyond it are kept on the local disk. None: all keys are in memory.
    memory_bytes: int | None = None
    #: Folder for the files of cold keys; None: Spark's folder for temporary files, or the system's.
    local_dir: str | None = None


@dataclass(frozen=True, slots=True)
class PatternLimits:
    """Bounds of the state of a pattern, in one shard. What exceeds one is dropped and counted."""

    #: Most partial matches of a key; of more, those that began first are dropped.
    partials_per_key: int = 1_000
    #: Most partial matches of all keys when a cut begins; beyond it no new ones begin.
    partials: int = 5_000_000
    #: Most events of a match; a longer partial match is dropped.
    length: int = 10_000
    #: Most events of a key that wait for the watermark; of new ones the latest are dropped.
    waiting_per_key: int = 10_000
    #: Most events of all keys that wait for the watermark; of new ones the latest are dropped.
    waiting: int = 5_000_000
