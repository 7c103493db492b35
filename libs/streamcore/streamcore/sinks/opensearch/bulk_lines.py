"""Encodes the rows of a lane as lines of bulk requests, column by column, without a Python object per row.

If a cut has several rows with one id, the last one is sent. If the server rejects it for its values, the row before it
is sent, and so on: with smaller cuts that row would have been sent too, and the contents of an index must not depend on
the division into cuts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.codes import Code
from streamcore.sinks.opensearch.settings import IndexSpec
from streamcore.sinks.sink import RejectedRow
from streamcore.wire.arrow_ipc import to_table

#: The most bytes of a document's id in UTF-8. With a longer one the server rejects the whole request.
ID_BYTES = 512
_ID, _ROW, _EARLIER = "__id", "__row", "__earlier"
_EPOCH_BITS, _BATCH_BITS = 23, 40


class DocumentCode(Code):
    """Codes of documents that the OpenSearch sink rejects before it sends them."""

    ID_MISSING = (
        "id_missing",
        "The document's id is null or empty.",
        "Give every column of `opensearch.indexes.*.id` a value.",
    )
    ID_TOO_LONG = (
        "id_too_long",
        f"The document's id has more than {ID_BYTES} bytes.",
        "Choose columns with shorter values for `opensearch.indexes.*.id`.",
    )


def document_version(epoch: int, batch: int) -> int:
    """Return the external version of all documents of a cut. It grows with epoch and batch; a replayed cut has an equal
    one."""
    assert 0 < epoch < 1 << _EPOCH_BITS, epoch
    assert 0 <= batch < 1 << _BATCH_BITS, batch
    return epoch << _BATCH_BITS | batch


@dataclass(frozen=True, slots=True)
class BulkLines:
    """Documents encoded for bulk requests.

    ``text``: for each document its action line and its document line. ``rows``: its row index in the lane's table.
    """

    text: pa.LargeStringArray
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.text)

    @property
    def offsets(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The byte offset of each document, and the end of the last one."""
        all_offsets = np.frombuffer(self.text.buffers()[1], dtype=np.int64)
        return all_offsets[self.text.offset : self.text.offset + len(self.text) + 1]

    @property
    def size_bytes(self) -> int:
        """The bytes of ``body``."""
        return int(self.offsets[-1] - self.offsets[0])

    def body(self) -> bytes:
        """Return the body of a request with all documents, with a single copy."""
        offsets = self.offsets
        return bytes(memoryview(self.text.buffers()[2])[offsets[0] : offsets[-1]])

    def split(self, documents: int, size_bytes: int) -> tuple[BulkLines, BulkLines]:
        """Return as many documents from the front as fit in both limits, at least one, and the rest."""
        offsets = self.offsets
        fitting = int(np.searchsorted(offsets, offsets[0] + size_bytes, side="right")) - 1
        end = max(1, min(documents, fitting))
        return BulkLines(self.text[:end], self.rows[:end]), BulkLines(self.text[end:], self.rows[end:])

    def take(self, indexes: list[int]) -> BulkLines:
        """Return the documents with these indexes."""
        return BulkLines(self.text.take(pa.array(indexes, pa.int64())), self.rows[indexes])


class LaneDocuments:
    """The documents of one lane in one cut. ``rejected``: rows whose id is missing or too long."""

    def __init__(self, lane: str, table: pa.Table, spec: IndexSpec, version: int) -> None:
        self._spec = spec
        self._version = version
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame = frame.select(pl.all(), _id(spec.id).alias(_ID), pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
        length = pl.col(_ID).str.len_bytes()
        fit = frame.select(length.is_between(1, ID_BYTES).fill_null(value=False)).to_series()
        self.rejected = [_reject(lane, row) for row in frame.filter(~fit).select(_ROW, _ID).iter_rows()]
        self._frame = _add_rank(frame.filter(fit) if self.rejected else frame)
        self._ids = self._frame.select(pl.col(_ID).n_unique()).item()

    @property
    def ids(self) -> int:
        """The number of distinct ids."""
        return int(self._ids)

    def last(self) -> BulkLines:
        """Return the last row of each id."""
        return self._lines(self._frame.filter(pl.col(_EARLIER) == 0))

    def before(self, rows: Collection[int]) -> BulkLines:
        """Return, for each of these rows, the previous row with its id, if any."""
        rejected = self._frame.filter(pl.col(_ROW).is_in(list(rows))).select(_ID, pl.col(_EARLIER) + 1)
        return self._lines(self._frame.join(rejected, on=[_ID, _EARLIER], how="semi"))

    def _lines(self, frame: pl.DataFrame) -> BulkLines:
        """Encode the rows: ``index`` actions, or ``delete`` where the lane's deletion column is true."""
        deleted = self._spec.deleted
        columns = [name for name in frame.columns if not name.startswith("__") and name != deleted]
        meta = pl.struct(
            pl.col(_ID).alias("_id"), pl.lit(self._version).alias("version"), pl.lit("external").alias("version_type")
        ).struct.json_encode()
        document = pl.struct(columns).struct.json_encode()
        line = pl.concat_str(pl.lit('{"index":'), meta, pl.lit("}\n"), document, pl.lit("\n"))
        if deleted is not None:
            deletion = pl.concat_str(pl.lit('{"delete":'), meta, pl.lit("}\n"))
            line = pl.when(pl.col(deleted).fill_null(value=False)).then(deletion).otherwise(line)
        text = to_table(frame.select(line.alias("line")))["line"].combine_chunks()
        return BulkLines(text, frame[_ROW].to_numpy())


def _id(columns: tuple[str, ...]) -> pl.Expr:
    """Return the document's id: the text of one column, or a JSON array of several. Null if any of them is null."""
    texts = [pl.col(name).cast(pl.String) for name in columns]
    if len(texts) == 1:
        return texts[0]
    array = pl.struct(pl.concat_list(texts).alias("k")).struct.json_encode().str.slice(5).str.strip_suffix("}")
    return pl.when(pl.all_horizontal(text.is_not_null() for text in texts)).then(array)


def _add_rank(frame: pl.DataFrame) -> pl.DataFrame:
    """Add column ``_EARLIER``: 0 for the last row of an id, 1 for the one before it, and so on."""
    if frame.select(pl.col(_ID).n_unique()).item() == frame.height:
        return frame.with_columns(pl.lit(0, pl.Int64).alias(_EARLIER))
    later = (pl.len() - 1 - pl.int_range(pl.len(), dtype=pl.Int64)).over(_ID).cast(pl.Int64)
    return frame.with_columns(later.alias(_EARLIER))


def _reject(lane: str, row: tuple[int, str | None]) -> RejectedRow:
    index, name = row
    if not name:
        return RejectedRow(lane, index, DocumentCode.ID_MISSING, "the id is null or empty")
    return RejectedRow(
        lane,
        index,
        DocumentCode.ID_TOO_LONG,
        f"the id has {len(name.encode())} bytes, at most {ID_BYTES} are allowed",
    )
