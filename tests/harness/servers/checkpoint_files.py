"""The files of a checkpoint, and the state in which a crash leaves them."""

from __future__ import annotations

from pathlib import Path

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.storage.location import Location


def on_disk(place: Location) -> Path:
    """Return the files of a checkpoint, for tests that damage them."""
    assert isinstance(place, Path), place
    return place


def forget_last_commit(checkpoint: Path) -> int:
    """Remove Spark's commit of the last batch, as a crash after the commit of the sink does; return the batch.

    A plan of the batch after it, which a stop under load leaves, was not there at that moment and goes as well.
    """
    root = CheckpointRoot(checkpoint)
    last = root.last_committed()
    assert last is not None
    for name, batch in (("commits", last), ("offsets", last + 1)):
        for file in (on_disk(root.spark) / name / str(batch), on_disk(root.spark) / name / f".{batch}.crc"):
            file.unlink(missing_ok=True)
    assert root.last_committed() == (last - 1 if last else None)
    return last
