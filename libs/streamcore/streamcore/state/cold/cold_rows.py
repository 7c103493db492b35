"""The cold rows of one operator: its runs, from the oldest to the newest, and the keys recalled from them.

A key is written to a run whole, so the newest run that has the key has all of its rows, and a search ends there. When
runs of similar size have gathered they are merged into one (an LSM tree with size-tiered merges, O'Neil et al. 1996;
RocksDB: universal compaction). A merge runs block by block over several cuts, so that no cut pays for a large one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from streamcore.hashing import UInt64Array
from streamcore.state.cold.block import (
    Block,
    concat_tables,
    encode_block,
    get_version,
    slice_by_prefix,
    sort_rows,
    sorted_keys,
    unsorted_rows,
)
from streamcore.state.cold.blocks import ColdBlobs
from streamcore.state.cold.paged_state import (
    ColdTimes,
    Deadlines,
    Frames,
    PagedState,
    RecallsAll,
    gather,
    is_member,
    spread,
)
from streamcore.state.cold.recalled_keys import RecalledKeys
from streamcore.state.cold.run import BLOCK_BYTES, MAX_BITS, KeyFilter, Run, StoredBlock
from streamcore.state.table import HASH

#: How many runs of similar size are merged; fewer would write each row more often.
_MERGE_RUNS = 4
#: Runs above this number are merged whatever their sizes.
_MAX_RUNS = 12
#: How many rows a cut merges for each row that it evicts: more than a row is merged on average, so that merges end.
_MERGED_A_ROW = 8
_MIN_MERGED = 20_000
#: So many recalled keys are kept although they may have vanished from memory, besides twice the keys in memory.
_MIN_RECALLED = 256

#: Before all times: a run without rows has expired.
_NEVER = -(2**62)
_NO_KEYS = np.empty(0, np.uint64)


@dataclass(slots=True)
class Merge:
    """A merge in progress. ``sources``: numbers of adjacent runs. ``target``: the run that replaces them, with the
    blocks that are done."""

    sources: list[int]
    target: Run


class ColdRows:
    """The cold rows of one operator.

    ``recalled_rows``: the rows recalled in this cut. The state log stores them, because the cold ones do not count now.
    ``recalled_count``, ``evicted_count``: keys recalled and evicted since the metrics were last taken.
    """

    def __init__(self, operator: str, state: PagedState, blobs: ColdBlobs) -> None:
        self.operator = operator
        self.state = state
        self.blobs = blobs
        self.runs: list[Run] = []
        self.recalled = RecalledKeys()
        self.recalled_count = self.evicted_count = 0
        self.recalled_rows: list[Frames] = []
        self._merge: Merge | None = None
        self._next_number = 1
        if isinstance(state, RecallsAll):
            state.set_load_all(_weakly(self.recall_all))

    # --- reading ------------------------------------------------------------------------------------------------

    def recall(self, hashes: UInt64Array) -> None:
        """Load the cold rows of these keys into the operator."""
        if not self.runs or not hashes.size:
            return
        keys = np.unique(spread(hashes))
        keys = keys[~self.recalled.contains(gather(keys))]
        parts: list[Frames] = []
        for run in reversed(self.runs):
            if not keys.size:
                break
            found, frames = run.find(keys, self.blobs.read_filter(self.operator, run), self._read)
            parts += frames
            keys = keys[~found]
        by_version: dict[int, list[Frames]] = {}
        for part in filter(None, parts):
            by_version.setdefault(get_version(part), []).append(part)
        for _, same in sorted(by_version.items()):
            self._recall_rows(concat_tables(same))

    def recall_all(self) -> None:
        """Load the rows of all cold keys, a part of the keys at a time."""
        for rows in self.live_rows():
            self._recall_rows(rows)

    def _recall_rows(self, rows: dict[str, pl.DataFrame]) -> None:
        hashes = _distinct_hashes(rows)
        self.recalled.add(hashes)
        self.recalled_count += len(hashes)
        self.recalled_rows.append(rows)
        self.state.recall(rows)

    def recall_due(self, event_ms: int, clock_ms: int) -> None:
        """Load the keys with a deadline up to these times."""
        due = [*self._take_due(event_ms, clock=False), *self._take_due(clock_ms, clock=True)]
        if due:
            self.recall(np.concatenate(due))

    def _take_due(self, until_ms: int, *, clock: bool) -> Iterator[UInt64Array]:
        for run in self.runs:
            for index in run.due_blocks(until_ms, clock=clock):
                block = run.blocks[index]
                next_ms = block.next_ms(clock=clock)
                assert next_ms is not None, "a due block has a deadline"
                hashes, later_ms = self._read(run, index).due(clock=clock, after_ms=next_ms - 1, until_ms=until_ms)
                if clock:
                    block.clock_ms = later_ms
                else:
                    block.event_ms = later_ms
                yield hashes

    def _read(self, run: Run, index: int) -> Block:
        return self.blobs.read(self.operator, run, index)

    def live_rows(self) -> Iterator[dict[str, pl.DataFrame]]:
        """Yield all cold rows by table, a part of the keys at a time; rows of a part have one version."""
        bits = max((run.bits for run in self.runs), default=0)
        for prefix in range(1 << bits if self.runs else 0):
            seen = _NO_KEYS
            for version in sorted({run.version for run in self.runs}, reverse=True):
                same = [run for run in self.runs if run.version == version]
                frames, gone = self._merged_rows(same, bits, prefix, seen)
                seen = np.concatenate([seen, gone, _all_keys(frames)])
                if frames:
                    yield {name: unsorted_rows(rows) for name, rows in frames.items()}

    # --- writing ------------------------------------------------------------------------------------------------

    def evict(self, share: float) -> UInt64Array:
        """Write this share of the keys in memory to a new run. Return their hashes."""
        frames = {name: rows for name, rows in self.state.evict(share).items() if rows.height}
        if not frames:
            return _NO_KEYS
        hashes = _distinct_hashes(frames)
        self.recalled.remove(hashes[self.recalled.contains(hashes)])
        self.add_run(frames, self._take_gone())
        self.evicted_count += len(hashes)
        return hashes

    def _take_gone(self) -> UInt64Array:
        """Return the recalled keys that are not in memory any more, if there may be many, and stop recording them."""
        if len(self.recalled) < _MIN_RECALLED:
            return _NO_KEYS
        in_memory = self.state.hashes()
        if len(self.recalled) <= 2 * len(in_memory) + _MIN_RECALLED:
            return _NO_KEYS
        recalled = self.recalled.all()
        gone = recalled[~is_member(recalled, in_memory)]
        self.recalled.remove(gone)
        return gone

    def add_run(self, frames: Frames, gone: UInt64Array = _NO_KEYS) -> None:
        """Write the rows of keys that have no newer rows as the newest run. ``gone``: keys that have no rows now."""
        ordered = {name: sort_rows(rows) for name, rows in frames.items()}
        keys = np.unique(np.concatenate([*map(sorted_keys, ordered.values()), spread(gone)]))
        size = sum(rows.estimated_size() for rows in ordered.values())
        bits, key_filter = _bits_for(int(size)), KeyFilter.for_keys(len(keys))
        target = Run(self._take_number(), bits, 0, 0, _NEVER, "", [], get_version(frames), key_filter)
        writer = _RunWriter(self.operator, self.state, self.blobs, target)
        pieces = {name: (rows, slice_by_prefix(sorted_keys(rows), writer.run.bits)) for name, rows in ordered.items()}
        gone = np.sort(spread(gone))
        gone_pieces = slice_by_prefix(gone, writer.run.bits)
        for prefix in range(1 << writer.run.bits):
            part = {name: rows[slice(*edges[prefix])] for name, (rows, edges) in pieces.items()}
            writer.add(part, gone[slice(*gone_pieces[prefix])])
        self.runs.append(writer.finish())

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    # --- merging ------------------------------------------------------------------------------------------------

    def compact(self, evicted_rows: int) -> list[Run]:
        """Drop expired runs, and merge for as long as the evicted rows allow. Return the runs that are not used any
        more; their blobs may be removed after the head was written."""
        dropped: list[Run] = []
        while self.runs and self._merge is None and self._is_expired(self.runs[0]):
            dropped.append(self.runs.pop(0))
        budget = _MERGED_A_ROW * evicted_rows + _MIN_MERGED if evicted_rows else 0
        while budget > 0 or len(self.runs) > 2 * _MAX_RUNS:
            if self._merge is None:
                self._merge = self._plan_merge()
            if self._merge is None:
                break
            budget -= self._merge_block(self._merge)
            if len(self._merge.target.blocks) == 1 << self._merge.target.bits:
                dropped += self._finish_merge(self._merge)
        return dropped

    def _is_expired(self, run: Run) -> bool:
        return run.newest_ms is not None and self.state.is_expired(run.newest_ms)

    def _plan_merge(self) -> Merge | None:
        """Return a merge of the newest runs that are similar, or of all newer ones if there are too many runs."""
        count, rows = 0, 0
        for run in reversed(self.runs):
            is_similar = run.rows <= 2 * rows or len(self.runs) > _MAX_RUNS
            if count and not (is_similar and run.version == self.runs[-1].version):
                break
            count, rows = count + 1, rows + run.rows
        if count < _MERGE_RUNS:
            return None
        sources = self.runs[len(self.runs) - count :]
        bits = _bits_for(sum(run.size for run in sources))
        filtered = KeyFilter.for_keys(sum(run.keys for run in sources))
        target = Run(self._take_number(), bits, 0, 0, _NEVER, "", [], sources[0].version, filtered)
        return Merge([run.number for run in sources], target)

    def _merge_block(self, merge: Merge) -> int:
        """Merge the next block. Return how many rows were read."""
        sources = [run for run in self.runs if run.number in merge.sources]
        oldest = sources[0] is self.runs[0]
        writer = self._resume(merge.target)
        frames, gone = self._merged_rows(sources, writer.run.bits, len(writer.run.blocks))
        read = sum(rows.height for rows in frames.values())
        kept = self._without_expired(frames)
        if not oldest:  # an older run may have rows of a key whose last row expired, too
            before, after = _all_keys(frames), _all_keys(kept)
            gone = np.sort(np.concatenate([gone, before[~is_member(before, after)]]))
        else:
            gone = _NO_KEYS
        writer.add(kept, gone)
        return max(read, 1)

    def _without_expired(self, frames: Frames) -> dict[str, pl.DataFrame]:
        kept = self.state.without_expired({name: unsorted_rows(rows) for name, rows in frames.items()})
        return {name: sort_rows(rows) for name, rows in kept.items() if rows.height}

    def _merged_rows(
        self, runs: list[Run], bits: int, prefix: int, seen: UInt64Array = _NO_KEYS
    ) -> tuple[dict[str, pl.DataFrame], UInt64Array]:
        """Return the newest rows in some runs of the keys with a prefix, sorted, without recalled keys; and the keys
        without rows. ``seen``: keys that newer runs have."""
        width = 64 - bits
        first, end = prefix << width, (prefix + 1) << width
        parts, gone_parts = [], []
        for run in reversed(runs):
            frames, gone = self._rows_between(run, first, end)
            frames = {n: rows.filter(pl.Series(~is_member(sorted_keys(rows), seen))) for n, rows in frames.items()}
            gone = gone[~is_member(gone, seen)]
            seen = np.concatenate([seen, gone, *(np.unique(sorted_keys(rows)) for rows in frames.values())])
            parts.append(frames)
            gone_parts.append(gone)
        merged = {}
        for name, rows in concat_tables(parts).items():
            keys = sorted_keys(rows)
            hidden = self.recalled.contains(gather(keys))
            order = np.argsort(keys, kind="stable")
            kept = order[~hidden[order]]
            if len(kept):
                merged[name] = rows[kept]
        return merged, np.sort(np.concatenate([_NO_KEYS, *gone_parts]))

    def _rows_between(self, run: Run, first: int, end: int) -> tuple[dict[str, pl.DataFrame], UInt64Array]:
        """Return the rows of a run with spread hashes from ``first`` to before ``end``, and the keys without rows."""
        shift = 64 - run.bits
        parts, gone = [], [_NO_KEYS]
        for index in range(first >> shift, ((end - 1) >> shift) + 1):
            if run.blocks[index].digest:
                block = self._read(run, index)
                parts.append(block.rows(first, end))
                gone.append(block.gone(first, end))
        return concat_tables(parts), np.concatenate(gone)

    def _resume(self, target: Run) -> _RunWriter:
        """Return a writer of the next block. A process that did not write the earlier blocks reads their keys again."""
        if target.key_filter is None:
            sources = [run for run in self.runs if self._merge and run.number in self._merge.sources]
            target.key_filter = KeyFilter.for_keys(sum(run.keys for run in sources))
            for index, block in enumerate(target.blocks):
                if block.digest:
                    stored = self._read(target, index)
                    target.key_filter.add(_all_keys(stored.rows(0, 1 << 64)))
                    target.key_filter.add(stored.gone(0, 1 << 64))
        return _RunWriter(self.operator, self.state, self.blobs, target)

    def _finish_merge(self, merge: Merge) -> list[Run]:
        """Replace the merged runs by the new one. Return them."""
        run = self._resume(merge.target).finish()
        first = next(n for n, one in enumerate(self.runs) if one.number in merge.sources)
        sources = self.runs[first : first + len(merge.sources)]
        self.runs[first : first + len(sources)] = [run] if run.keys else []
        self._merge = None
        return sources if run.keys else [*sources, run]

    # --- the head -----------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """Return the entries that the head of the state log has of them."""
        merge = self._merge and [self._merge.sources, self._merge.target.to_json()]
        return {
            "runs": [run.to_json() for run in self.runs],
            "merge": merge,
            "next": self._next_number,
            "summary": self.state.cold_summary(),
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what a head stores. A merge in progress goes on with its next block."""
        known = {run.number: run for run in self.runs}
        self.runs = [Run.from_json(one) for one in stored["runs"]]
        for run in self.runs:
            same = known.get(run.number)
            if same is not None and same.filter_digest == run.filter_digest:
                run.key_filter = same.key_filter
        self._merge = None
        if stored["merge"] is not None:
            sources, target = stored["merge"]
            self._merge = Merge(sources, Run.from_json(target))
        self._next_number = stored["next"]
        self.recalled_rows = []
        self.state.restore_summary(stored["summary"])

    @property
    def is_used(self) -> bool:
        """Whether a key was ever evicted."""
        return self._next_number > 1

    def digests(self) -> Iterator[str]:
        """Yield the digests of all blocks in use."""
        runs = [*self.runs, *([self._merge.target] if self._merge else [])]
        return (block.digest for run in runs for block in run.blocks if block.digest)


class _RunWriter:
    """Writes the blocks of a run, one prefix after the other."""

    def __init__(self, operator: str, state: PagedState, blobs: ColdBlobs, run: Run) -> None:
        self.run = run
        self._operator = operator
        self._state = state
        self._blobs = blobs

    def add(self, frames: Frames, gone: UInt64Array) -> None:
        """Write the next block: sorted rows by table, and sorted keys without rows."""
        run, keys = self.run, _all_keys(frames)
        frames = {name: rows for name, rows in frames.items() if rows.height}
        if not frames and not len(gone):
            run.blocks.append(StoredBlock())
            return
        rows_by_table = {name: unsorted_rows(rows) for name, rows in frames.items()}
        times = self._state.times(rows_by_table) if frames else ColdTimes()
        content = encode_block(frames, times.event, times.clock, gone)
        digest = self._blobs.write(self._operator, run.number, len(run.blocks), content)
        run.blocks.append(StoredBlock(digest, len(content), _first_ms(times.event), _first_ms(times.clock)))
        run.rows += sum(rows.height for rows in frames.values())
        run.keys += len(keys) + len(gone)
        run.newest_ms = _latest(run.newest_ms, times.newest_ms if frames else _NEVER)
        assert run.key_filter is not None, "a run that is written has a filter"
        run.key_filter.add(keys)
        run.key_filter.add(gone)

    def finish(self) -> Run:
        """Write the filter, and return the run."""
        assert self.run.key_filter is not None, "a run that is written has a filter"
        self.run.filter_digest = self._blobs.write_filter(self._operator, self.run.number, self.run.key_filter)
        return self.run


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Return the method without a reference to its object, which has one to whom gets the method."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        assert bound is not None, "cold rows live as long as their operator is used"
        bound()

    return call


def _bits_for(size: int) -> int:
    """Return the number of prefix bits for a run of so many bytes."""
    return min(MAX_BITS, max(0, (max(size, 1) - 1) // BLOCK_BYTES).bit_length())


def _latest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _first_ms(deadlines: Deadlines) -> int | None:
    return int(deadlines.times.min()) if len(deadlines.times) else None


def _all_keys(frames: Frames) -> UInt64Array:
    """Return the distinct keys (spread hashes) of sorted rows, ascending."""
    keys = np.concatenate([_NO_KEYS, *map(sorted_keys, frames.values())])
    return keys[np.diff(keys, prepend=~keys[:1]) != 0] if len(frames) == 1 else np.unique(keys)


def _distinct_hashes(frames: Frames) -> UInt64Array:
    return np.unique(np.concatenate([rows[HASH].to_numpy() for rows in frames.values()]))
