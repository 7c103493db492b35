"""The operator that removes repeated rows.

A row is a *duplicate* if a row with its id has arrived and passed before it, and their event times are at most
``horizon_ms`` apart. Only the order of arrival decides which of two copies passes; in disordered input that may be the
row with the later event time. The operator does not remember duplicates. So an id that arrives again and again passes
once more when its event time is further than the horizon from the row that passed. A null equals nothing, as in SQL's
UNIQUE: a row with a null in its id passes and is counted.

The operator remembers ids from event time ``watermark - horizon_ms`` on, with the watermark before the cut. A row with
an earlier event time is late: the operator may have forgotten the row that it repeats, and passing it could let one
event through twice. The row goes to port ``LATE`` with the reason.

Consequences:

- Every row leaves once: on ``MAIN``, on ``LATE``, or as a duplicate.
- Of copies with one event time (an event that was sent twice) at most one passes, however the stream is divided into
  cuts.
- If no row is behind the watermark, the division into cuts does not change which rows pass.
- A row behind the watermark may pass although it repeats a row with *another*, earlier event time, because that row may
  be forgotten already.
- The operator compares fingerprints of 128 bits; see ``seen_ids`` for the probability that two ids share one.

The topology must route rows by the id columns, all of them and in their order, because the state is stored by the
hash of these columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from streamcore.arguments import check_whole
from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.hashing import UInt64Array, fingerprint_columns, hash_contents
from streamcore.limits import MAX_EVENT_IDS
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.deduplication.paging import PagedIds
from streamcore.operators.deduplication.seen_ids import CONTENT, NESTED_CONTENT, NO_ENTRY, IdHashes, Mask, SeenIds
from streamcore.operators.deduplication.within_cut import NO_ROW, repeated_within_cut
from streamcore.schema import EVENT_MS
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.scope import merged
from streamcore.state.table import StateTable

#: The port of rows that repeat one that passed.
DUPLICATES = "duplicates"

MAX_HORIZON_MS = 10 * 365 * 24 * 3600 * 1000
_EXPIRED = "the id may be forgotten: older than the watermark less the horizon"
_EVICTED = "the id may be forgotten: older than the limit of ids lets it be remembered"
_FLOOR = "floor_ms"


class Duplicates(StrEnum):
    """What happens to duplicates. PORT: they are emitted on port ``duplicates``. COUNT: they are only counted."""

    PORT = "port"
    COUNT = "count"


class WhenFull(StrEnum):
    """What happens at the limit of ids.

    PASS: new ids are not stored; their rows pass, and so do their duplicates in later cuts. FORGET_OLDEST: the ids with
    the oldest event times are forgotten, as if the horizon were shorter; rows of that time are late, and no event
    passes twice. The newest slice (a 64th of the horizon) is always kept; new ids that do not fit are not stored.
    """

    PASS = "pass"  # noqa: S105 - no password
    FORGET_OLDEST = "forget_oldest"


@dataclass(frozen=True)
class Deduplication:
    """The settings of a deduplication.

    ``id_columns``: text, whole numbers, booleans, dates or times that together identify an event. ``horizon_ms``: how
    far apart in event time two rows of an id can be and still be one event. ``max_ids``: how many ids a shard stores
    after a cut, at 40 to 85 bytes each. ``content_columns``: if given, duplicates whose values in them differ from
    those of the row that passed are counted, at 8 more bytes for each id. If a row is near two rows of its id that
    passed, it is compared with one of them. ``nested_contents``: whether values in them are arrays, structs or maps.
    """

    id_columns: tuple[str, ...]
    horizon_ms: DurationField = DurationField()
    max_ids: int = 10_000_000
    when_full: WhenFull = WhenFull.PASS
    duplicates: Duplicates = Duplicates.PORT
    content_columns: tuple[str, ...] = ()
    nested_contents: bool = False

    def __post_init__(self) -> None:
        if not self.id_columns or len(set(self.id_columns)) < len(self.id_columns):
            raise ConfigError(f"deduplication: id columns {list(self.id_columns)}: name at least one, each once")
        check_whole(max_ids=self.max_ids)
        if not 0 < self.horizon_ms <= MAX_HORIZON_MS:
            raise ConfigError(f"deduplication: horizon_ms {self.horizon_ms}: from 1 to {MAX_HORIZON_MS} (ten years)")
        if not 0 < self.max_ids <= MAX_EVENT_IDS:
            raise ConfigError(
                f"deduplication: max_ids {self.max_ids}: from 1 to {MAX_EVENT_IDS}; for more, use more shards"
            )

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``ConfigError`` if the columns of the rows do not fit."""
        for name in self.id_columns:
            dtype = schema.get(name)
            if dtype is None:
                raise ConfigError(f"deduplication: there is no id column {name!r}; the rows have {sorted(schema)}")
            if not (dtype in (pl.String, pl.Boolean) or dtype.is_integer() or dtype.is_temporal()):
                raise ConfigError(
                    f"deduplication: id column {name!r} is {dtype}; make it text, a whole number or a time beforehand"
                )
            if dtype in (pl.UInt64, pl.Int128, pl.UInt128):
                raise ConfigError(f"deduplication: id column {name!r} is {dtype}, wider than Int64; make it text")
        if schema.get(EVENT_MS) != pl.Int64:
            raise ConfigError(f"deduplication: the rows need their event time in {EVENT_MS!r} as Int64")


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """The rows that do not pass, as masks."""

    late: Mask
    duplicate: Mask


def with_lateness(late: pl.DataFrame, watermark_ms: int, horizon_ms: int) -> pl.DataFrame:
    """Return late rows with ``LATE_REASON`` and ``LATENESS_MS``."""
    expired = pl.col(EVENT_MS) < watermark_ms - horizon_ms
    return late.with_columns(
        pl.when(expired).then(pl.lit(_EXPIRED)).otherwise(pl.lit(_EVICTED)).alias(LATE_REASON),
        (watermark_ms - pl.col(EVENT_MS)).clip(lower_bound=0).alias(LATENESS_MS),
    )


class Deduplicate:
    """The operator of a deduplication. It has one input."""

    def __init__(self, spec: Deduplication, schema: Mapping[str, pl.DataType]) -> None:
        spec.check(schema)
        self.spec = spec
        stored = NESTED_CONTENT if spec.nested_contents else CONTENT
        self._seen = SeenIds(spec.horizon_ms, content=stored if spec.content_columns else None)
        self.paged_state = PagedIds(self._seen)
        self._limits = KeyValueTable(merged(_latest_floor))
        self._counts = {"duplicates": 0, "late": 0, "without_id": 0, "not_remembered": 0, "evicted": 0}
        if spec.content_columns:
            self._counts["other_content"] = 0

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a row passes in the cut in which it arrives."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        (rows,) = inputs
        columns = rows.select(self.spec.id_columns).get_columns()
        ids = IdHashes(*fingerprint_columns(columns, rows.height), rows[EVENT_MS].to_numpy(), self._hash_contents(rows))
        decided = self.decide(ids, without_nulls(columns, rows.height), time)
        dropped = decided.late | decided.duplicate
        passed = rows.filter(pl.Series(~dropped)) if dropped.any() else rows
        late = rows.filter(pl.Series(decided.late))
        ports = {MAIN: passed, LATE: with_lateness(late, time.watermark_ms, self.spec.horizon_ms)}
        if self.spec.duplicates is Duplicates.PORT:
            ports[DUPLICATES] = rows.filter(pl.Series(decided.duplicate))
        return ports

    def decide(self, ids: IdHashes, has_id: Mask, time: CutTime) -> DecidedRows:
        """Decide on rows in order of arrival, and remember the ids of those that pass. ``has_id``: those whose id is
        not null."""
        first_ms = self._first_remembered_ms(time.watermark_ms)
        late = has_id & (ids.event_ms < first_ms)
        checked = has_id & ~late
        ids = ids.where(checked)
        is_duplicate = self._find_duplicates(ids, first_ms)
        duplicate = np.zeros(len(has_id), dtype=bool)
        duplicate[checked] = is_duplicate
        self._remember(ids.where(~is_duplicate), time.next_watermark_ms)
        self._count(duplicates=int(is_duplicate.sum()), late=int(late.sum()), without_id=int((~has_id).sum()))
        return DecidedRows(late, duplicate)

    def tables(self) -> Mapping[str, StateTable]:
        return {"seen": self._seen, "limits": self._limits}

    def on_state_loaded(self) -> None:
        pass

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call and reset them, and ``ids``: the number of ids."""
        counts = self._counts
        self._counts = dict.fromkeys(counts, 0)
        return counts | {"ids": len(self._seen)}

    @property
    def memory_bytes(self) -> int:
        """The bytes of the ids in memory."""
        return self._seen.memory_bytes

    def is_ahead(self, watermark_ms: int) -> bool:
        """Return whether rows that are not behind this watermark are late, because their ids were forgotten."""
        return self._floor_ms > watermark_ms

    # --- deciding -----------------------------------------------------------------------------------------------

    def _first_remembered_ms(self, watermark_ms: int) -> int:
        """Return the first event time whose ids the operator remembers; rows from before are late."""
        return max(watermark_ms - self.spec.horizon_ms, self._floor_ms)

    @property
    def _floor_ms(self) -> int:
        """Return the event time before which ids were forgotten because of ``max_ids``."""
        stored = self._limits.get(_FLOOR)
        return int(stored) if stored else -(2**63)

    def _hash_contents(self, rows: pl.DataFrame) -> UInt64Array | None:
        names = self.spec.content_columns
        return hash_contents(rows.select(names).get_columns(), rows.height) if names else None

    def _find_duplicates(self, ids: IdHashes, first_ms: int) -> Mask:
        """Return a mask of the duplicates: rows whose id passed in an earlier cut, or earlier in this one. Count those
        with another content."""
        entries = self._seen.find(ids, first_ms)
        is_duplicate: Mask = entries != NO_ENTRY
        if ids.contents is not None and is_duplicate.any():
            originals = self._seen.contents(entries[is_duplicate])
            self._count(other_content=int((ids.contents[is_duplicate] != originals).sum()))
        new = np.flatnonzero(~is_duplicate)
        repeated = repeated_within_cut(ids.take(new), self.spec.horizon_ms)
        again = repeated != NO_ROW
        if ids.contents is not None and again.any():
            originals = ids.contents[new[repeated[again]]]
            self._count(other_content=int((ids.contents[new[again]] != originals).sum()))
        is_duplicate[new] = again
        return is_duplicate

    # --- remembering --------------------------------------------------------------------------------------------

    def _remember(self, ids: IdHashes, next_watermark_ms: int) -> None:
        """Store the ids of the rows that passed, in order of arrival, unless they are too old or above the limit."""
        first_ms = self._first_remembered_ms(next_watermark_ms)
        self._seen.forget(first_ms)
        ids = ids.where(ids.event_ms >= first_ms)
        if self.spec.when_full is WhenFull.FORGET_OLDEST:
            ids = self._make_room(ids)
        room = max(0, self.spec.max_ids - len(self._seen))
        self._seen.add(ids.take(slice(0, room)))
        self._count(not_remembered=max(0, len(ids) - room))

    def _make_room(self, ids: IdHashes) -> IdHashes:
        """Forget the oldest slices, of the table and of these ids, until they fit; the newest slice stays."""
        floor_ms = self._seen.floor_for(ids, self.spec.max_ids)
        if floor_ms is None:
            return ids
        self._limits.put(_FLOOR, str(floor_ms).encode())
        remaining = ids.where(ids.event_ms >= floor_ms)
        self._count(evicted=self._seen.forget(floor_ms) + len(ids) - len(remaining))
        return remaining

    def _count(self, **counts: int) -> None:
        for name, number in counts.items():
            self._counts[name] += number


def _latest_floor(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the row with the latest floor: the ids before it are forgotten in at least one of the shards."""
    latest = max(range(rows.height), key=lambda row: int(rows["value"][row] or b"-1"), default=None)
    return rows[:0] if latest is None else rows[[latest]]


def without_nulls(columns: Sequence[pl.Series], height: int) -> Mask:
    """Return a mask of the rows without a null."""
    mask = np.ones(height, dtype=bool)
    for column in columns:
        if column.null_count():
            mask &= column.is_not_null().to_numpy()
    return mask
