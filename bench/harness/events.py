"""Generates events as columns of numbers, and encodes them as JSON of about 200 bytes each for the broker.

Equal ``EventSet`` values give the same events, in the same partitions at the same offsets. The oracles read the
columns, so they do not depend on a JSON parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
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

#: The stream file of the app under test.
SCHEMA = {
    "name": STREAM,
    "event_time": "ts",
    "event_id": "event_id",
    "keys": [["user_id"]],
    "fields": {
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
    },
}


@dataclass(frozen=True, slots=True)
class EventSet:
    """The settings of generated events. All events of a user are in one partition.

    ``events``, ``users``, ``partitions``: their number. ``span_ms``: the event time from the first event to the last.
    """

    events: int
    users: int = 100_000
    span_ms: int = 3_600_000
    partitions: int = 4
    seed: int = 1

    @property
    def topic(self) -> str:
        """Return the topic's name, which contains every setting that the events depend on."""
        minutes = self.span_ms // 60_000
        return f"bench-events-v{FORMAT}-{self.events}-u{self.users}-m{minutes}-p{self.partitions}-s{self.seed}"

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


def to_json(frame: pl.DataFrame) -> pl.Series:
    """Encode the events as JSON without spaces, with the fields in the schema's order, as most producers do."""
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
        pl.lit("}"),
    )
    return to_texts(frame).select(line=line)["line"]


def batches(frame: pl.DataFrame) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Yield partitions, Kafka keys and JSON of the events, in batches."""
    for start in range(0, frame.height, _CHUNK):
        part = frame[start : start + _CHUNK]
        yield (
            part["partition"].to_list(),
            part.select(k=user_id(pl.col("user")))["k"].to_list(),
            to_json(part).to_list(),
        )
