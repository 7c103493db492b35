"""The offset log of a checkpoint: the offsets between which each batch reads, written before the batch runs.

A batch that runs again finds its offsets here and reads the same records at the same time. Each batch has one file,
whole or absent; old files are removed when Spark removes its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from streamcore.errors import CorruptState, Fenced
from streamcore.offsets import StreamOffsets
from streamcore.storage.atomic_files import create_json, discard, list_numbers, make_folder, read_whole, write_json
from streamcore.storage.location import Location

_BEGIN = "begin"


@dataclass(frozen=True, slots=True)
class CutBounds:
    """Where a cut begins and ends."""

    start: StreamOffsets
    end: StreamOffsets


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """The files ``<folder>/<batch>``. ``keep``: how many of the last batches."""

    folder: Location
    keep: int = 100

    def batches(self) -> tuple[int, ...]:
        """Batches with a position, ascending."""
        return list_numbers(self.folder)

    def read(self, batch: int) -> CutBounds | None:
        """Return the bounds of the batch, or None if it is not planned yet; ``CorruptState`` for an invalid file."""
        path = self.folder / str(batch)
        text = read_whole(path)
        if text is None:
            return None
        try:
            document = json.loads(text)
            return CutBounds(StreamOffsets.from_json(document["start"]), StreamOffsets.from_json(document["end"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptState(f"{path}: no position of ours ({len(text)} bytes); restore from a savepoint") from error

    def write_start(self, position: StreamOffsets) -> None:
        """Write the offsets where the very first batch begins. Without them an app begins where its topics do."""
        make_folder(self.folder)
        write_json(self.folder / _BEGIN, position.to_json())

    def read_start(self) -> StreamOffsets | None:
        """Return the offsets that ``write_start`` wrote, or None."""
        path = self.folder / _BEGIN
        text = read_whole(path)
        try:
            return None if text is None else StreamOffsets.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptState(f"{path}: no position of ours; restore from a savepoint") from error

    def write(self, batch: int, bounds: CutBounds) -> None:
        """Write the bounds of the batch, once. ``Fenced`` if the file holds other bounds: another process wrote them
        and owns the checkpoint now."""
        make_folder(self.folder)
        path = self.folder / str(batch)
        if not create_json(path, {"start": bounds.start.to_json(), "end": bounds.end.to_json()}):
            raise Fenced(f"{path}: another process has decided what this batch reads; stop this process")
        if batch >= self.keep:
            discard(self.folder / str(batch - self.keep))
