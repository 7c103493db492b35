"""A sorted run of cold rows: immutable blocks, the description of each in the head of the state log, and a filter.

A run has ``2**bits`` blocks, one for each prefix of the spread hash, so that the block of a key follows from the key.
The filter is a bitmap with 8 to 16 bits for each key, at the place of the first bits of its spread hash (a Bloom filter
with one hash function; Bloom 1970): a key that is not in the run passes with a probability of 6 to 12 %. Sorted keys
visit it in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamcore.hashing import UInt64Array
from streamcore.state.cold.block import Block, slice_by_prefix
from streamcore.state.cold.paged_state import Frames

#: Bits of the filter for each key, at least.
FILTER_BITS = 8
#: The size of a block that a run aims at, in bytes.
BLOCK_BYTES = 4 * 1024 * 1024
MAX_BITS = 16

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class StoredBlock:
    """A block as the head describes it.

    ``digest``: of its content; empty if the block has no rows. ``event_ms``, ``clock_ms``: its next deadline of each
    domain, of which no key has been recalled yet; None without any.
    """

    digest: str = ""
    size: int = 0
    event_ms: int | None = None
    clock_ms: int | None = None

    def next_ms(self, *, clock: bool) -> int | None:
        """Return the next deadline of that domain."""
        return self.clock_ms if clock else self.event_ms


class KeyFilter:
    """A bitmap that says of most absent keys that they are absent."""

    def __init__(self, bits: int, bitmap: npt.NDArray[np.uint8]) -> None:
        self._shift = np.uint64(64 - bits)
        self.bits = bits
        self.bitmap = bitmap

    @classmethod
    def for_keys(cls, count: int) -> KeyFilter:
        """Return an empty filter for so many keys."""
        bits = max(6, (FILTER_BITS * max(count, 1) - 1).bit_length())
        return cls(bits, np.zeros(1 << (bits - 3), dtype=np.uint8))

    @classmethod
    def from_bytes(cls, blob: bytes) -> KeyFilter:
        """Return a stored filter."""
        return cls(3 + (len(blob) - 1).bit_length(), np.frombuffer(blob, np.uint8))

    def add(self, keys: UInt64Array) -> None:
        """Add keys (spread hashes)."""
        places = keys >> self._shift
        np.bitwise_or.at(self.bitmap, (places >> np.uint64(3)).view(np.int64), _bit(places))

    def may_have(self, keys: UInt64Array) -> Mask:
        """Return a mask of the keys that the run may have."""
        places = keys >> self._shift
        mask: Mask = (self.bitmap[(places >> np.uint64(3)).view(np.int64)] & _bit(places)) != 0
        return mask


def _bit(places: UInt64Array) -> npt.NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))


@dataclass(slots=True)
class Run:
    """A run.

    ``number``: its name among the runs of its operator. ``version``: of its rows; runs of different versions are not
    merged, because columns of one name can have two types. ``newest_ms``: of ``ColdTimes``. ``filter_digest``: of the
    filter's blob. ``key_filter``: None until it is read.
    """

    number: int
    bits: int
    keys: int
    rows: int
    newest_ms: int | None
    filter_digest: str
    blocks: list[StoredBlock]
    version: int = 0
    key_filter: KeyFilter | None = field(default=None, compare=False)

    def to_json(self) -> list[object]:
        """Return the run as the head stores it."""
        blocks = [[b.digest, b.size, b.event_ms, b.clock_ms] for b in self.blocks]
        return [self.number, self.bits, self.keys, self.rows, self.newest_ms, self.filter_digest, blocks, self.version]

    @classmethod
    def from_json(cls, stored: Sequence[object]) -> Run:
        """Return a stored run."""
        number, bits, keys, rows, newest_ms, digest, blocks, version = stored
        return cls(number, bits, keys, rows, newest_ms, digest, [StoredBlock(*b) for b in blocks], version)  # type: ignore[arg-type, attr-defined]  # as to_json wrote it

    @property
    def size(self) -> int:
        """The bytes of all blocks."""
        return sum(block.size for block in self.blocks)

    def find(
        self, keys: UInt64Array, key_filter: KeyFilter, read: Callable[[Run, int], Block]
    ) -> tuple[Mask, list[Frames]]:
        """Return which of these keys (sorted spread hashes) the run has, and their rows. ``read``: reads a block."""
        found = np.zeros(len(keys), dtype=bool)
        possible = np.flatnonzero(key_filter.may_have(keys))
        parts: list[Frames] = []
        for index, (start, end) in enumerate(slice_by_prefix(keys[possible], self.bits)):
            if end > start and self.blocks[index].digest:
                places = possible[start:end]
                found[places], frames = read(self, index).find(keys[places])
                parts.append(frames)
        return found, parts

    def due_blocks(self, until_ms: int, *, clock: bool) -> Iterator[int]:
        """Yield the indexes of the blocks with a deadline up to that time."""
        for index, block in enumerate(self.blocks):
            next_ms = block.next_ms(clock=clock)
            if next_ms is not None and next_ms <= until_ms:
                yield index
