"""Events as the app sees them: the fields that the settings name, in columns with the same names for all streams.

``event_id`` and ``user_id`` (text), ``at`` (event time), ``type``, ``page``, ``step`` (the type, null of an event that
failed), ``conversion`` (1 or null), ``money`` (signed; null where none was moved), ``currency`` (of the money),
and ``gap_ms`` where types of events have gaps of their own.
"""

from __future__ import annotations

import polars as pl

from headgate_sessions.settings import EVENT, FieldsDocument, SessionsSettings
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.stream import Stream

#: What ISO 4217 calls a transaction without a currency.
NO_CURRENCY = "XXX"

_COLUMNS = ("event_id", "user_id", "at", "type", "page", "step", "conversion", "money", "currency")


def prepare_events(events: Stream, settings: SessionsSettings, schema: StreamSchema) -> Stream:
    """Return the stream with the columns above and no others. ``ConfigError`` names a field that does not exist."""
    fields = settings.fields
    _check(fields, settings, schema)
    step = pl.when(_is_successful(settings)).then(_type(fields))
    return events.map(
        event_id=pl.lit(None, pl.String) if fields.event_id is None else pl.col(fields.event_id).cast(pl.String),
        user_id=pl.col(fields.user).cast(pl.String),
        at=pl.col(schema.event_time),
        type=_type(fields),
        page=pl.col(fields.page).cast(pl.String),
        step=step,
        conversion=pl.when(step == settings.conversion).then(1),
        money=_money(step, settings),
        currency=_currency(step, settings),
        **({"gap_ms": _gap(settings)} if settings.gap.by_type else {}),
    ).select(*_COLUMNS, *(["gap_ms"] if settings.gap.by_type else []))


def _type(fields: FieldsDocument) -> pl.Expr:
    return pl.lit(EVENT) if fields.type is None else pl.col(fields.type)


def _is_successful(settings: SessionsSettings) -> pl.Expr:
    if settings.failed is None:
        return pl.lit(True)
    return ~pl.col(settings.failed.field).is_in(settings.failed.values).fill_null(False)


def _money(step: pl.Expr, settings: SessionsSettings) -> pl.Expr:
    first, *others = (pl.col(name) for name in settings.fields.amount)
    amount = first
    for other in others:
        amount = amount * other
    revenue = settings.revenue
    return pl.when(step.is_in(revenue.adds)).then(amount).when(step.is_in(revenue.subtracts)).then(-amount)


def _currency(step: pl.Expr, settings: SessionsSettings) -> pl.Expr:
    named = settings.fields.currency
    currency = pl.lit(NO_CURRENCY) if named is None else pl.col(named).fill_null(NO_CURRENCY)
    return pl.when(_money(step, settings).is_not_null()).then(currency)


def _gap(settings: SessionsSettings) -> pl.Expr:
    gap = settings.gap
    return _type(settings.fields).replace_strict(gap.by_type, default=gap.gap_ms, return_dtype=pl.Int64)


def _check(fields: FieldsDocument, settings: SessionsSettings, schema: StreamSchema) -> None:
    """Check that every named field exists, and has a text or number type where one is required."""
    wanted = {
        "fields.user": (fields.user, None),
        "fields.event_id": (fields.event_id, None),
        "fields.type": (fields.type, ("string",)),
        "fields.page": (fields.page, None),
        "fields.currency": (fields.currency, ("string",)),
        "failed.field": (settings.failed.field if settings.failed else None, ("string",)),
    } | {f"fields.amount.{n}": (name, ("long", "decimal")) for n, name in enumerate(fields.amount)}
    for where, (name, kinds) in wanted.items():
        if name is None:
            continue
        field = schema.get(name)
        if field is None:
            raise ConfigError(f"{where}: stream {schema.name} has no field {name!r}; it has {', '.join(schema.names)}")
        if kinds is not None and field.type.kind.value not in kinds:
            raise ConfigError(f"{where}: field {name!r} is {field.type}; it must be {' or '.join(kinds)}")
