"""The offset log of a checkpoint: the start and end offsets and the times of each batch, written before the batch runs.

A replayed batch gets its offsets and times from here, so it reads the records that it read before, at the clock of that
time. Each batch has one file, written atomically. The last ``OffsetLog.keep`` files are kept.

Each file has a digest of its content and the digest of the file before it, so that a changed bit, a file of another
checkpoint and a lost file between two others are found (``OffsetLog.check_link``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.cuts.cut_id import CutId
from streamcore.errors import CorruptState, Fenced
from streamcore.offsets import StreamOffsets
from streamcore.storage.atomic_files import (
    create_json,
    discard,
    list_numbers,
    make_folder,
    read_document,
    write_json,
)
from streamcore.storage.checked_json import compute_digest
from streamcore.storage.location import Location

_BEGIN = "begin"
_INPUTS = "inputs"
_REMEDY = "restore the app from a savepoint"


@dataclass(frozen=True, slots=True)
class CutBounds:
    """The offsets and the clock at the start and at the end of a cut.

    ``previous``: digest of the cut before, or of the offsets that a restored app begins at; empty for the first cut of
    a new app. ``streams``: digest of the streams that were published while the app ran (``stream_log``).
    """

    start: StreamOffsets
    end: StreamOffsets
    previous: str = ""
    streams: str = ""

    def to_json(self, batch: int) -> dict[str, object]:
        """Convert to the JSON document that is stored for ``batch``."""
        start, end = self.start.to_json(), self.end.to_json()
        document: dict[str, object] = {"batch": batch, "start": start, "end": end, "previous": self.previous}
        return document | ({"streams": self.streams} if self.streams else {})

    def id(self, batch: int) -> CutId:
        """Return the identity of the cut as ``batch``."""
        return CutId(batch, compute_digest(self.to_json(batch)))


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """The files ``<folder>/<batch>``. ``keep``: the number of batches that are kept."""

    folder: Location
    keep: int = 100

    def batches(self) -> tuple[int, ...]:
        """Return the batches in the log, ascending."""
        return list_numbers(self.folder)

    def read(self, batch: int) -> CutBounds | None:
        """Return the bounds of the batch, or None if it is not planned.

        Raises ``CorruptState`` if the content of the file is not what was written.
        """
        path = self.folder / str(batch)
        document = read_document(path)
        if document is None:
            return None
        if document.get("batch") != batch:
            raise CorruptState(f"{path}: has the offsets of batch {document.get('batch')}; {_REMEDY}")
        start, end = StreamOffsets.from_json(document["start"]), StreamOffsets.from_json(document["end"])
        return CutBounds(start, end, document["previous"], document.get("streams", ""))

    def check_link(self, batch: int) -> None:
        """Raise ``CorruptState`` if the batch does not begin where the batch before it ended.

        Does nothing if one of the two is not in the log.
        """
        before, here = self.read(batch - 1), self.read(batch)
        if before is None or here is None:
            return
        if here.start != before.end or here.previous != before.id(batch - 1).digest:
            raise CorruptState(
                f"{self.folder}: batch {batch} does not continue batch {batch - 1}: one of the two files is of another "
                f"checkpoint; {_REMEDY}"
            )

    def write_start(self, position: StreamOffsets) -> None:
        """Write the offsets and the clock at which batch 0 begins, after a restore. Without them an app begins at the
        earliest or latest offsets of its topics."""
        make_folder(self.folder)
        write_json(self.folder / _BEGIN, position.to_json())

    def read_start(self) -> StreamOffsets | None:
        """Return the offsets that ``write_start`` wrote, or None. Raise ``CorruptState`` if the file was changed."""
        document = read_document(self.folder / _BEGIN)
        return None if document is None else StreamOffsets.from_json(document)

    def write_inputs(self, document: dict[str, object]) -> None:
        """Write where the inputs of a bounded app end, once (``engine.inputs``)."""
        make_folder(self.folder)
        write_json(self.folder / _INPUTS, document)

    def read_inputs(self) -> dict[str, object] | None:
        """Return the inputs that ``write_inputs`` wrote, or None. Raise ``CorruptState`` if the file was changed."""
        document = read_document(self.folder / _INPUTS)
        return None if document is None else dict(document)

    def last(self) -> StreamOffsets | None:
        """Return where the last planned batch ends or, before the first one, where a restored app begins; or None."""
        last = None if not (batches := self.batches()) else self.read(batches[-1])
        return self.read_start() if last is None else last.end

    def write(self, batch: int, bounds: CutBounds) -> None:
        """Write the bounds of the batch. Raise ``Fenced`` if the file exists with other bounds: another process wrote
        it and owns the checkpoint now."""
        make_folder(self.folder)
        path = self.folder / str(batch)
        if not create_json(path, bounds.to_json(batch)):
            raise Fenced(
                f"{path}: another process runs the app with this checkpoint, and has planned this batch; this one ends"
            )
        if batch >= self.keep:
            discard(self.folder / str(batch - self.keep))
