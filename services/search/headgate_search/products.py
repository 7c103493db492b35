"""The checks of a product change, and the columns computed from it.

A change that breaks a rule here is rejected with the reason; it neither changes nor deletes anything. The join, not
this module, decides which change of a product holds.
"""

from __future__ import annotations

import polars as pl

from streamcore.codes import Code
from streamcore.schema import OFFSET, PARTITION

UPSERT, DELETE = "upsert", "delete"
#: Columns that say why a change cannot be used, and what machines know it by.
CODE, REASON = "unusable_code", "unusable_reason"
#: OpenSearch takes no longer id.
_MAX_ID_BYTES = 512
#: The fields of a product, besides its id and the time of its change.
FIELDS = ("name", "description", "category", "price", "currency", "in_stock")
#: The place of a change in its topic: of two with one ``updated_at`` the later holds.
LOG_POSITION = ("source_partition", "source_offset")

_ID, _OP = pl.col("product_id"), pl.col("op")


class ProductCode(Code):
    """Codes of product changes that the search service rejects."""

    UNUSABLE = (
        "unusable",
        "A change of a product has no usable id or operation, or an upsert lacks a name or a price.",
        "Correct the field that `reason` names, and send the change again.",
    )


#: Reasons and the changes that they are about, the first that is true counts.
_FAULTS = {
    "product_id is empty": _ID == "",
    f"product_id is longer than {_MAX_ID_BYTES} bytes": _ID.str.len_bytes() > _MAX_ID_BYTES,
    "op is neither upsert nor delete": ~_OP.is_in([UPSERT, DELETE]),
    "an upsert needs a name": (_OP == UPSERT) & (pl.col("name").fill_null("") == ""),
    "an upsert needs a price": (_OP == UPSERT) & pl.col("price").is_null(),
    "price is below zero": (_OP == UPSERT) & (pl.col("price") < 0).fill_null(value=False),
}


def validated(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the changes with ``CODE`` and ``REASON``, null for valid changes."""
    reason = pl.coalesce(pl.when(fault).then(pl.lit(reason)) for reason, fault in _FAULTS.items()).alias(REASON)
    return rows.with_columns(reason).with_columns(
        pl.when(pl.col(REASON).is_not_null()).then(pl.lit(ProductCode.UNUSABLE.value)).alias(CODE)
    )


def as_documents(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert changes to documents: ``id``, ``deleted``, the fields (null in a deletion), the change's log
    position."""
    deleted = _OP == DELETE
    return rows.select(
        _ID.alias("id"),
        deleted.alias("deleted"),
        *(pl.when(~deleted).then(pl.col(name)).alias(name) for name in FIELDS),
        pl.col("updated_at"),
        pl.col(PARTITION).cast(pl.Int64).alias(LOG_POSITION[0]),
        pl.col(OFFSET).alias(LOG_POSITION[1]),
        pl.col("^__.*$"),
    )
