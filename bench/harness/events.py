"""Generates events as columns of numbers, and encodes them as JSON of about 200 bytes each for the broker.

Equal ``EventSet`` values give the same events, in the same partitions at the same offsets. The oracles read the
columns, so they do not depend on a JSON parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import orjson
import polars as pl

FORMAT = 2  # part of the topics' names: increase it when the events change
BASE_MS = 1_767_571_200_000  # 2026-01-05T00:00:00Z
STREAM = "bench"
TYPES = ("view", "search", "cart_add", "cart_drop", "checkout", "payment", "refund", "login", "signup", "review")
COUNTRIES = ("DE", "FR", "GB", "US", "ES", "IT", "PL", "NL", "SE", "NO", "DK", "FI", "PT", "IE", "AT", "CH", "BE", "CZ")
CURRENCIES = ("EUR", "USD", "GBP", "SEK")
STATUSES = ("ok", "ok", "ok", "ok", "ok", "ok", "ok", "declined", "failed", "pending")
MERCHANTS = 2_000
MAX_CENTS = 1_000_000
MAX_RISK = 1_000_000
_CHUNK = 200_000

FIELDS = {
    "event_id": "string not null",
    "ts": "timestamp not null",
    "type": "string not null",
    "user_id": "string not null",
    "country": "string",
    "currency": "string",
    "merchant": "string",
    "status": "string",
    "amount": "decimal(12,2)",
    "risk": "double",
    "quantity": "long",
}
#: The stream file of the app under test.
SCHEMA = {"name": STREAM, "event_time": "ts", "event_id": "event_id", "keys": [["user_id"]], "fields": FIELDS}


#: What ``EventSet.with_context`` adds to each event: 48 values in objects, and 18 objects in arrays.
CONTEXT = {
    "identity": {
        "type": "AssumedRole",
        "principal": "role-1234567890:session",
        "session": {
            "issuer": {"type": "Role", "account": "123456789012", "name": "payments"},
            "attributes": {"mfa": False, "created": "2026-01-05T00:00:00Z"},
        },
    },
    "request": {
        "place": {"city": "Zürich", "latitude": 47.3769, "longitude": 8.5417},
        "items": [{"sku": f"sku-{i}", "quantity": i, "price": i * 1.25} for i in range(6)],
        "dry_run": False,
        "token": "d0ee4a0b-7ab1-4a4e-9d6e-0f2f3f4b5c6d",
    },
    "response": {
        "charge": {"id": "ch_1234567890", "paid": True, "fee": 0.35},
        "tags": [{"key": f"tag-{i}", "value": f"value of tag {i}", "inherited": i % 2 == 0} for i in range(9)],
        "note": 'said "yes"\non the phone',
    },
    "resources": [{"id": f"arn:key/{i}/0f2f3f4b5c6d", "type": "Key", "owner": "payments"} for i in range(3)],
    "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "client": {"version": "1.08", "region": "eu-central-1", "address": "198.51.100.17", "port": 50412},
    "tls": {"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "resumed": False},
    "trace": {f"step_{i:02}": {"at": 1_767_571_200_000 + i, "name": f"step {i}"} for i in range(8)},
}
#: A field for each value of ``CONTEXT`` that is in no array, and for each array.
CONTEXT_FIELDS = {
    "identity_type": {"type": "string", "from": "context.identity.type"},
    "principal": {"type": "string", "from": "context.identity.principal"},
    "issuer_type": {"type": "string", "from": "context.identity.session.issuer.type"},
    "issuer_account": {"type": "string", "from": "context.identity.session.issuer.account"},
    "issuer_name": {"type": "string", "from": "context.identity.session.issuer.name"},
    "mfa": {"type": "boolean", "from": "context.identity.session.attributes.mfa"},
    "created": {"type": "timestamp", "from": "context.identity.session.attributes.created"},
    "city": {"type": "string", "from": "context.request.place.city"},
    "latitude": {"type": "double", "from": "context.request.place.latitude"},
    "longitude": {"type": "double", "from": "context.request.place.longitude"},
    "items": {"type": "array<struct<sku:string, quantity:long, price:double>>", "from": "context.request.items"},
    "dry_run": {"type": "boolean", "from": "context.request.dry_run"},
    "token": {"type": "string", "from": "context.request.token"},
    "charge_id": {"type": "string", "from": "context.response.charge.id"},
    "paid": {"type": "boolean", "from": "context.response.charge.paid"},
    "fee": {"type": "decimal(9,2)", "from": "context.response.charge.fee"},
    "tags": {"type": "array<struct<key:string, value:string, inherited:boolean>>", "from": "context.response.tags"},
    "note": {"type": "string", "from": "context.response.note"},
    "resources": {"type": "array<struct<id:string, type:string, owner:string>>", "from": "context.resources"},
    "agent": {"type": "string", "from": "context.agent"},
    **{n: {"type": "string", "from": f"context.client.{n}"} for n in ("version", "region", "address")},
    "port": {"type": "long", "from": "context.client.port"},
    "tls": {"type": "string", "from": "context.tls.version"},
    "cipher": {"type": "string", "from": "context.tls.cipher"},
    "resumed": {"type": "boolean", "from": "context.tls.resumed"},
    **{f"step_{i:02}_at": {"type": "timestamp", "from": f"context.trace.step_{i:02}.at"} for i in range(8)},
    **{f"step_{i:02}": {"type": "string", "from": f"context.trace.step_{i:02}.name"} for i in range(8)},
}


@dataclass(frozen=True, slots=True)
class EventSet:
    """The settings of generated events. All events of a user are in one partition.

    ``events``, ``users``, ``partitions``: their number. ``span_ms``: the event time from the first event to the last.
    ``with_context``: whether each has ``CONTEXT`` beside its fields.
    """

    events: int
    users: int = 100_000
    span_ms: int = 3_600_000
    partitions: int = 4
    seed: int = 1
    with_context: bool = False

    @property
    def topic(self) -> str:
        """Return the topic's name, which contains every setting that the events depend on."""
        minutes = self.span_ms // 60_000
        name = f"bench-events-v{FORMAT}-{self.events}-u{self.users}-m{minutes}-p{self.partitions}-s{self.seed}"
        return f"{name}-context" if self.with_context else name

    def columns(self) -> pl.DataFrame:
        """Return every event with partition and offset: integers, and for texts the index into the tuples above.

        ``merchant`` is null in one event of twenty; ``amount`` is in cents, ``risk`` in millionths.
        """
        draw, n = np.random.default_rng(self.seed), self.events
        frame = pl.DataFrame(
            {
                "number": np.arange(n, dtype=np.int64),
                "ts": BASE_MS + np.arange(n, dtype=np.int64) * self.span_ms // max(1, n),
                "user": draw.integers(0, self.users, n, dtype=np.int32),
                "type": draw.integers(0, len(TYPES), n, dtype=np.int8),
                "country": draw.integers(0, len(COUNTRIES), n, dtype=np.int8),
                "currency": draw.integers(0, len(CURRENCIES), n, dtype=np.int8),
                "merchant": draw.integers(0, MERCHANTS, n, dtype=np.int16),
                "status": draw.integers(0, len(STATUSES), n, dtype=np.int8),
                "amount": draw.integers(1, MAX_CENTS, n, dtype=np.int32),
                "risk": draw.integers(0, MAX_RISK, n, dtype=np.int32),
                "quantity": draw.integers(1, 10, n, dtype=np.int32),
            }
        )
        no_merchant = pl.Series(draw.integers(0, 20, n, dtype=np.int8)) == 0
        partitioned = frame.with_columns(
            merchant=pl.when(~no_merchant).then(pl.col("merchant")),
            partition=(pl.col("user") % self.partitions).cast(pl.Int32),
        )
        return partitioned.with_columns(offset=pl.int_range(pl.len(), dtype=pl.Int64).over("partition"))


def user_id(number: pl.Expr) -> pl.Expr:
    """Return the text of a user's number."""
    return pl.format("u{}", number.cast(pl.String).str.zfill(7))


def merchant_id(number: pl.Expr) -> pl.Expr:
    """Return the text of a merchant's number."""
    return pl.format("m{}", number.cast(pl.String).str.zfill(5))


def _name_values(name: str, values: tuple[str, ...]) -> pl.Expr:
    return pl.col(name).replace_strict(list(range(len(values))), list(values), return_dtype=pl.String)


def to_texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the fields of the events, with texts for the indexes, and ``amount`` and ``risk`` as decimal text."""
    return frame.select(
        event_id=pl.format("e{}", pl.col("number").cast(pl.String).str.zfill(12)),
        ts="ts",
        type=_name_values("type", TYPES),
        user_id=user_id(pl.col("user")),
        country=_name_values("country", COUNTRIES),
        currency=_name_values("currency", CURRENCIES),
        merchant=merchant_id(pl.col("merchant")),
        status=_name_values("status", STATUSES),
        amount=format_decimal(pl.col("amount"), 2),
        risk=format_decimal(pl.col("risk"), 6),
        quantity="quantity",
    )


def format_decimal(units: pl.Expr, scale: int) -> pl.Expr:
    """Format a whole number of 10**-scale as decimal text."""
    fraction = (units % 10**scale).cast(pl.String).str.zfill(scale)
    return pl.format("{}.{}", units // 10**scale, fraction)


def to_json(frame: pl.DataFrame, *, with_context: bool = False) -> pl.Series:
    """Encode the events as JSON without spaces, with the fields in the schema's order, as most producers do."""
    context = f',"context":{orjson.dumps(CONTEXT).decode()}' if with_context else ""
    merchant = pl.when(pl.col("merchant").is_null()).then(pl.lit("null")).otherwise(pl.format('"{}"', "merchant"))
    line = pl.format(
        '{}"event_id":"{}","ts":{},"type":"{}","user_id":"{}","country":"{}","currency":"{}","merchant":{},'
        '"status":"{}","amount":{},"risk":{},"quantity":{}{}',
        pl.lit("{"),
        "event_id",
        "ts",
        "type",
        "user_id",
        "country",
        "currency",
        merchant,
        "status",
        "amount",
        "risk",
        "quantity",
        pl.lit(f"{context}}}"),
    )
    return to_texts(frame).select(line=line)["line"]


def batches(frame: pl.DataFrame, *, with_context: bool = False) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Yield partitions, Kafka keys and JSON of the events, in batches."""
    for start in range(0, frame.height, _CHUNK):
        part = frame[start : start + _CHUNK]
        yield (
            part["partition"].to_list(),
            part.select(k=user_id(pl.col("user")))["k"].to_list(),
            to_json(part, with_context=with_context).to_list(),
        )
