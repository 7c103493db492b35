"""A hash of keys that never changes: it decides which shard owns a key, in this version and in every later one.

Neither Python's ``hash`` (salted) nor a data-frame library's (free to change) may be used for that: an upgrade would
send a key to a shard that does not hold its state. Strings go through CRC-32 of their UTF-8 bytes, everything is
finished with the 64-bit mixer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
2014), and several columns are folded left to right.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

UInt64Array = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x2545F4914F6CDD1D)


def mix(values: UInt64Array) -> UInt64Array:
    """SplitMix64's finaliser, element by element."""
    with np.errstate(over="ignore"):
        z = values + _NULL
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def hash_columns(columns: Sequence[pl.Series], height: int) -> UInt64Array:
    """One 64-bit hash a row; no columns (the empty key) hash every row alike. Null equals null."""
    result = np.full(height, _SEED, dtype=np.uint64)
    for column in columns:
        result = mix(result ^ _hash_column(column))
    return result


def shard_of(hashes: UInt64Array, shards: int) -> npt.NDArray[np.int32]:
    """The owning shard of each hash: its upper half modulo the number of shards."""
    return ((hashes >> np.uint64(32)) % np.uint64(shards)).astype(np.int32)


def bucket_of(hashes: UInt64Array, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of a shard's state that holds each hash: its lower half modulo the number of buckets."""
    return ((hashes & np.uint64(0xFFFFFFFF)) % np.uint64(buckets)).astype(np.int32)


def _hash_column(column: pl.Series) -> UInt64Array:
    valid = column.is_not_null().to_numpy()
    if column.dtype == pl.String:
        hashed = _hash_strings(column)
    elif column.dtype.is_float():
        raw = column.fill_null(0.0).to_numpy() + 0.0  # -0.0 equals 0.0, so both hash alike
        hashed = mix(raw.astype(np.float64).view(np.uint64))
    else:
        hashed = mix(column.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64))
    return np.where(valid, hashed, _NULL)


def _hash_strings(column: pl.Series) -> UInt64Array:
    """Distinct values are hashed once: keys repeat, and CRC-32 is a call a value."""
    encoded = column.fill_null("").to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    words = encoded.dictionary.to_pylist()
    crcs = np.fromiter((zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in words), np.uint64, len(words))
    lengths = np.fromiter(map(len, words), np.uint64, len(words))
    hashed: UInt64Array = mix(crcs | (lengths << np.uint64(32)))[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashed
