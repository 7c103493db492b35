"""The changes of the shop's products: a stream beside the shop's events.

A change with index ``i`` has the time of the event with index ``i``. Each of the first ``PRODUCTS`` indexes creates one
product. After them, every ``EVERY``-th index changes a product: mostly its price, sometimes its name, or it is sold out
or deleted. Popular products change most often, so deleted ones are created again. Some changes are duplicates, some are
out of order, and a few are corrupt. A record is a pure function of the settings and its index.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from headgate.demo.shop.behaviours import PRODUCTS
from headgate.demo.shop.corrupt_records import write
from headgate.demo.shop.settings import Document, RecordFate, ShopRecord, ShopSettings

#: After the creation of all products, one of this many indexes has a change.
EVERY: Final = 20
#: The time of an out-of-order change is earlier by at most this.
MAX_DISORDER_MS: Final = 7_200_000
_DUPLICATE_WITHIN: Final = 30  # changes

_KINDS: Final = ("mug", "lantern", "cushion", "notebook", "candle", "clock", "basket", "scarf", "teapot", "garland")
_LOOKS: Final = ("red", "white", "enamel", "woollen", "vintage", "striped", "small", "large", "painted", "glass")
_CATEGORIES: Final = ("kitchen", "home", "paper", "gifts", "garden")

_Change = Callable[[random.Random, Document], Document]


def records(settings: ShopSettings, start: int, stop: int | None) -> Iterator[ShopRecord]:
    """Yield the changes with an index from ``start`` to before ``stop`` (None: without end), in order; not every index
    has one."""
    index = start
    while stop is None or index < stop:
        if index < PRODUCTS or index % EVERY == 0:
            yield record(settings, index)
        index += 1


def record(settings: ShopSettings, index: int) -> ShopRecord:
    """Return the change with this index, which must have one."""
    if index < PRODUCTS:
        event_ms = settings.time_ms(index)
        return _record(_product(settings, f"p{index}", event_ms), index)
    rng = random.Random(f"{settings.seed}/products/{index}")  # noqa: S311 - the stream must be reproducible
    before = index - EVERY * (1 + rng.randrange(_DUPLICATE_WITHIN))
    if rng.random() < 0.05 and before >= PRODUCTS:
        original = record(settings, before)
        return ShopRecord(index, original.key, original.value, original.fate, original.event_ms)
    return _change(rng, settings, index)


def _change(rng: random.Random, settings: ShopSettings, index: int) -> ShopRecord:
    late_ms = rng.randrange(MAX_DISORDER_MS) if rng.random() < 0.1 else 0
    product = _product(settings, f"p{int(rng.paretovariate(0.4)) % PRODUCTS}", settings.time_ms(index) - late_ms)
    if rng.random() < 0.03:
        return _corrupt_record(rng, product, index)
    (change,) = rng.choices(list(_CHANGES), weights=list(_CHANGES.values()))
    return _record(change(rng, product), index)


def _product(settings: ShopSettings, product_id: str, updated_ms: int) -> dict[str, str | int | float | None]:
    """Return the record fields that create a product in its initial form."""
    rng = random.Random(f"{settings.seed}/{product_id}")  # noqa: S311
    look, kind = rng.choice(_LOOKS), rng.choice(_KINDS)
    return {
        "product_id": product_id,
        "op": "upsert",
        "name": f"{look.capitalize()} {kind}",
        "description": f"A {look} {kind}, number {product_id[1:]} of our collection.",
        "category": rng.choice(_CATEGORIES),
        "price": (100 + int(rng.expovariate(1 / 2_000))) / 100,
        "currency": "EUR",
        "in_stock": True,
        "updated_at": updated_ms,
    }


def _change_price(rng: random.Random, product: Document) -> Document:
    return {**product, "price": (100 + int(rng.expovariate(1 / 2_000))) / 100}


def _rename(rng: random.Random, product: Document) -> Document:
    return {**product, "name": f"{rng.choice(_LOOKS).capitalize()} {rng.choice(_KINDS)}", "description": None}


def _sold_out(_: random.Random, product: Document) -> Document:
    return {**product, "in_stock": False}


def _delete(_: random.Random, product: Document) -> Document:
    return {name: product[name] for name in ("product_id", "updated_at")} | {"op": "delete"}


_CHANGES: Final[dict[_Change, int]] = {_change_price: 60, _rename: 10, _sold_out: 15, _delete: 15}


def _record(change: Document, index: int) -> ShopRecord:
    updated_ms = change["updated_at"]
    assert isinstance(updated_ms, int)
    return ShopRecord(index, str(change["product_id"]).encode(), write(change), RecordFate.EVENT, updated_ms)


# --- corrupt changes ------------------------------------------------------------------------------------------------


def _corrupt_record(rng: random.Random, product: Document, index: int) -> ShopRecord:
    updated_ms = product["updated_at"]
    assert isinstance(updated_ms, int)
    value = rng.choice(_FAULTS)(product)
    return ShopRecord(index, str(product["product_id"]).encode(), value, RecordFate.DEAD, updated_ms)


def _with(**fields: str | float | None) -> Callable[[Document], bytes]:
    return lambda product: write({**product, **fields})


_FAULTS: Final[tuple[Callable[[Document], bytes | None], ...]] = (
    lambda _: None,
    lambda product: write(product)[:-8],
    _with(op="replace"),
    _with(op=None),
    _with(name=None),
    _with(name=""),
    _with(price=None),
    _with(price=-1),
    _with(price=9.999),
    _with(price="cheap"),
    _with(product_id=""),
    _with(product_id="p" * 600),
    _with(updated_at="now"),
)
