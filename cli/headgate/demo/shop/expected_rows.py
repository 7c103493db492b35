"""The rows that the etl app must produce from the shop's events in several formats, computed without the product.

The clean row of an event is computed from the record of the shop's stream, not from the bytes that were sent. A
rejected record is identified by its position: topic, partition, offset.
"""

from __future__ import annotations

import hmac
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from headgate.demo.shop.formats import Body, encode
from headgate.demo.shop.settings import RecordFate, ShopRecord

#: The entries of the list ``rates``: euros per unit of a currency.
RATES: Final[Mapping[str, str]] = {"EUR": "1.000000", "GBP": "1.170000", "PLN": "0.235000"}
#: A payment of a larger amount is rejected by the rule ``amount-plausible``.
MAX_AMOUNT: Final = Decimal(5_000)
_CURRENCY: Final = {"GB": "GBP", "PL": "PLN"}
_CENT: Final = Decimal("0.01")

COLUMNS: Final = (
    "id",
    "at_ms",
    "type",
    "source",
    "user",
    "ip",
    "country",
    "product",
    "quantity",
    "card",
    "status",
    "amount",
    "currency",
    "euros",
)

#: A clean row by ``COLUMNS``: time in epoch milliseconds, decimals as text with their places.
Row = tuple[str | int | None, ...]
#: Topic, partition, offset.
RecordPosition = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The expected output of the first ``records`` records. ``rows``: by id. ``dead_letters``: the code of each
    rejected record, by its position; None: any code of the decoder. ``duplicates``: the number of events dropped as
    duplicates."""

    records: int
    rows: Mapping[str, Row]
    dead_letters: Mapping[RecordPosition, str | None]
    duplicates: int


@dataclass(slots=True)
class RowsExpectation:
    """Computes the expected rows; takes the records of the stream one by one, from the first. ``topics``: by the format
    of a record (None: JSON); ``key``: the key of the pseudonyms."""

    partitions: int
    topics: Mapping[str | None, str]
    key: bytes
    _offsets: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    _rows: dict[str, Row] = field(default_factory=dict)
    _letters: dict[RecordPosition, str | None] = field(default_factory=dict)
    _records: int = 0
    _duplicates: int = 0

    def add(self, record: ShopRecord) -> None:
        """Add the next record."""
        format_name, _ = encode(record)
        position = self._next_position(self.topics[format_name], record.partition(self.partitions))
        self._records += 1
        if record.fate is RecordFate.DEAD:
            self._letters[position] = None
            return
        row = self._row(format_name or "payments", json.loads(record.value or b""))
        identity, amount = str(row[0]), row[COLUMNS.index("amount")]
        if amount is not None and Decimal(amount) > MAX_AMOUNT:
            self._letters[position] = "rule:amount-plausible"
        elif record.fate is RecordFate.LATE:
            self._letters[position] = "late"
        elif identity in self._rows:
            self._duplicates += 1
        else:
            self._rows[identity] = row

    def result(self) -> ExpectedRows:
        """Return the expected rows for the records so far."""
        return ExpectedRows(self._records, dict(self._rows), dict(self._letters), self._duplicates)

    def _next_position(self, topic: str, partition: int) -> RecordPosition:
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] += 1
        return topic, partition, offset

    def _row(self, source: str, body: Body) -> Row:
        at = int(str(body["ts"]))
        amount = None if body.get("amount") is None else Decimal(str(body["amount"])).quantize(_CENT)
        currency = None if amount is None else body.get("currency") or _CURRENCY.get(str(body["country"]), "EUR")
        euros = None if amount is None else (amount * Decimal(RATES[str(currency)])).quantize(_CENT, ROUND_HALF_UP)
        return (
            str(body["event_id"]),
            at // 1000 * 1000 if source == "access-log" else at,
            str(body["type"]),
            source,
            self._pseudonym(body.get("user_id")),
            ".".join(str(body["ip"]).split(".")[:3]) + ".0/24",
            str(body["country"]),
            _text(body.get("product_id")),
            None if body.get("quantity") is None else int(str(body["quantity"])),
            _mask_all_but_last(body.get("card"), 2),
            _text(body.get("status")),
            _text(amount),
            _text(currency),
            _text(euros),
        )

    def _pseudonym(self, user: object) -> str | None:
        return None if user is None else hmac.new(self.key, str(user).encode(), "sha256").hexdigest()[:32]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _mask_all_but_last(value: object, characters: int) -> str | None:
    """Return the value with all but its last ``characters`` characters replaced by stars."""
    return None if value is None else str(value)[-characters:].rjust(len(str(value)), "*")
