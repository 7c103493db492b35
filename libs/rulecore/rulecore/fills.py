"""Warm start: what a new aggregate has missed, counted from history by the same code, and added to what it has.

A new aggregate counts from one position of the input on, which the app tells when it accepts the rule. Everything
before that position can be counted elsewhere, from the topic or from files, and sent as a *fill*: rows of partials,
which combine with those of the app in any order. So a filled aggregate is exactly what it would be had it counted from
the fill's beginning. A fill names for each aggregate since when it counted, and is added only where that still holds,
so a fill that is sent twice counts once. Promises: no bytes make reading a fill raise anything but ``RuleError``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import orjson
import polars as pl
from pydantic import ConfigDict, Field, ValidationError

from rulecore.compiled import CompiledRule
from rulecore.control_keys import FILL_KEY
from rulecore.document import Document
from rulecore.errors import DocumentError, RuleSetError
from rulecore.groups import GroupId, Moment
from rulecore.kinds import RuleName
from rulecore.load import said_faults
from rulecore.releases import digest_of
from rulecore.settings import GroupSettings
from rulecore.values import Time
from rulecore.windowed import WindowGroup
from rulecore.yamldoc import one_line
from streamcore.hashing import hash_columns, shard_of
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable
from streamcore.state.table import HASH
from streamcore.watermark import NO_WATERMARK
from streamcore.windows.distinct import VALUE
from streamcore.windows.panes import FIRED, PANE, PANE_MASK

PART_BYTES: Final = 500_000
OPEN_BYTES: Final = 64 * 1024 * 1024
PART_ROWS: Final = 50_000


class Fill(Document):
    """Parts for the aggregates of a rule's version. ``since``: by aggregate, since when it counts, epoch milliseconds.

    ``start``: from when on the history was counted. ``parts``: digests of staged parts.
    """

    rule: RuleName
    version: int
    start: Annotated[Time, Field(alias="from")]
    since: Annotated[dict[str, int], Field(min_length=1, max_length=100)]
    parts: Annotated[tuple[str, ...], Field(strict=False, max_length=10_000)]


class _Part(Document):
    """Rows of one table in columns: the group's key, panes and values; of a distinct count one value a row."""

    model_config = ConfigDict(strict=False, extra="forbid", frozen=True)

    table: str
    keys: dict[str, list[bool | int | float | str | None]]
    panes: list[int]
    values: dict[str, list[bool | int | float | str | None]]


@dataclass(frozen=True, slots=True)
class FillRows:
    """A fill that fits its rule. ``rows``: aggregates with frames as their tables store them."""

    rule: CompiledRule
    start_ms: int
    since_ms: Mapping[str, int]
    rows: tuple[tuple[str, pl.DataFrame], ...]


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_fill(value: bytes) -> Fill:
    """The fill of a control record."""
    try:
        return Fill.model_validate(orjson.loads(value))
    except ValidationError as error:
        raise DocumentError(said_faults(error)) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {one_line(error)}") from error


def open_fill(fill: Fill, rule: CompiledRule, schema: StreamSchema, staged: Mapping[str, bytes]) -> FillRows:
    """The rows of a fill; ``RuleSetError`` where they do not fit the rule or are not there."""
    if missing := [digest for digest in fill.parts if digest not in staged]:
        raise RuleSetError(f"part {missing[0][:40]} is not there; publish the parts of a fill before the fill")
    group = _group(rule, schema)
    if unknown := [name for name in fill.since if name not in group.since_of(rule)]:
        raise RuleSetError(f"since: {unknown[0][:80]} is no aggregate of {rule.rule.id}")
    rows: list[tuple[str, pl.DataFrame]] = []
    for digest in fill.parts:
        part = open_part(staged[digest])
        rows += [(name, frame) for name, frame in _frames(part, group) if name in fill.since]
    return FillRows(rule, fill.start, fill.since, tuple(rows))


def open_part(value: bytes) -> _Part:
    """A part, its form checked; whether it fits a rule is not."""
    opened = zlib.decompressobj()
    try:
        text = opened.decompress(value, OPEN_BYTES)
        if opened.unconsumed_tail or not opened.eof:
            raise RuleSetError(f"a part of a fill has at most {OPEN_BYTES} bytes when it is opened")
        return _Part.model_validate(orjson.loads(text))
    except zlib.error as error:
        raise DocumentError(f"a part of a fill cannot be opened: {error}") from error
    except ValidationError as error:
        raise DocumentError(said_faults(error)) from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"a part of a fill is no JSON: {one_line(error)}") from error


def _frames(part: _Part, group: WindowGroup) -> Iterator[tuple[str, pl.DataFrame]]:
    """The part's rows by aggregate, in the types that its table stores; all columns, and no others."""
    if part.table in group.distinct:
        yield part.table, _frame(part, group, {VALUE: (group.distinct[part.table].dtype, None)})
        return
    if part.table != "panes":
        raise RuleSetError(f"a part of a fill is for {part.table[:80]!r}, which the rule does not count")
    partials = {n: p for n, p in group.panes.partials.items() if not n.startswith(FIRED)}
    kept = {n: (pl.Int64() if p.whole else pl.Float64(), p.identity) for n, p in partials.items()}
    frame = _frame(part, group, kept)
    for name, aggregation in group.aggregations.items():
        columns = [aggregation.column(p) for p in aggregation.partials]
        yield name, frame.select(*group.panes.keys.dtypes, PANE, *columns)


def _frame(
    part: _Part, group: WindowGroup, values: Mapping[str, tuple[pl.DataType, int | float | None]]
) -> pl.DataFrame:
    """Keys, panes and values, each of which has a type and what stands for null."""
    given: dict[str, Sequence[object]] = {**part.keys, PANE: part.panes, **part.values}
    keys: dict[str, tuple[pl.DataType, int | float | None]] = {n: (t, None) for n, t in group.panes.keys.dtypes.items()}
    columns = {**keys, PANE: (pl.Int64(), None), **values}
    if set(given) != set(columns) or len({len(listed) for listed in given.values()}) != 1:
        raise RuleSetError("a part of a fill has other columns than the rule's aggregates, or of unequal length")
    if any(not 0 <= pane <= PANE_MASK for pane in part.panes):
        raise RuleSetError("a part of a fill has a pane that no event can be in")
    try:
        return pl.DataFrame([_series(name, given[name], *kind) for name, kind in columns.items()])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise RuleSetError(f"a part of a fill holds a value of another type: {one_line(error)}") from error


def _series(name: str, values: Sequence[object], kind: pl.DataType, null: int | float | None) -> pl.Series:
    series = pl.Series(name, values, dtype=kind, strict=True)
    return series if null is None else series.fill_null(pl.lit(null, dtype=kind))


# --- adding -----------------------------------------------------------------------------------------------------------


def apply_fill(fill: FillRows, group: WindowGroup, schema: StreamSchema, moment: Moment, memory: KeyValueTable) -> None:
    """Add the rows of keys that this shard owns, to aggregates that still count from where the fill ends."""
    names = [n for n, since in fill.since_ms.items() if group.kept.since_ms.get(n) == since]
    for name, frame in fill.rows:
        if name in names:
            mine = _owned(frame, schema.keys[fill.rule.route], moment)
            if mine.height:
                group.fill(name, mine)
    group.complete_since(names, fill.start_ms, memory)


def _owned(frame: pl.DataFrame, key: Sequence[str], moment: Moment) -> pl.DataFrame:
    owners = shard_of(hash_columns([frame[name] for name in key], frame.height), moment.shards)
    return frame.filter(pl.Series(owners == moment.shard))


# --- making -----------------------------------------------------------------------------------------------------------


class Collector:
    """Counts a rule's aggregates over history. Give it frames of the stream (any order), then ask for the records."""

    def __init__(self, rule: CompiledRule, schema: StreamSchema) -> None:
        self.rule = rule
        self.group = _group(rule, schema)

    def add(self, frame: pl.DataFrame) -> None:
        """Events before the position from which the app counts. ``RuleSetError`` when the rule fails on one."""
        if failures := self.group.count(frame):
            raise RuleSetError(f"{self.rule.rule.id} fails on this history: {failures[0].reason}")

    def parts(self) -> Iterator[bytes]:
        """What was counted, as parts to stage."""
        yield from _parts("panes", self.group.panes.rows(0, 1), self.rule.group_by)
        for name, table in self.group.distinct.items():
            yield from _parts(name, table.rows(0, 1), self.rule.group_by)


def fill_records(
    collector: Collector, start_ms: int, since_ms: Mapping[str, int], staged_key: str
) -> list[tuple[str, bytes]]:
    """Keys and values of the control records of a fill, in the order in which they must be published."""
    rule = collector.rule.rule
    parts = [(staged_key + digest_of(part), part) for part in collector.parts()]
    fill = Fill.model_construct(
        rule=rule.id,
        version=rule.version,
        start=start_ms,
        since=dict(since_ms),
        parts=tuple(key.removeprefix(staged_key) for key, _ in parts),
    )
    return [*parts, (FILL_KEY + rule.id, orjson.dumps(fill.model_dump(mode="json", by_alias=True)))]


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


def _group(rule: CompiledRule, schema: StreamSchema) -> WindowGroup:
    """A group of this rule alone, in which it counts."""
    group_id = GroupId.of(rule)
    if rule.window is None or group_id is None:
        raise RuleSetError(f"{rule.rule.id} is no windowed rule; a warm start is for tumbling and sliding windows")
    group = WindowGroup(group_id, schema, GroupSettings())
    group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    return group
