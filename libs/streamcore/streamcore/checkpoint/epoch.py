"""The epoch: a number stored in the checkpoint, which every restore from a savepoint increases.

Every transactional id and ledger key contains it, so that batch numbers can begin at 0 again without being mistaken for
those of an earlier epoch. A checkpoint that has batches but no epoch therefore does not start.
"""

from __future__ import annotations

from streamcore.errors import CorruptState
from streamcore.storage.atomic_files import read_int, read_json, write_json
from streamcore.storage.location import Location

FIRST_EPOCH = 1


def create_epoch(path: Location, epoch: int = FIRST_EPOCH) -> int:
    """Write the epoch of a new checkpoint and return it: 1, or the savepoint's epoch plus 1 after a restore."""
    if epoch < FIRST_EPOCH:
        raise CorruptState(f"{path}: epoch {epoch} asked for; the first epoch is {FIRST_EPOCH}")
    write_json(path, {"epoch": epoch})
    return epoch


def read_epoch(path: Location) -> int:
    """Return the checkpoint's epoch. Raise ``CorruptState`` if the file is missing or damaged."""
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
    """Increase the epoch by 1 and return it. Its owner then fences the writers of the earlier epoch."""
    return create_epoch(path, read_epoch(path) + 1)
