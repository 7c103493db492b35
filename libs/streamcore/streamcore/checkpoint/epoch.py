"""The epoch: a number beside the checkpoint, raised by every restore from a savepoint.

It is part of every transactional id and ledger key, so that batch ids may start again from 0 without being taken for
old ones. Hence its loss is refused, never repaired by a guess: a checkpoint that has batches but no epoch does not
start.
"""

from __future__ import annotations

from streamcore.errors import CorruptState
from streamcore.storage.atomic_files import read_int, read_json, write_json
from streamcore.storage.location import Location

FIRST_EPOCH = 1


def create_epoch(path: Location, epoch: int = FIRST_EPOCH) -> int:
    """Write the epoch of a new checkpoint: 1, or one more than the savepoint that it is restored from."""
    if epoch < FIRST_EPOCH:
        raise CorruptState(f"{path}: epoch {epoch} asked for; the first epoch is {FIRST_EPOCH}")
    write_json(path, {"epoch": epoch})
    return epoch


def read_epoch(path: Location) -> int:
    """Return the checkpoint's epoch; ``CorruptState`` when the file is missing or damaged."""
    entries = read_json(path)
    if entries is None:
        raise CorruptState(
            f"{path}: the epoch is missing from a checkpoint that is in use; restore the file from a copy, "
            "or the app from a savepoint"
        )
    epoch = read_int(path, entries, "epoch")
    if epoch < FIRST_EPOCH:
        raise CorruptState(f"{path}: epoch {epoch}; the first epoch is {FIRST_EPOCH}")
    return epoch


def raise_epoch(path: Location) -> int:
    """Go to the next epoch; returns it. Everything that the old one wrote from then on is fenced by the new one."""
    return create_epoch(path, read_epoch(path) + 1)
