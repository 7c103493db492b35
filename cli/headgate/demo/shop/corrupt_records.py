"""Encodes valid records as JSON, and corrupt ones: records that the decoder must reject.

The corrupt records are written by hand; together they cover every kind of rejection of ``streamcore.decode``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import orjson

from headgate.demo.shop.settings import Document, Value


def write(event: Document) -> bytes:
    """Encode an event as JSON, without its fields that are None."""
    return orjson.dumps({name: value for name, value in event.items() if value is not None})


def corrupt(rng: random.Random, event: Document) -> bytes | None:
    """Encode an event with one random fault. ``event`` must not have ``product_id``, ``amount`` or ``status``."""
    return rng.choice(_FAULTS)(event)


def _append_member(text: bytes) -> Callable[[Document], bytes]:
    """Return a function that encodes an event and adds ``text``, a member of a JSON object, at its end."""
    return lambda event: write(event)[:-1] + b"," + text + b"}"


def _with_fields(**fields: Value) -> Callable[[Document], bytes]:
    return lambda event: write({**event, **fields})


_FAULTS: Final[tuple[Callable[[Document], bytes | None], ...]] = (
    lambda _: None,
    lambda _: b"",
    lambda event: write(event)[:-10],
    lambda event: write(event) + b"}",
    lambda event: b"[" + write(event) + b"]",
    lambda event: write(event).replace(b'"type":"', b'"type":"\xff\xfe'),
    _with_fields(event_id=None),
    _with_fields(type=None, typ="view"),
    _with_fields(ts="yesterday"),
    _with_fields(ts=4_070_908_800_000),  # 2099
    _with_fields(ts=-1),
    _with_fields(quantity=1.5),
    _with_fields(amount=0.001),
    _with_fields(amount="12,50"),
    _with_fields(coupon="SAVE10"),
    _append_member(b'"ts":1'),
    _append_member(b'"amount":NaN'),
    _append_member(b'"amount":12345678901.00'),
    _append_member(b'"status":{"ok":true}'),
    _append_member(b'"status":' + b"[" * 100 + b"]" * 100),
    _append_member(b'"product_id":"' + b"x" * 300_000 + b'"'),
)
