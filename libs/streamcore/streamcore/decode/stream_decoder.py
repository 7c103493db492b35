"""Decodes the records of a stream with an envelope, or with fields beside the values of its records.

The decoder of the format knows neither: it decodes the values of the records of one form by the schema of their part of
the stream, and the columns beside the values come after it. The definition is ``streamcore.decode.scalar.event``.

::

    records ─▶ tombstones ─▶ ignored
       │ by form: values ─▶ decoder of the format ─▶ columns ─┐
       └── key, headers, timestamp, position ─▶ columns ──────┴─▶ events
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.columnar.time_patterns import read_pattern
from streamcore.decode.formats import JSON, InputFormat
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, TimeBounds
from streamcore.decode.scalar.event import WRAPPED_PATTERN, convert_beside, fallback_time
from streamcore.decode.scalar.record import check_event_time
from streamcore.decode.scalar.values import Physical, RecordError, read_time
from streamcore.decode.types import DEAD_SCHEMA, Decoded, Decoder, RawBatch, dead_table
from streamcore.errors import ConfigError
from streamcore.schema import (
    EVENT_MS,
    OFFSET,
    PARTITION,
    STRING,
    TIMESTAMP,
    Envelope,
    Field,
    KafkaValue,
    RecordForm,
    StreamSchema,
)
from streamcore.schema.record_layout import RecordLayout, kafka_place, layouts
from streamcore.schema.record_places import BINARY_MARK, EXTRA_FIELDS, KAFKA
from streamcore.schema.time_patterns import AHEAD_OF_RECORD_MS, TimePattern, with_year
from streamcore.timestamps import MAX_MS, MIN_MS, load_zone

Rows = npt.NDArray[np.int64]
#: Makes the decoder of the values of records of one form.
MakeDecoder = Callable[[RecordForm, StreamSchema], Decoder]


def event_decoder(
    schema: StreamSchema, written: InputFormat, limits: DecodeLimits, extra_fields: ExtraFields
) -> Decoder:
    """Return the decoder of a stream's records; ``ConfigError`` if format and stream do not fit.

    A CloudEvent in structured mode is JSON, and so is a change beside its schema, whatever the format of the others.
    """
    _check_whole_values(schema, written)
    if not schema.is_part and schema.envelope is None and layouts(schema)[RecordForm.PLAIN].is_plain:
        return written.decoder(schema, limits=limits, extra_fields=extra_fields)

    def make(form: RecordForm, part: StreamSchema) -> Decoder:
        of = JSON if form in (RecordForm.STRUCTURED, RecordForm.WRAPPED) else written
        return of.decoder(part, limits=limits, extra_fields=extra_fields)

    return StreamDecoder(schema, limits, make)


def _check_whole_values(schema: StreamSchema, written: InputFormat) -> None:
    """Raise ``ConfigError`` for a field of the whole value, or of its extra fields, that the format does not have."""
    for one in schema.fields:
        where = f"stream {schema.name}: field {one.label}"
        if one.location[:2] == (KAFKA, KafkaValue.VALUE) and not written.is_text:
            raise ConfigError(f"{where}: the records of this format are no text")
        if one.location == EXTRA_FIELDS and (written != JSON or not layouts(schema)[RecordForm.PLAIN].value.fields):
            raise ConfigError(f"{where}: only records of JSON with another field in their value have extra fields")


@dataclass(slots=True)
class _Rejections:
    """The rejected records of a batch, each with its first mistake."""

    by_row: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, row: int, error: RecordError) -> None:
        self.by_row.setdefault(row, (error.code.value, error.reason))

    def table(self) -> pa.Table:
        """Return the table, as ``DEAD_SCHEMA``."""
        return dead_table([(row, *self.by_row[row]) for row in sorted(self.by_row)])


class StreamDecoder:
    """Decodes the records of one stream in their forms. ``make`` gives the decoder of the values of each form."""

    def __init__(self, schema: StreamSchema, limits: DecodeLimits, make: MakeDecoder) -> None:
        self._schema, self._limits, self._zone = schema, limits, load_zone(schema.zone)
        self._layouts = layouts(schema)
        self._decoders = {f: make(f, layout.value) for f, layout in self._layouts.items() if layout.value.fields}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        rejections, ignored = _Rejections(), np.zeros(0, np.int64)
        tables, rows = list[pa.Table](), list[Rows]()
        for form, these in _rows_by_form(self._schema, batch):
            if form is None:
                ignored = these
            elif len(these):
                part = batch if len(these) == len(batch) else batch.take(pa.array(these))
                table, decoded = self._decode_form(form, part, these, rejections)
                tables.append(table)
                rows.append(these[decoded])
        events = pa.concat_tables(tables) if tables else batch.project(self._schema.arrow).empty_table()
        if len(tables) > 1:
            events = events.take(pa.array(np.argsort(np.concatenate(rows), kind="stable")))
        return Decoded(events, rejections.table(), tuple(ignored.tolist()))

    def _decode_form(
        self, form: RecordForm, batch: RawBatch, places: Rows, rejections: _Rejections
    ) -> tuple[pa.Table, Rows]:
        """Return the events of records of one form, and their rows in ``batch``. ``places``: of these records in the
        batch of all forms, by which rejected ones are known."""
        layout = self._layouts[form]
        asked = batch
        if layout.texts and batch.fields is not None:  # a text that is no time rejects the record, wanted or not
            asked = replace(batch, fields=batch.fields | {one.name for one in layout.texts})
        inside = self._decoders[form].decode(asked) if form in self._decoders else _without_values(layout, batch)
        for row, code, reason in zip(*(inside.dead.column(n).to_pylist() for n in range(3)), strict=True):
            rejections.by_row[int(places[row])] = (code, reason)
        rows = np.setdiff1d(np.arange(len(batch)), inside.dead.column("row").to_numpy())
        events, bad = self._complete(layout, inside.events, batch.take(pa.array(rows)) if len(inside.dead) else batch)
        for row, error in bad.items():
            rejections.add(int(places[rows[row]]), error)
        if not bad:
            return events, rows
        kept = np.setdiff1d(np.arange(len(rows)), np.array([*bad], np.int64))
        return events.take(pa.array(kept)), rows[kept]

    def _complete(
        self, layout: RecordLayout, inside: pa.Table, batch: RawBatch
    ) -> tuple[pa.Table, Mapping[int, RecordError]]:
        """Return the events with the fields beside their values, and the first mistake of each that is none."""
        bad: dict[int, RecordError] = {}
        columns = {name: inside.column(name) for name in layout.value.names if name in inside.column_names}
        for one in layout.texts:
            columns[one.name], mistakes = _read_times(one, columns[one.name], self._zone, batch.beside.timestamp_ms)
            bad = mistakes | bad
        for one in layout.beside:
            columns[one.name], mistakes = beside_column(one, batch, self._zone)
            bad = mistakes | bad
        if layout.extra is not None and (batch.fields is None or layout.extra.name in batch.fields):
            columns[layout.extra.name] = self._extra_fields(layout, batch)
        time = self._schema.event_time
        if layout.has_fallback:
            columns[time] = self._fill_times(columns[time], batch, bad)
        if time and not layout.value.event_time:
            self._check_times(columns[time], batch.clock_ms, bad)
        event_ms = columns[time] if time else inside.column(EVENT_MS)
        columns |= {PARTITION: inside.column(PARTITION), OFFSET: inside.column(OFFSET), EVENT_MS: event_ms}
        wanted = batch.project(self._schema.arrow)
        return pa.Table.from_arrays([columns[name] for name in wanted.names], schema=wanted), bad

    def _extra_fields(self, layout: RecordLayout, batch: RawBatch) -> pa.Array:
        from streamcore.decode.walk.extra_fields import extra_fields  # with its compiler, by the process that decodes

        return extra_fields(batch.values.cast(pa.large_binary()), layout.declared, self._limits)

    def _fill_times(self, times: pa.Array, batch: RawBatch, bad: dict[int, RecordError]) -> pa.Array:
        """Return the event times, with the timestamp of the record where there is none."""
        stamps = batch.beside.timestamp_ms
        stamps = pa.nulls(len(times), pa.int64()) if stamps is None else stamps
        in_range = pc.and_(pc.greater_equal(stamps, MIN_MS), pc.less_equal(stamps, MAX_MS))
        filled = pc.coalesce(times, pc.if_else(in_range, stamps, pa.scalar(None, pa.int64())))
        for row in np.flatnonzero(_to_numpy(pc.is_null(filled))).tolist():
            try:
                fallback_time(self._schema, None)
            except RecordError as error:
                bad.setdefault(row, error)
        return filled

    def _check_times(self, times: pa.Array, clock_ms: int, bad: dict[int, RecordError]) -> None:
        known = times.fill_null(0).to_numpy()
        wrong = ~TimeBounds.of(self._limits, clock_ms).contain(known) & _to_numpy(times.is_valid())
        for row in np.flatnonzero(wrong).tolist():
            values: list[Physical] = [None] * len(self._schema.fields)
            values[self._schema.names.index(self._schema.event_time)] = times[row].as_py()
            try:
                check_event_time(self._schema, values, clock_ms, self._limits)
            except RecordError as error:
                bad.setdefault(row, error)


def _without_values(layout: RecordLayout, batch: RawBatch) -> Decoded:
    """Return events of whose values nothing is read: they may be anything."""
    columns = [batch.partition, batch.offset, pa.nulls(len(batch), pa.int64())]
    return Decoded(pa.Table.from_arrays(columns, schema=layout.value.arrow), DEAD_SCHEMA.empty_table())


def _rows_by_form(schema: StreamSchema, batch: RawBatch) -> Iterator[tuple[RecordForm | None, Rows]]:
    """Yield the rows of each form; of None: those that are ignored."""
    match schema.envelope:
        case Envelope.CLOUDEVENTS:
            mark = batch.beside.headers.get(BINARY_MARK)
            is_binary = np.zeros(len(batch), np.bool_) if mark is None else _to_numpy(pc.is_valid(mark))
            yield RecordForm.BINARY, np.flatnonzero(is_binary)
            yield RecordForm.STRUCTURED, np.flatnonzero(~is_binary)
        case Envelope.DEBEZIUM:
            is_null = _to_numpy(pc.is_null(batch.values))
            is_wrapped = _to_numpy(pc.match_substring_regex(batch.values, WRAPPED_PATTERN).fill_null(False))
            yield None, np.flatnonzero(is_null)
            yield RecordForm.WRAPPED, np.flatnonzero(is_wrapped)
            yield RecordForm.CHANGE, np.flatnonzero(~is_wrapped & ~is_null)
        case _:
            yield RecordForm.PLAIN, np.arange(len(batch))


def _to_numpy(bits: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = bits.to_numpy(zero_copy_only=False)
    return found


# --- columns beside the values ----------------------------------------------------------------------------------------


def beside_column(one: Field, batch: RawBatch, zone: ZoneInfo) -> tuple[pa.Array, dict[int, RecordError]]:
    """Return the column of a field beside the values, and the rows whose value does not convert, with the mistake."""
    found = _found(one, batch)
    if found is None:
        found = pa.nulls(len(batch), one.type.arrow)
    if pa.types.is_binary(found.type) or pa.types.is_large_binary(found.type):
        text = _as_text(one, found)
        if text is None:
            return _convert(one, found, batch, zone)
        found = text
    if one.pattern and pa.types.is_large_string(found.type):
        times, mistakes = _read_times(one, found, zone, batch.beside.timestamp_ms)
        return (times, mistakes) if one.nullable or not found.null_count else _convert(one, found, batch, zone)
    is_sure = (one.nullable or not found.null_count) and (one.type != TIMESTAMP or _are_times(found))
    return (found.cast(one.type.arrow), {}) if is_sure else _convert(one, found, batch, zone)


def _read_times(
    one: Field, texts: pa.Array, zone: ZoneInfo, stamps: pa.Array | None
) -> tuple[pa.Array, dict[int, RecordError]]:
    """Return the times of texts in the pattern of a field, and the rows with other texts.

    The reference reads those of which the columnar path is not sure. ``stamps``: the timestamps of the records.
    """
    column = pl.Series("text", pl.from_arrow(texts))
    pattern, has_year = with_year(one.pattern)
    frame = pl.DataFrame({"text": column})
    if has_year:
        found = frame.select(read_pattern(pl.col("text"), pattern, zone.key)).to_series()
    elif stamps is None:
        found = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(column))
    else:
        frame = frame.with_columns(pl.Series("stamp", pl.from_arrow(stamps)))
        found = frame.select(_of_last_year(pattern, zone.key)).to_series()
    unsure = column.is_not_null() & ~found.is_between(MIN_MS, MAX_MS).fill_null(value=False)
    if not unsure.any():
        return found.to_arrow().cast(pa.int64()), {}
    values, bad = found.to_list(), dict[int, RecordError]()
    record_times = [None] * len(values) if stamps is None else stamps.to_pylist()
    for row in unsure.arg_true().to_list():
        try:
            values[row] = read_time(one, column[row], zone, record_times[row])
        except RecordError as error:
            values[row], bad[row] = None, error
    return pa.array(values, pa.int64()), bad


def _of_last_year(pattern: TimePattern, zone: str) -> pl.Expr:
    """Return the times of texts without a year, in the year of the record or the one before; NULL where unsure."""
    in_range = pl.col("stamp").is_between(MIN_MS, MAX_MS - AHEAD_OF_RECORD_MS)
    latest = pl.when(in_range).then(pl.col("stamp") + AHEAD_OF_RECORD_MS)
    year = latest.cast(pl.Datetime("ms")).dt.year()
    text = pl.col("text").str.replace_all(" +", " ")
    this, before = (
        read_pattern(pl.concat_str([one.cast(pl.String), pl.lit(" "), text]), pattern, zone) for one in (year, year - 1)
    )
    return pl.when(this <= latest).then(this).when(this.is_not_null() & (before <= latest)).then(before)


def _are_times(found: pa.Array) -> bool:
    """Whether all values are epoch milliseconds in the range of a timestamp."""
    bounds = pc.min_max(found).as_py()
    return bounds["min"] is None or (bounds["min"] >= MIN_MS and bounds["max"] <= MAX_MS)


def _found(one: Field, batch: RawBatch) -> pa.Array | None:
    """Return the values of a field beside the values of the records; None if all are null."""
    place, header = kafka_place(one)
    beside, count = batch.beside, len(batch)
    match place:
        case KafkaValue.VALUE:
            return batch.values
        case KafkaValue.KEY:
            return beside.key
        case KafkaValue.HEADERS:
            return beside.headers.get(header)
        case KafkaValue.TIMESTAMP:
            return beside.timestamp_ms
        case KafkaValue.PARTITION:
            return beside.partition
        case KafkaValue.OFFSET:
            return None if beside.topic is None else batch.offset
    return None if beside.topic is None else pa.repeat(pa.scalar(beside.topic, pa.large_string()), count)


def _as_text(one: Field, found: pa.Array) -> pa.Array | None:
    """Return bytes as the texts of a field of texts; None if it is of another type, or one of them is not UTF-8."""
    if one.type != STRING:
        return None
    try:
        return found.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None


def _convert(one: Field, found: pa.Array, batch: RawBatch, zone: ZoneInfo) -> tuple[pa.Array, dict[int, RecordError]]:
    """Convert each distinct value by the reference, of a text in a pattern each with the timestamp of its record."""
    texts, stamps = found.to_pylist(), batch.beside.timestamp_ms
    times = [None] * len(texts) if stamps is None or not one.pattern else stamps.to_pylist()
    values = list(zip(texts, times, strict=True))
    converted: dict[object, Physical] = {}
    mistakes: dict[object, RecordError] = {}
    for value in {*values}:
        try:
            converted[value] = convert_beside(one, value[0], zone, value[1])
        except RecordError as error:
            converted[value], mistakes[value] = None, error
    bad = {row: mistakes[value] for row, value in enumerate(values) if value in mistakes} if mistakes else {}
    return pa.array([converted[value] for value in values], one.type.arrow), bad


__all__ = ["StreamDecoder", "event_decoder"]
