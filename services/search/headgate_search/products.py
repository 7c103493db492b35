"""Checks product changes, and converts valid ones to the rows of documents.

A change that fails a check is rejected with a reason, and changes no document. The join of the topology, not this
module, decides which change of a product is the latest.
"""

from __future__ import annotations

import polars as pl

from streamcore.codes import Code
from streamcore.schema import OFFSET, PARTITION

UPSERT, DELETE = "upsert", "delete"
#: Columns with the code and the reason of a rejected change; null for a valid one.
CODE, REASON = "unusable_code", "unusable_reason"
#: The longest id that OpenSearch accepts.
_MAX_ID_BYTES = 512
#: The fields of a product, besides its id and the time of its change.
FIELDS = ("name", "description", "category", "price", "currency", "in_stock")
#: The position of a change in its topic. Of two changes with the same ``updated_at``, the later position is the latest.
LOG_POSITION = ("source_partition", "source_offset")

_ID, _OP = pl.col("product_id"), pl.col("op")


class ProductCode(Code):
    """Codes of product changes that the search service rejects."""

    UNUSABLE = (
        "unusable",
        "A change of a product has no usable id or operation, or an upsert lacks a name or a price.",
        "Correct the field that `reason` names, and send the change again.",
    )


#: The reason of each fault and the condition of the changes that have it. A change gets the first reason that applies.
_FAULTS = {
    "product_id is empty": _ID == "",
    f"product_id is longer than {_MAX_ID_BYTES} bytes": _ID.str.len_bytes() > _MAX_ID_BYTES,
    "op is neither upsert nor delete": ~_OP.is_in([UPSERT, DELETE]),
    "an upsert needs a name": (_OP == UPSERT) & (pl.col("name").fill_null("") == ""),
    "an upsert needs a price": (_OP == UPSERT) & pl.col("price").is_null(),
    "price is below zero": (_OP == UPSERT) & (pl.col("price") < 0).fill_null(value=False),
}


def add_faults(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``CODE`` and ``REASON`` to each change; both are null for a valid change."""
    reason = pl.coalesce(pl.when(fault).then(pl.lit(reason)) for reason, fault in _FAULTS.items()).alias(REASON)
    return rows.with_columns(reason).with_columns(
        pl.when(pl.col(REASON).is_not_null()).then(pl.lit(ProductCode.UNUSABLE.value)).alias(CODE)
    )


def to_documents(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert valid changes to ``id``, ``deleted``, ``FIELDS`` (null in a deletion), ``updated_at`` and
    ``LOG_POSITION``."""
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
