"""Encodes the shop's events, and corrupt ones, as other systems write them: access-log lines, CSV lines, Avro.

The encoders are pure functions written by hand, without a library of a format. What a format cannot hold is lost (the
milliseconds, in an access log), as it is in practice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from headgate.demo.shop.settings import RecordFate, ShopRecord

Body = Mapping[str, str | int | float | None]

CSV_COLUMNS: Final = ("event_id", "at", "type", "user", "product", "quantity", "amount", "country", "ip")
#: The Avro schema of a login.
LOGIN_SCHEMA: Final = {
    "type": "record",
    "name": "Login",
    "fields": [
        {"name": "event_id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": "string"},
        {"name": "ok", "type": "boolean"},
        {"name": "country", "type": "string"},
        {"name": "ip", "type": "string"},
    ],
}
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def access_log_line(body: Body) -> bytes:
    """Encode a view; its time is in UTC, to the second."""
    at = _time(body)
    clock = f"{at.day:02}/{_MONTHS[at.month - 1]}/{at.year}:{at:%H:%M:%S} +0000"
    request = f"GET /products/{body['product_id']}?event={body['event_id']}&country={body['country']} HTTP/1.1"
    return f'{body["ip"]} - {body.get("user_id") or "-"} [{clock}] "{request}" 200 5120'.encode()


def csv_line(body: Body) -> bytes:
    """Encode a cart event or a checkout; its time is ISO 8601 text, its amount has a decimal comma."""
    at = _time(body).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    quantity = "" if body.get("quantity") is None else str(body["quantity"])
    amount = f"{float(str(body['amount'])):.2f}".replace(".", ",")
    user, product = body.get("user_id") or "-", body.get("product_id") or "-"
    cells = [body["event_id"], at, body["type"], user, product, quantity, amount, body["country"], body["ip"]]
    return ";".join(map(str, cells)).encode()


def avro_datum(body: Body) -> bytes:
    """Encode a login with ``LOGIN_SCHEMA``, without a header."""
    ok = b"\1" if body.get("status") == "ok" else b"\0"
    texts = [_avro_text(str(body[name])) for name in ("event_id", "user_id", "country", "ip")]
    return texts[0] + _avro_long(int(str(body["ts"]))) + texts[1] + ok + texts[2] + texts[3]


def _avro_long(value: int) -> bytes:
    """Encode a long as Avro does: zigzag, then seven bits per byte, the lowest first."""
    rest, encoded = value << 1 ^ value >> 63, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _avro_text(text: str) -> bytes:
    return _avro_long(len(text.encode())) + text.encode()


def _time(body: Body) -> datetime:
    ms = int(str(body["ts"]))
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


# --- corrupt values
# -------------------------------------------------------------------------------------------------------

CORRUPT_LINES: Final = (
    b"\x16\x03\x01\x02\x00\x01",
    b'10.0.0.1 - u1 [now] "GET /products/p1?event=x HTTP/1.1" 200 1',
    b'10.0.0.1 - u1 [30/Feb/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1',
    b"",
)
CORRUPT_CSV: Final = (
    b"e1;2026-01-01T10:00:00Z;cart_add",
    b"e1;yesterday;cart_add;u1;p1;1;1,00;GB;10.0.0.1",
    b"e1;2026-01-01T10:00:00Z;cart_add;u1;p1;many;1,00;GB;10.0.0.1",
    b'e1;2026-01-01T10:00:00Z;"cart_add;u1;p1;1;1,00;GB;10.0.0.1',
    b"\xff\xfe;;;;;;;;",
)
CORRUPT_AVRO: Final = (b"", b"\x16e0000", b"\x02", b"\xff" * 12)


def corrupt_value(record: ShopRecord, faults: tuple[bytes, ...]) -> bytes:
    """Return one of the faulty values, chosen by the record's index."""
    return faults[record.index // 4 % len(faults)]


#: The types of events that a format carries, its encoder, and its corrupt values.
Encoding = tuple[frozenset[str], Callable[[Body], bytes], tuple[bytes, ...]]
#: By the name of the format. All other types of events stay JSON.
ENCODINGS: Final[Mapping[str, Encoding]] = {
    "access-log": (frozenset({"view"}), access_log_line, CORRUPT_LINES),
    "carts": (frozenset({"cart_add", "checkout"}), csv_line, CORRUPT_CSV),
    "logins": (frozenset({"login"}), avro_datum, CORRUPT_AVRO),
}


def corrupt_format(record: ShopRecord) -> str | None:
    """Return the format of a corrupt record; None: JSON."""
    return (None, *ENCODINGS)[record.index % (1 + len(ENCODINGS))]


def encode(record: ShopRecord) -> tuple[str | None, bytes | None]:
    """Return the record's format (None: JSON), and its encoded value."""
    if record.fate is RecordFate.DEAD:
        format_name = corrupt_format(record)
        return format_name, record.value if format_name is None else corrupt_value(record, ENCODINGS[format_name][2])
    body = json.loads(record.value or b"")
    for format_name, (types, encode_event, _) in ENCODINGS.items():
        if body["type"] in types:
            return format_name, encode_event(body)
    return None, record.value
