"""Corrupt records: records that no decoder can accept, and the form of a good one.

Every kind of rejection of ``streamcore.decode`` is here, written by hand.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import orjson

from headgate.demo.shop.settings import Document, Value


def write(event: Document) -> bytes:
    """Encode a valid record. Fields without a value are left out, as most producers do."""
    return orjson.dumps({name: value for name, value in event.items() if value is not None})


def corrupt(rng: random.Random, event: Document) -> bytes | None:
    """Encode an event without ``product_id``, ``amount`` and ``status`` with one fault in it."""
    return rng.choice(_FAULTS)(event)


def _more(text: bytes) -> Callable[[Document], bytes]:
    """Return a function that adds a member to the object."""
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
    _more(b'"ts":1'),
    _more(b'"amount":NaN'),
    _more(b'"amount":12345678901.00'),
    _more(b'"status":{"ok":true}'),
    _more(b'"status":' + b"[" * 100 + b"]" * 100),
    _more(b'"product_id":"' + b"x" * 300_000 + b'"'),
)
