"""The documents of the demo shop's products for the search app: entries of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final  # entries of a document are made of anything

#: How a change of a product becomes a document.
PRODUCT_CHANGES: Final[Mapping[str, Any]] = {
    "id": "product_id",
    "deleted": "op = 'delete'",
    "fields": {
        name: name for name in ("name", "description", "category", "price", "currency", "in_stock", "updated_at")
    },
    "rules": {
        "op": "op in ('upsert', 'delete')",
        "name": "op = 'delete' or coalesce(name, '') <> ''",
        "price": "op = 'delete' or coalesce(price, -1) >= 0",
    },
}
#: What is counted for a product: views, and units and revenue of successful payments less those of refunds.
PRODUCT_COUNTS: Final[Mapping[str, Any]] = {
    "id": "product_id",
    "counts": {
        "views": {"when": "type = 'view'"},
        "units": {
            "when": "type in ('payment', 'refund') and status = 'ok'",
            "add": "case when type = 'refund' then -quantity else quantity end",
        },
        "revenue": {
            "when": "type in ('payment', 'refund') and status = 'ok'",
            "add": "case when type = 'refund' then -amount else amount end",
        },
    },
}
