"""Backfills: past events that a new aggregate has missed, counted elsewhere and added to its state.

A new aggregate starts at certain offsets of the input, which the app reports when it accepts the rule. A client counts
the events before these offsets, from the topic or from files, with the code of the app, and sends the result as a
backfill: rows of partials, which can be combined with those of the app in any order. The aggregate is then exactly as
if it had started at the start of the backfill. A backfill names the start time of each aggregate and is added only if
the aggregate still has it, so a backfill that is sent twice counts once. Decoding raises nothing but ``RuleError``,
whatever the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import orjson
import polars as pl
from pydantic import ConfigDict, Field, ValidationError

from rulecore.compile.rule import CompiledRule
from rulecore.documents.base import DocumentModel
from rulecore.documents.control_keys import BACKFILL_KEY
from rulecore.documents.loading import format_faults
from rulecore.documents.releases import digest_part
from rulecore.documents.rule_kinds import RuleName
from rulecore.documents.scalars import Time
from rulecore.documents.yaml_reader import one_line
from rulecore.errors import DocumentError, RuleSetError
from rulecore.groups.base import BackfilledGroup, CutContext, GroupId
from rulecore.groups.features.group import FeatureGroup
from rulecore.groups.features.latest import TIME
from rulecore.groups.features.latest import VALUE as FEATURE_VALUE
from rulecore.groups.windows.distinct_table import VALUE
from rulecore.groups.windows.group import WindowGroup
from rulecore.groups.windows.pane_table import FIRED, PANE, PANE_MASK
from rulecore.key_columns import Key, keyed_schema
from rulecore.settings import GroupSettings
from streamcore.hashing import hash_columns
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable
from streamcore.state.table import HASH
from streamcore.watermark import NO_WATERMARK

PART_BYTES: Final = 500_000
DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024  # most bytes of a decompressed part
PART_ROWS: Final = 50_000  # most rows of a part


class Backfill(DocumentModel):
    """The value of a backfill's control record. Times are in epoch milliseconds.

    ``start``: the event time from which past events were counted. ``since``: by column, the event time from which the
    aggregate counted in the app. ``parts``: digests of staged parts.
    """

    rule: RuleName
    version: int
    start: Annotated[Time, Field(alias="from")]
    since: Annotated[dict[str, int], Field(min_length=1, max_length=100)]
    parts: Annotated[tuple[str, ...], Field(strict=False, max_length=10_000)]


class _Part(DocumentModel):
    """Rows of one table, by column: key columns, panes and values; of a ``count_distinct``, one value per row.

    ``table``: ``panes``, or the column of the ``count_distinct``, or the fingerprint of a feature.
    """

    model_config = ConfigDict(strict=False, extra="forbid", frozen=True)

    table: str
    keys: dict[str, list[bool | int | float | str | None]]
    panes: list[int]
    values: dict[str, list[bool | int | float | str | None]]


@dataclass(frozen=True, slots=True)
class BackfillRows:
    """A decoded backfill that fits its rule. ``rows``: an aggregate's column, and rows as its table stores them."""

    rule: CompiledRule
    start_ms: int
    since_ms: Mapping[str, int]
    rows: tuple[tuple[str, pl.DataFrame], ...]


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode_backfill(value: bytes) -> Backfill:
    """Decode the backfill of a control record."""
    try:
        return Backfill.model_validate(orjson.loads(value))
    except ValidationError as error:
        raise DocumentError(format_faults(error, Backfill)) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {one_line(error)}") from error


def decode_parts(
    backfill: Backfill, rule: CompiledRule, schema: StreamSchema, staged: Mapping[str, bytes]
) -> BackfillRows:
    """Return the rows of a backfill. Raise ``RuleSetError`` if a part is missing or does not fit the rule."""
    if missing := [digest for digest in backfill.parts if digest not in staged]:
        raise RuleSetError(f"part {missing[0][:40]} is missing; publish the parts of a backfill before the backfill")
    group = _group(rule, schema)
    if unknown := [name for name in backfill.since if name not in group.since_by_column(rule)]:
        raise RuleSetError(f"since: {unknown[0][:80]} is no aggregate of {rule.rule.id}")
    rows: list[tuple[str, pl.DataFrame]] = []
    for digest in backfill.parts:
        part = decode_part(staged[digest])
        rows += [(name, frame) for name, frame in _frames(part, group) if name in backfill.since]
    return BackfillRows(rule, backfill.start, backfill.since, tuple(rows))


def decode_part(value: bytes) -> _Part:
    """Decode a part and check its form, not whether it fits a rule."""
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(value, DECOMPRESSED_BYTES)
        if decompressor.unconsumed_tail or not decompressor.eof:
            raise RuleSetError(f"a part of a backfill has at most {DECOMPRESSED_BYTES} bytes when decompressed")
        return _Part.model_validate(orjson.loads(text))
    except zlib.error as error:
        raise DocumentError(f"a part of a backfill cannot be decompressed: {error}") from error
    except ValidationError as error:
        raise DocumentError(format_faults(error, _Part)) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"a part of a backfill is not JSON: {one_line(error)}") from error


def _frames(part: _Part, group: WindowGroup | FeatureGroup) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the rows of a part for each aggregate, with exactly the columns and types of its table."""
    if isinstance(group, FeatureGroup):
        yield part.table, _feature_frame(part, group)
        return
    keys = group.panes.keys.dtypes
    if part.table in group.distinct:
        yield part.table, _frame(part, keys, {VALUE: (group.distinct[part.table].dtype, None)})
        return
    if part.table != "panes":
        raise RuleSetError(f"a part of a backfill is for {part.table[:80]!r}, which the rule does not count")
    partials = {n: p for n, p in group.panes.partials.items() if not n.startswith(FIRED)}
    kept = {n: (pl.Int64() if p.whole else pl.Float64(), p.identity) for n, p in partials.items()}
    frame = _frame(part, keys, kept)
    for name, aggregation in group.aggregations.items():
        columns = [aggregation.column(p) for p in aggregation.partials]
        yield name, frame.select(*group.panes.keys.dtypes, PANE, *columns)


def _feature_frame(part: _Part, group: FeatureGroup) -> pl.DataFrame:
    """Return the rows of a feature. Those of an event have its time, in the pane that they name."""
    if part.table not in group.all_since_ms():
        raise RuleSetError(f"a part of a backfill is for {part.table[:80]!r}, which is no feature of the rule")
    kinds = {name: kind for name, kind in group.backfill_types(part.table).items() if name != PANE}
    keys = {name: kind for name, kind in kinds.items() if name in part.keys}
    numbers: dict[str, tuple[pl.DataType, int | float | None]] = {
        n: (t, None) for n, t in kinds.items() if n not in keys
    }
    frame = _frame(part, keys, numbers)
    if frame.select(pl.col(n).is_null().any() for n in numbers if n != FEATURE_VALUE).row(0).count(True):
        raise RuleSetError("a part of a backfill has a row without its number or time")
    if TIME in numbers and not (frame[TIME] // group.pane_ms(part.table) == frame[PANE]).all():
        raise RuleSetError("a part of a backfill has an event in another pane than its time is in")
    return frame


def _frame(
    part: _Part,
    key_types: Mapping[str, pl.DataType],
    values: Mapping[str, tuple[pl.DataType, int | float | None]],
) -> pl.DataFrame:
    """Return a part as a frame. ``values``: the type of each value column, and the value that replaces null."""
    given: dict[str, Sequence[object]] = {**part.keys, PANE: part.panes, **part.values}
    keys: dict[str, tuple[pl.DataType, int | float | None]] = {n: (t, None) for n, t in key_types.items()}
    columns = {**keys, PANE: (pl.Int64(), None), **values}
    if set(given) != set(columns) or len({len(listed) for listed in given.values()}) != 1:
        raise RuleSetError("a part of a backfill has other columns than the rule's aggregates, or of unequal length")
    if any(not 0 <= pane <= PANE_MASK for pane in part.panes):
        raise RuleSetError("a part of a backfill has a pane that no event can be in")
    try:
        return pl.DataFrame([_series(name, given[name], *kind) for name, kind in columns.items()])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise RuleSetError(f"a part of a backfill holds a value of another type: {one_line(error)}") from error


def _series(name: str, values: Sequence[object], kind: pl.DataType, null: int | float | None) -> pl.Series:
    series = pl.Series(name, values, dtype=kind, strict=True)
    return series if null is None else series.fill_null(pl.lit(null, dtype=kind))


# --- applying ---------------------------------------------------------------------------------------------------------


def apply_backfill(
    backfill: BackfillRows, group: BackfilledGroup, key: Key, context: CutContext, memory: KeyValueTable
) -> None:
    """Add the rows of this shard's keys to the aggregates of a group that still start where the backfill ends.

    ``key``: by which the events of the group are routed.
    """
    known = group.all_since_ms()
    names = [n for n, since in backfill.since_ms.items() if known.get(n) == since]
    for name, frame in backfill.rows:
        if name in names:
            own_rows = _rows_of_shard(frame, key, context)
            if own_rows.height:
                group.add_backfill(name, own_rows)
    group.complete_since(names, backfill.start_ms, memory)


def _rows_of_shard(frame: pl.DataFrame, key: Sequence[str], context: CutContext) -> pl.DataFrame:
    owners = context.key_space.shard_for(hash_columns([frame[name] for name in key], frame.height))
    return frame.filter(pl.Series(owners == context.shard))


# --- creating ---------------------------------------------------------------------------------------------------------


class BackfillCollector:
    """Counts the aggregates of a rule over past events: call ``add`` with frames in any order, then ``parts``."""

    def __init__(self, rule: CompiledRule, schema: StreamSchema) -> None:
        self.rule = rule
        self.group = _group(rule, schema)

    def add(self, frame: pl.DataFrame) -> None:
        """Add events from before the offsets at which the aggregates start.

        Raise ``RuleSetError`` if the rule fails on them.
        """
        if failures := self.group.count(frame):
            raise RuleSetError(f"{self.rule.rule.id} fails on these events: {failures[0].reason}")

    def parts(self) -> Iterator[bytes]:
        """Yield the partials as parts of a backfill."""
        if isinstance(self.group, FeatureGroup):
            for feature in {one.fingerprint: one for one in self.rule.features}.values():
                yield from _parts(feature.fingerprint, self.group.backfill_rows(feature.fingerprint), feature.by)
            return
        yield from _parts("panes", self.group.panes.rows(0, 1), self.rule.group_by)
        for name, table in self.group.distinct.items():
            yield from _parts(name, table.rows(0, 1), self.rule.group_by)


def backfill_records(
    collector: BackfillCollector, start_ms: int, since_ms: Mapping[str, int], staged_key: str
) -> list[tuple[str, bytes]]:
    """Return keys and values of the control records of a backfill, in the order to publish them.

    ``staged_key``: the prefix of the keys of staged parts.
    """
    rule = collector.rule.rule
    parts = [(staged_key + digest_part(part), part) for part in collector.parts()]
    backfill = Backfill.model_construct(
        rule=rule.id,
        version=rule.version,
        start=start_ms,
        since=dict(since_ms),
        parts=tuple(key.removeprefix(staged_key) for key, _ in parts),
    )
    return [*parts, (BACKFILL_KEY + rule.id, orjson.dumps(backfill.model_dump(mode="json", by_alias=True)))]


def _parts(table: str, rows: pl.DataFrame, keys: Sequence[str]) -> Iterator[bytes]:
    names = [n for n in rows.columns if n not in (*keys, HASH, PANE) and not n.startswith(FIRED)]
    for slice_ in _slices(rows):
        body = {
            "table": table,
            "keys": {n: slice_[n].to_list() for n in keys},
            "panes": slice_[PANE].to_list(),
            "values": {n: slice_[n].to_list() for n in names},
        }
        yield zlib.compress(orjson.dumps(body), 6)


def _slices(rows: pl.DataFrame) -> Iterable[pl.DataFrame]:
    return rows.iter_slices(PART_ROWS) if rows.height else ()


def _group(rule: CompiledRule, schema: StreamSchema) -> WindowGroup | FeatureGroup:
    """Return an empty group with this rule only. Raise ``RuleSetError`` if it has neither time windows nor features."""
    group_id = GroupId.for_rule(rule)
    if group_id is None or (rule.window is None and not rule.features):
        what = "a backfill is for tumbling and sliding windows, and for features"
        raise RuleSetError(f"{rule.rule.id} has neither; {what}")
    kind = FeatureGroup if rule.features else WindowGroup
    group = kind(group_id, keyed_schema(schema, group_id.group_by), GroupSettings())
    group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    return group
