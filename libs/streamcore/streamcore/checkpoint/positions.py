"""The positions of a checkpoint's cuts: from where to where each batch reads, written before it runs.

A batch that runs again finds its position here and reads the same records at the same time. One file a batch, whole or
absent; old ones go when Spark's own do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from streamcore.checkpoint.files import create_json, discard, make_folder, numbered_in, read_whole, write_json
from streamcore.errors import CorruptState, Fenced
from streamcore.location import Location
from streamcore.position import Position

_BEGIN = "begin"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a cut begins and ends."""

    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class PositionLog:
    """The files ``<folder>/<batch>``. ``keep``: how many of the last batches."""

    folder: Location
    keep: int = 100

    def batches(self) -> tuple[int, ...]:
        """Batches with a position, ascending."""
        return numbered_in(self.folder)

    def read(self, batch: int) -> Bounds | None:
        """What the batch reads, None when that has not been decided; ``CorruptState`` for a file that is not ours."""
        path = self.folder / str(batch)
        text = read_whole(path)
        if text is None:
            return None
        try:
            document = json.loads(text)
            return Bounds(Position.from_json(document["start"]), Position.from_json(document["end"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptState(f"{path}: no position of ours ({len(text)} bytes); restore from a savepoint") from error

    def begin(self, position: Position) -> None:
        """Say where the first batch of all begins. Without it an app begins where its topics do."""
        make_folder(self.folder)
        write_json(self.folder / _BEGIN, position.to_json())

    def beginning(self) -> Position | None:
        """What ``begin`` was told, or None."""
        path = self.folder / _BEGIN
        text = read_whole(path)
        try:
            return None if text is None else Position.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptState(f"{path}: no position of ours; restore from a savepoint") from error

    def write(self, batch: int, bounds: Bounds) -> None:
        """Decide what the batch reads. Once written it stays: ``Fenced`` where it was decided otherwise, for that was
        another process, which owns the checkpoint now."""
        make_folder(self.folder)
        path = self.folder / str(batch)
        if not create_json(path, {"start": bounds.start.to_json(), "end": bounds.end.to_json()}):
            raise Fenced(f"{path}: another process has decided what this batch reads; stop this process")
        if batch >= self.keep:
            discard(self.folder / str(batch - self.keep))
