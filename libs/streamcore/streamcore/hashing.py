"""The hash of keys, which decides the key group of a key. It must never change between versions.

Neither Python's ``hash`` (salted) nor a data-frame library's (free to change) may be used for that: an upgrade would
send a key to a shard without its state. The words of a key (eight bytes of a string's UTF-8 at a time, the
number itself otherwise) are folded by the 64-bit mixer of SplitMix64 (Steele, Lea, Flood: "Fast splittable
pseudorandom number generators", 2014), and so are several columns, left to right. It places keys and keeps no secret:
a client that chooses its keys can choose their shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.wire.map_entries import KEY

UInt64Array = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x2545F4914F6CDD1D)
_SECOND_SEED = np.uint64(0xD1342543DE82EF95)
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_CONTENT_FACTOR, _CONTENT_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_WORD_BYTES = 8
_BYTE = 256  # values of a byte
#: Longer strings cost a digest each instead of a pass over the column for every word of the longest.
_LONG_BYTES = 64
#: The same for the contents of rows, whose long strings differ in each row.
_LONG_CONTENT_BYTES = 1024
#: For each number of bytes that are left, the bits of a word that belong to the string.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], dtype=np.uint64)


def mix(values: UInt64Array) -> UInt64Array:
    """Apply SplitMix64's finaliser to each element."""
    with np.errstate(over="ignore"):
        z = values + _NULL
        for shift, factor in _ROUNDS:
            z ^= z >> shift
            z *= factor
        z ^= z >> _LAST_SHIFT
    return z


def hash_columns(columns: Sequence[pl.Series], height: int) -> UInt64Array:
    """Return a 64-bit hash of each row. Nulls are equal; without columns (the empty key) all rows have one hash."""
    (result,) = _fold(columns, height, (_SEED,))
    return result


def fingerprint_columns(columns: Sequence[pl.Series], height: int) -> tuple[UInt64Array, UInt64Array]:
    """Return ``hash_columns`` and a second hash with another seed: 128 bits, to distinguish keys without storing them.

    A single column of integers or times has no collisions, because the mixer is a bijection, except that null has the
    hash of one certain number.
    """
    one, other = _fold(columns, height, (_SEED, _SECOND_SEED))
    return one, other


def hash_contents(columns: Sequence[pl.Series | pa.Array], height: int) -> UInt64Array:
    """Return a 64-bit hash of each row's values, to compare rows with: it costs less than ``hash_columns``, and places
    no keys. It never changes either, since it is stored.

    In nested values as in others, zeros are equal, and so are NaNs, which differ from infinities and nulls. A map is
    equal to one with the same entries in another order, an array is not.
    """
    state = np.full(height, _SEED, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            for rows, word in _column_words(column):
                if isinstance(rows, slice):
                    _absorb(state, word)
                else:
                    part = state[rows]
                    _absorb(part, word)
                    state[rows] = part
    return mix(state)


def _absorb(state: UInt64Array, word: UInt64Array) -> None:
    """Fold a word into each element, in place. Each step is a bijection: one word that differs is never lost."""
    state ^= word
    state *= _CONTENT_FACTOR
    state ^= state >> _CONTENT_SHIFT


def _column_words(column: pl.Series | pa.Array) -> Iterator[tuple[slice | npt.NDArray[np.int64], UInt64Array]]:
    """Yield the words of a column, with the rows that have them; together they determine the values."""
    if isinstance(column, pl.Series) and column.dtype.is_nested():
        column = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    if isinstance(column, pa.Array) and pa.types.is_nested(column.type):
        yield from _nested_words(column)
        return
    if isinstance(column, pa.Array) and pa.types.is_large_string(column.type):
        if column.null_count:
            yield _null_words(column.is_null().to_numpy(zero_copy_only=False))
            column = column.fill_null("")
        yield from _text_words(column.view(pa.large_binary()))
        return
    column = column if isinstance(column, pl.Series) else pl.Series(column)
    if column.null_count():
        yield _null_words(column.is_null().to_numpy())
    if column.dtype.is_float():
        floats = column.cast(pl.Float64).fill_null(0).to_numpy() + 0.0  # -0.0 equals 0.0
        yield slice(None), np.where(np.isnan(floats), np.nan, floats).view(np.uint64)
        return
    if column.dtype != pl.String:
        yield slice(None), column.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
        return
    yield from _text_words(_as_binary(column.fill_null("")))


def _nested_words(column: pa.Array) -> Iterator[tuple[slice | npt.NDArray[np.int64], UInt64Array]]:
    """Yield the words of arrays, maps or structs."""
    if column.null_count:
        yield _null_words(column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_struct(column.type):
        for member in column.flatten():
            yield from _column_words(member)
        return
    lengths = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    items = column.flatten()
    is_map = pa.types.is_struct(items.type) and items.type.num_fields > 0 and items.type.field(0).name == KEY
    yield slice(None), _add_items(hash_contents([items], len(items)), lengths, in_order=not is_map)
    yield slice(None), lengths.view(np.uint64)


def _add_items(hashes: UInt64Array, lengths: npt.NDArray[np.int64], *, in_order: bool) -> UInt64Array:
    """Return for each row the sum of its items' hashes. ``in_order``: an item counts with its position."""
    starts = np.cumsum(lengths) - lengths
    with np.errstate(over="ignore"):
        if in_order:
            position = (np.arange(len(hashes)) - np.repeat(starts, lengths)).view(np.uint64)
            hashes = mix(hashes + position * _CONTENT_FACTOR)
        sums = np.zeros(len(lengths), dtype=np.uint64)
        if (filled := np.flatnonzero(lengths)).size:
            sums[filled] = np.add.reduceat(hashes, starts[filled])
    return sums


def _null_words(is_null: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], UInt64Array]:
    """Return the rows with a null and a word for each; other rows have none, so no hash depends on the rows beside."""
    rows = np.flatnonzero(is_null)
    return rows, np.full(len(rows), _NULL)


def _text_words(text: pa.Array) -> Iterator[tuple[slice | npt.NDArray[np.int64], UInt64Array]]:
    words, starts, lengths = _text_parts(text)
    yield from _word_by_word(words, starts, lengths, _LONG_CONTENT_BYTES)
    if (long := np.flatnonzero(lengths > _LONG_CONTENT_BYTES)).size:
        yield long, np.array([_digest(text[row].as_py(), _SEED) for row in long.tolist()], np.uint64)
    yield slice(None), lengths.astype(np.uint64)


def bucket_for(hashes: UInt64Array, buckets: int) -> npt.NDArray[np.int32]:
    """Return the bucket of a shard's state that holds each hash: its lower half modulo the number of buckets."""
    if buckets & (buckets - 1) == 0:  # the same, at a tenth of the time
        return (hashes & np.uint64(buckets - 1)).astype(np.int32)
    return ((hashes & np.uint64(0xFFFFFFFF)) % np.uint64(buckets)).astype(np.int32)


def rows_in_bucket(hashes: UInt64Array, bucket: int, buckets: int) -> npt.NDArray[np.int64]:
    """Return the indexes of the hashes that ``bucket_for`` puts into this bucket, in order."""
    if buckets & (buckets - 1) == 0 and buckets <= _BYTE and hashes.flags.c_contiguous:
        lowest = hashes.astype("<u8", copy=False).view(np.uint8)[::8]  # a cut scans all hashes: an eighth of the bytes
        return np.flatnonzero((lowest & np.uint8(buckets - 1)) == bucket)
    return np.flatnonzero(bucket_for(hashes, buckets) == bucket)


def _fold(columns: Sequence[pl.Series], height: int, seeds: Sequence[np.uint64]) -> list[UInt64Array]:
    """Return a hash of each row for each seed."""
    results = [np.full(height, seed, dtype=np.uint64) for seed in seeds]
    for column in columns:
        results = [mix(r ^ h) for r, h in zip(results, _hash_column(column, seeds), strict=True)]
    return results


def _hash_column(column: pl.Series, seeds: Sequence[np.uint64]) -> list[UInt64Array]:
    if not column.null_count():  # the usual case; in small cuts the number of calls dominates the cost
        return _hash_values(column, seeds)
    valid = column.is_not_null().to_numpy()
    values = column if column.dtype in (pl.String, pl.Float32, pl.Float64) else column.cast(pl.Int64)
    filled = values.fill_null("" if column.dtype == pl.String else 0)
    return [np.where(valid, hashed, _NULL) for hashed in _hash_values(filled, seeds)]


def _hash_values(column: pl.Series, seeds: Sequence[np.uint64]) -> list[UInt64Array]:
    """Return the hashes of a column without nulls, for each seed."""
    if column.dtype == pl.String:
        return _hash_strings(column, seeds)
    if column.dtype.is_float():
        raw = column.to_numpy() + 0.0  # -0.0 equals 0.0, so both hash alike
        return [mix(raw.astype(np.float64).view(np.uint64))] * len(seeds)
    return [mix(column.cast(pl.Int64).to_numpy().view(np.uint64))] * len(seeds)


def _hash_strings(column: pl.Series, seeds: Sequence[np.uint64]) -> list[UInt64Array]:
    """Fold the words of each string, then its length in bytes. A long string counts as its BLAKE2b digest."""
    text = _as_binary(column)
    words, starts, lengths = _text_parts(text)
    hashes = [np.full(len(text), seed, dtype=np.uint64) for seed in seeds]
    for rows, word in _word_by_word(words, starts, lengths, _LONG_BYTES):
        for hashed in hashes:
            hashed[rows] = mix(hashed[rows] ^ word)
    for row in np.flatnonzero(lengths > _LONG_BYTES).tolist():
        for hashed, seed in zip(hashes, seeds, strict=True):
            hashed[row] = _digest(text[row].as_py(), seed)
    return [mix(hashed ^ lengths.astype(np.uint64)) for hashed in hashes]


def _as_binary(column: pl.Series) -> pa.Array:
    return column.to_arrow(compat_level=pl.CompatLevel.oldest()).view(pa.large_binary())  # a cast loads all of Arrow


def _text_parts(text: pa.Array) -> tuple[UInt64Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the eight bytes from each byte on, and start and length of each string."""
    _, offsets, data = text.buffers()
    edges = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return _words(b"" if data is None else data), edges[:-1], np.diff(edges)


def _word_by_word(
    words: UInt64Array, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], limit: int
) -> Iterator[tuple[slice | npt.NDArray[np.int64], UInt64Array]]:
    """Yield, for n = 0, 1 and so on up to ``limit`` bytes, the rows whose string has an n-th word, and these words."""
    if lengths.size and lengths[0] == lengths.min() == lengths.max():  # ids mostly are: no gathering, half the time
        size = int(lengths[0])
        for at in range(0, min(size, limit), _WORD_BYTES):
            yield slice(None), words[starts[0] + at : starts[-1] + at + 1 : size] & _MASKS[min(size - at, _WORD_BYTES)]
        return
    rows = np.flatnonzero(lengths > 0)
    at = 0
    while rows.size and at < limit:
        left = lengths[rows] - at
        yield rows, words[starts[rows] + at] & _MASKS[np.minimum(left, _WORD_BYTES)]
        rows, at = rows[left > _WORD_BYTES], at + _WORD_BYTES


def _digest(text: bytes, seed: np.uint64) -> np.uint64:
    key = b"" if seed == _SEED else seed.tobytes()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=_WORD_BYTES, key=key).digest(), "little"))


def _words(data: bytes | pa.Buffer) -> UInt64Array:
    """Return the eight bytes from each position on as a little-endian number; bytes after the end are zero."""
    padded = np.zeros(len(data) + _WORD_BYTES, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    return np.ndarray((len(data) + 1,), "<u8", padded.data, strides=(1,))
