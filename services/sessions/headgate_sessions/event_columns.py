"""Copies the fields that the settings name into columns that have the same names for every stream.

``event_id`` and ``user_id`` (text), ``at`` (event time), ``type``, ``page``, ``step`` (the type; null for a failed
event), ``conversion`` (1 for a conversion, else null), ``money`` (the change of the revenue; null if the event has
none), ``currency`` (of ``money``), and ``gap_ms`` if the settings have gaps by type.
"""

from __future__ import annotations

import polars as pl

from headgate_sessions.settings import DEFAULT_TYPE, FieldsDocument, SessionsSettings
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.stream import Stream

#: The code of ISO 4217 for a transaction without a currency.
NO_CURRENCY = "XXX"

_COLUMNS = ("event_id", "user_id", "at", "type", "page", "step", "conversion", "money", "currency")


def prepare_events(events: Stream, settings: SessionsSettings, schema: StreamSchema) -> Stream:
    """Return the stream with the columns above and no others. ``ConfigError`` names a field that does not exist."""
    fields = settings.fields
    _check_fields(fields, settings, schema)
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
    return pl.lit(DEFAULT_TYPE) if fields.type is None else pl.col(fields.type)


def _is_successful(settings: SessionsSettings) -> pl.Expr:
    if settings.failed is None:
        return pl.lit(True)
    return ~pl.col(settings.failed.field).is_in(settings.failed.values).fill_null(False)


def _money(step: pl.Expr, settings: SessionsSettings) -> pl.Expr:
    """Return the signed change of the revenue: the product of the amount fields; null if the type changes no
    revenue."""
    first, *others = (pl.col(name) for name in settings.fields.amount)
    amount = first
    for other in others:
        amount = amount * other
    revenue = settings.revenue
    return pl.when(step.is_in(revenue.adds)).then(amount).when(step.is_in(revenue.subtracts)).then(-amount)


def _currency(step: pl.Expr, settings: SessionsSettings) -> pl.Expr:
    """Return the currency of the money; null where there is no money."""
    field = settings.fields.currency
    currency = pl.lit(NO_CURRENCY) if field is None else pl.col(field).fill_null(NO_CURRENCY)
    return pl.when(_money(step, settings).is_not_null()).then(currency)


def _gap(settings: SessionsSettings) -> pl.Expr:
    """Return the gap in milliseconds after each event."""
    gap = settings.gap
    return _type(settings.fields).replace_strict(gap.by_type, default=gap.gap_ms, return_dtype=pl.Int64)


def _check_fields(fields: FieldsDocument, settings: SessionsSettings, schema: StreamSchema) -> None:
    """Check that every named field exists and has a suitable type. ``ConfigError`` names the first that does not."""
    kinds_by_entry = {
        "fields.user": (fields.user, None),
        "fields.event_id": (fields.event_id, None),
        "fields.type": (fields.type, ("string",)),
        "fields.page": (fields.page, None),
        "fields.currency": (fields.currency, ("string",)),
        "failed.field": (settings.failed.field if settings.failed else None, ("string",)),
    } | {f"fields.amount.{n}": (name, ("long", "decimal")) for n, name in enumerate(fields.amount)}
    for entry, (name, kinds) in kinds_by_entry.items():
        if name is None:
            continue
        field = schema.get(name)
        if field is None:
            raise ConfigError(f"{entry}: stream {schema.name} has no field {name!r}; it has {', '.join(schema.names)}")
        if kinds is not None and field.type.kind.value not in kinds:
            raise ConfigError(f"{entry}: field {name!r} is {field.type}; it must be {' or '.join(kinds)}")
