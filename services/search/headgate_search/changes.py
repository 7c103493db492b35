"""The steps that turn the records of a stream into changes of documents.

The join of the topology, not this module, decides which change of a document is the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import CODE, REASON
from streamcore.codes import Code
from streamcore.schema import OFFSET, PARTITION

ID, DELETED = "id", "deleted"
#: The position of a change in its topic. Of two changes with one event time, the later position is the latest.
LOG_POSITION = ("source_partition", "source_offset")
#: The longest id that OpenSearch accepts.
MAX_ID_BYTES = 512


class ChangeCode(Code):
    """Codes of changes of documents that the search service rejects, beside those of mappings."""

    UNUSABLE_ID = (
        "unusable_id",
        f"The document's id is empty or has more than {MAX_ID_BYTES} bytes.",
        "Correct the expression `id` of the stream, or the record.",
    )


@dataclass(frozen=True)
class MapChanges:
    """Computes ``ID``, ``DELETED``, the fields of the document (null in a deletion) and ``LOG_POSITION`` of changes.

    A rejected change has ``CODE`` and ``REASON``. ``fields``: the names of the fields.
    """

    stage: MappingStage
    fields: tuple[str, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        mapped = self.stage(rows)
        length = pl.col(ID).str.len_bytes()
        too_long = pl.when(length > MAX_ID_BYTES).then(pl.lit(f"the id is longer than {MAX_ID_BYTES} bytes"))
        fault = pl.when(length == 0).then(pl.lit("the id is empty")).otherwise(too_long)
        deleted = pl.col(DELETED).fill_null(value=False) if DELETED in mapped.columns else pl.repeat(False, pl.len())
        reason = pl.coalesce(REASON, fault).alias(REASON)
        checked = mapped.with_columns(deleted.alias(DELETED), reason).with_columns(
            pl.coalesce(CODE, pl.when(pl.col(REASON).is_not_null()).then(pl.lit(ChangeCode.UNUSABLE_ID.value))).alias(
                CODE
            )
        )
        return checked.with_columns(
            *(pl.when(~pl.col(DELETED)).then(pl.col(name)).alias(name) for name in self.fields),
            pl.col(PARTITION).cast(pl.Int64).alias(LOG_POSITION[0]),
            pl.col(OFFSET).alias(LOG_POSITION[1]),
        )


def is_inactive(columns: list[str]) -> pl.Expr:
    """Return the condition that all counts of a document are 0 or null."""
    return pl.all_horizontal(pl.col(name).fill_null(0) == 0 for name in columns)
