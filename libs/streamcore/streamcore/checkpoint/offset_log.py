"""The offset log of a checkpoint: the start and end offsets and the clock of each batch, written before the batch runs.

A replayed batch gets its offsets and clock from here, so it reads the records that it read before, at the clock of that
time. Each batch has one file, written atomically. The last ``OffsetLog.keep`` files are kept.
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
    """The offsets and the clock at the start and at the end of a cut."""

    start: StreamOffsets
    end: StreamOffsets


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """The files ``<folder>/<batch>``. ``keep``: the number of batches that are kept."""

    folder: Location
    keep: int = 100

    def batches(self) -> tuple[int, ...]:
        """Return the batches in the log, ascending."""
        return list_numbers(self.folder)

    def read(self, batch: int) -> CutBounds | None:
        """Return the bounds of the batch, or None if it is not planned. Raise ``CorruptState`` for an invalid file."""
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
        """Write the offsets and the clock at which batch 0 begins, after a restore. Without them an app begins at the
        earliest or latest offsets of its topics."""
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
        """Write the bounds of the batch. Raise ``Fenced`` if the file exists with other bounds: another process wrote
        it and owns the checkpoint now."""
        make_folder(self.folder)
        path = self.folder / str(batch)
        if not create_json(path, {"start": bounds.start.to_json(), "end": bounds.end.to_json()}):
            raise Fenced(f"{path}: another process has planned this batch; stop this process")
        if batch >= self.keep:
            discard(self.folder / str(batch - self.keep))
