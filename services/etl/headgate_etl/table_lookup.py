"""Look-ups in a Kafka table: the last value of each record key of a compacted topic, which every shard has.

The topic is a source of the app, so its records are part of the cuts. An operator applies the changes of a cut to the
table, in the order of partition and offset, before it looks up the rows of the cut: the answer depends on the cuts
alone, also when one runs again. A record without a value deletes its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
import polars as pl

from headgate_etl.documents import OnMissing
from rulecore.language import Scope, parse
from rulecore.mapping.expressions import ExpressionReader
from rulecore.mapping.failed_rows import keep_valid
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import CODE, REASON, ComputedField
from streamcore.app import Source
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.schema import BOOLEAN, STRING, Field, StreamSchema, Type
from streamcore.state import KeyValueTable
from streamcore.state.scope import REPLICATED
from streamcore.state.table import StateTable
from streamcore.topology.stream import KeyedStream, Stream, operate, source
from streamcore.wire.lanes import DeadLetterCode

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument, LookupDocument
    from rulecore.mapping.problems import Problems
    from streamcore.topology.nodes import SinkNode

#: Columns of the records of a table, which the expressions of ``table.fields`` may read.
KEY, VALUE = "key", "value"
_AT, _GONE = "written_at", "is_gone"
_SHOWN_CHARACTERS = 60


def table_schema(name: str) -> StreamSchema:
    """Return the stream of a table's records. ``name``: of the look-up."""
    return StreamSchema.parse(
        {
            "name": f"table_{name}"[:63],
            "event_time": _AT,
            "fields": {
                _AT: {"type": "timestamp not null", "from": "_kafka.timestamp"},
                KEY: {"type": "string not null", "from": "_kafka.key"},
                VALUE: {"type": "string", "from": "_kafka.value"},
            },
        }
    )


def table_sources(settings: EtlDocument) -> tuple[Source, ...]:
    """Return the sources of the tables in which the document looks up, in their order."""
    return tuple(
        Source(table_schema(path.rpartition(".")[2]), lookup.table.topic)
        for path, lookup in settings.all_lookups.items()
        if lookup.table is not None
    )


def read_table(
    path: str, lookup: LookupDocument, model: Mapping[str, Field], problems: Problems
) -> MappingStage | None:
    """Return the stage that makes the rows of a table of its records; None if something in the entry is wrong."""
    assert lookup.table is not None, "the caller checks it"
    given = {KEY: STRING, VALUE: STRING}
    fields = [
        ComputedField(KEY, parse(KEY, Scope(given), expect=None), STRING, nullable=False, text=KEY),
        ComputedField(_GONE, parse(f"{VALUE} is null", Scope(given)), BOOLEAN, nullable=False, text=_GONE),
    ]
    key = model.get(lookup.key)
    if key is not None and key.type.kind not in ("string", "long"):
        problems.add(f"{path}.key", f"{lookup.key!r} is {key.type}; the key of a table is text or a long")
    for name in lookup.table.fields:
        if name not in lookup.adds:
            problems.add(f"{path}.table.fields.{name}", "is none of the fields that the lookup adds")
    for name in lookup.adds:
        declared = model.get(name)
        if declared is None:  # of which the origins tell
            continue
        entry = f"{path}.table.fields.{name}" if name in lookup.table.fields else f"{path}.adds.{name}"
        with problems.at(entry):
            text = lookup.table.fields.get(name) or _member(name, declared.type)
            expr = ExpressionReader(given, {}).value(text, entry, declared.type)
            fields.append(ComputedField(name, expr, declared.type, nullable=True, text=text))
        if declared.type.is_nested:
            problems.add(f"{path}.adds.{name}", f"is {declared.type}; the fields of a table are single values")
            return None
    return MappingStage(given, tuple(fields)) if len(fields) == len(lookup.adds) + 2 else None


def _member(name: str, kind: Type) -> str:
    """Return the expression of the member of a JSON object with the name of a field."""
    return f"from_json({VALUE}, 'struct<{name}: {kind}>').{name}"


def look_up(
    rows: Stream, settings: EtlDocument, path: str, stage: MappingStage, dead_letters: list[SinkNode]
) -> Stream:
    """Add the fields of a table to rows. A record that makes no row is a dead letter; a row without an entry may be."""
    lookup, name = settings.all_lookups[path], path.rpartition(".")[2]
    assert lookup.table is not None, "the caller checks it"
    watermark = replace(settings.watermark, idle_timeout_ms=Milliseconds(min(settings.idle_timeout_ms, _IDLE_MS)))
    records = source(table_schema(name), watermark, raw=True).flat_map(stage)
    changes = keep_valid(records, dead_letters).select(KEY, _GONE, *lookup.adds)
    table = changes.broadcast().keyed
    assert table is not None, "only the control records have none"
    spec = TableLookup(lookup.key, lookup.adds, lookup.table.missing is OnMissing.DEAD_LETTER, lookup.table.max_rows)
    factory = TableLookupFactory(spec, {n: t for n, t in changes.schema.items() if n in lookup.adds})
    found = operate([rows.key_by(*settings.id), KeyedStream(table)], "look up", factory, name=f"lookup_{name}")
    return keep_valid(found, dead_letters)


#: A table that does not change holds no watermark back for longer, in milliseconds.
_IDLE_MS = 1_000


@dataclass(frozen=True, slots=True)
class TableLookup:
    """A look-up. ``key``: the column of the rows; ``adds``: the columns of the table.

    ``is_needed``: whether a row whose key the table does not have is a dead letter. ``max_rows``: most keys of the
    table; a further key is not stored, and counted.
    """

    key: str
    adds: tuple[str, ...]
    is_needed: bool
    max_rows: int


@dataclass(frozen=True)
class TableLookupFactory:
    """Creates the operator. Spark pickles it and sends it to the workers. ``types``: of the columns of the table."""

    spec: TableLookup
    types: Mapping[str, pl.DataType]

    def __call__(self) -> TableLookupOperator:
        return TableLookupOperator(self.spec, self.types)


class TableLookupOperator:
    """Adds the columns of a table to rows. Its inputs are the rows and the changes of the table.

    The table is stored as JSON by key, and in memory as a frame, too, which answers for all rows of a cut at once.
    """

    def __init__(self, spec: TableLookup, types: Mapping[str, pl.DataType]) -> None:
        self.spec, self._types = spec, types
        self._stored = KeyValueTable(REPLICATED)
        self._frame = pl.DataFrame(schema={KEY: pl.String(), **types})
        self._over_limit = 0

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a row leaves in the cut in which it arrives."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:  # noqa: ARG002 - a look-up has no time
        """Apply the changes of the cut, then look up its rows."""
        rows, changes = inputs
        if changes.height:
            self._apply(changes)
        keys = rows.select(pl.col(self.spec.key).cast(pl.String).alias("__key"), pl.int_range(pl.len()).alias("__row"))
        known = self._frame.with_columns(pl.lit(value=True).alias("__known"))
        found = keys.join(known, left_on="__key", right_on=KEY, how="left").sort("__row")
        is_missing = found["__known"].is_null() & found["__key"].is_not_null()
        failed = is_missing if self.spec.is_needed else pl.repeat(value=False, n=rows.height, eager=True)
        shown = pl.col("__key").str.head(_SHOWN_CHARACTERS)
        reasons = found.select(
            pl.when(failed).then(pl.lit(DeadLetterCode.FAILED.value)).alias(CODE),
            pl.when(failed)
            .then(pl.concat_str(pl.lit(f"the table of {self.spec.key} has no key "), shown))
            .alias(REASON),
        )
        return {MAIN: rows.hstack([*found.select(self.spec.adds).get_columns(), *reasons.get_columns()])}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the stored table."""
        return {"rows": self._stored}

    def on_state_loaded(self) -> None:
        """Build the frame from the loaded rows. ``ConfigError`` if they were stored with other columns."""
        named = [(key, orjson.loads(value)) for key, value in self._stored]
        if other := next((values for _, values in named if values.keys() != self._types.keys()), None):
            raise ConfigError(
                f"lookup by {self.spec.key}: its table was stored with {', '.join(other)}, and the document "
                f"adds {', '.join(self._types)}: take the change back, or start without state and read the topic again"
            )
        stored = [(key, *(values[name] for name in self._types)) for key, values in named]
        raw = {KEY: pl.String(), **{name: _stored_type(kind) for name, kind in self._types.items()}}
        typed = [pl.col(KEY), *(pl.col(name).cast(kind) for name, kind in self._types.items())]
        self._frame = pl.DataFrame(stored, schema=raw, orient="row").select(typed)

    def metrics(self) -> Mapping[str, int]:
        """Return the number of keys beyond the limit since the last call."""
        over, self._over_limit = self._over_limit, 0
        return {"table_rows_rejected": over}

    def _apply(self, changes: pl.DataFrame) -> None:
        """Apply the last change of each key."""
        last = changes.unique(subset=KEY, keep="last", maintain_order=True)
        kept = self._frame.join(last, on=KEY, how="anti")
        written = last.filter(~pl.col(_GONE)).select(self._frame.columns)
        if kept.height + written.height > self.spec.max_rows:
            is_known = written[KEY].is_in(self._frame[KEY].implode())
            written = pl.concat([written.filter(is_known), written.filter(~is_known)])
            room = max(int(is_known.sum()), self.spec.max_rows - kept.height)  # a known key keeps its place
            self._over_limit += max(0, written.height - room)
            written = written.head(room)
        for key in last.filter(pl.col(_GONE))[KEY].to_list():
            self._stored.put(key, None)
        plain = written.cast({name: _stored_type(kind) for name, kind in self._types.items()})
        for key, *values in plain.iter_rows():
            self._stored.put(key, orjson.dumps(dict(zip(self._types, values, strict=True))))
        self._frame = pl.concat([kept, written])


def _stored_type(kind: pl.DataType) -> pl.DataType:
    """Return the type in which values are stored as JSON: decimals as text, times as epoch milliseconds."""
    if isinstance(kind, pl.Decimal):
        return pl.String()
    return pl.Int64() if isinstance(kind, pl.Datetime) else kind
