"""The checkpoints of an app that a controller promotes: one per epoch, side by side in one folder.

::

    <root>/e1/, <root>/e2/   a ``CheckpointRoot`` each, of that epoch, made once
    <root>/                  may be one itself: of a process that was started without a controller

Reports which of them exist, how far they have come, and whether the next one may be made: data newer than the source of
the next epoch is not left behind by accident. A folder without an identity is no checkpoint yet, whatever a crash has
left in it, and is made anew. Knows neither savepoints nor who asks.

One owner at a time, of all of them: each has its own lease, and an owner finds out before each batch that a later one
was made (``check_not_superseded``). It is made before its owner fences the writers of earlier epochs, so of two that do
both at once, the earlier one either sees it or was fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from streamcore.checkpoint.checkpoint import FILES, CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.errors import ConfigError, Fenced, StreamError
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import list_names, parse_numbers, read_whole, remove_entry, remove_folder
from streamcore.storage.location import Location, ObjectPath

_LEASE = "lease."
#: The entries that a process without a controller, and a standby, put into the folder itself.
_OWN = (
    *FILES,
    *("ended.json", "command.json", "status.json", "standby"),
)


@dataclass(frozen=True, slots=True, order=True)
class EpochProgress:
    """How far an epoch has come: the last batch that is committed, -1 before the first. Ordered by time."""

    epoch: int
    batch: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of epoch {self.epoch}" if self.batch >= 0 else f"epoch {self.epoch}, without a batch"
        )


class NewerEpochExists(ConfigError):
    """Going on would leave behind, or stand beside, existing epochs: ``newer``, the newest."""

    def __init__(self, why: str, newer: EpochProgress) -> None:
        super().__init__(why)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class EpochClaim:
    """A request for the checkpoint of ``epoch``, which is created if it does not exist.

    ``savepoint``: epoch and batch of the savepoint that a new checkpoint is restored from. ``allow_empty``: a new
    checkpoint may begin without one. ``discard_newer``: it may be created although newer batches are committed.
    """

    epoch: int
    savepoint: EpochProgress | None = None
    allow_empty: bool = False
    discard_newer: bool = False


#: Returns the last batch of an epoch that is written, or None. Its arguments: the epoch, and the last batch that the
#: epoch began, which Spark has not recorded as committed.
LastWritten = Callable[[int, int], int | None]


def _nothing_written(_: int, __: int) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class EpochStore:
    """The checkpoints of all epochs of an app, in the folder ``root``. Nothing is kept in memory."""

    root: Location

    def checkpoint(self, epoch: int) -> CheckpointRoot:
        """Return the checkpoint root of an epoch, which need not exist."""
        return CheckpointRoot(self.root / f"e{epoch}")

    def exists(self, epoch: int) -> bool:
        """Return whether the epoch's checkpoint exists and is whole."""
        return _is_made(self.checkpoint(epoch))

    def existing(self) -> tuple[int, ...]:
        """Return the epochs that have a checkpoint of their own, ascending."""
        return tuple(epoch for epoch in self.folders() if self.exists(epoch))

    def folders(self) -> tuple[int, ...]:
        """Return the epochs that have a folder, ascending, even an incomplete one."""
        return parse_numbers(open_object_store(self.root).folders(), prefix="e")

    def newest(self) -> CheckpointRoot | None:
        """Return the checkpoint of the highest epoch, or None. ``root`` itself may be a checkpoint too."""
        every = self._every()
        return every[-1][1] if every else None

    def progress(self, written: LastWritten = _nothing_written) -> tuple[EpochProgress, ...]:
        """Return the progress of each epoch, ascending. ``written`` is called for an epoch with an uncommitted
        batch."""
        return tuple(_progress(epoch, root, written) for epoch, root in self._every())

    def check_claim(self, claim: EpochClaim, written: LastWritten = _nothing_written) -> None:
        """Return if the claim's checkpoint exists or may be created. Change nothing.

        Raises ``NewerEpochExists`` if that would ignore batches of other epochs, and ``ConfigError`` if there is
        nothing to create it from.
        """
        there = self.progress(written)
        over = [one for one in there if one.epoch > claim.epoch]
        if over:
            raise NewerEpochExists(f"{self.root}: epoch {claim.epoch} is over; there is {over[-1]}", over[-1])
        if self.exists(claim.epoch):
            return
        committed = max((one for one in there if one.batch >= 0), default=None)
        if claim.savepoint is None and not claim.allow_empty:
            what = f"{self.root}: there is no checkpoint of epoch {claim.epoch} to go on from"
            if committed is None:
                raise ConfigError(f"{what}, and it may not begin with nothing")
            raise NewerEpochExists(f"{what}; there is {committed}", there[-1])
        if (
            committed is not None
            and not claim.discard_newer
            and (claim.savepoint is None or committed > claim.savepoint)
        ):
            of = f"the savepoint, which is of {claim.savepoint}" if claim.savepoint else "nothing"
            raise NewerEpochExists(f"{self.root}: {committed} is committed, which is newer than {of}", there[-1])

    def check_not_superseded(self, epoch: int) -> None:
        """Raise ``Fenced`` if a later epoch exists; the owner of this one must not write any more."""
        later = [one for one in self.folders() if one > epoch and self.exists(one)]
        if later:
            where = f"checkpoint {self.checkpoint(epoch).path}"
            raise Fenced(f"{where}: epoch {later[-1]} has begun in another process; this one ends")

    def written_topics(self) -> list[str]:
        """Return the topics that the app has written in any epoch that exists, sorted."""
        return sorted({topic for epoch in self.existing() for topic in self.checkpoint(epoch).written_topics()})

    def clear_partial(self, epoch: int) -> None:
        """Remove the files of an incomplete checkpoint, which a crash left, except the lease, which the caller holds.

        Raises ``ConfigError`` if the checkpoint is complete or has batches.
        """
        root = self.checkpoint(epoch)
        if _is_made(root) or root.is_used:
            raise ConfigError(f"checkpoint {root.path}: it is in use; if app.json is missing, restore it from a copy")
        for name in list_names(root.path):
            if not name.startswith(_LEASE):
                remove_entry(root.path / name)

    def discard_partial(self, epoch: int) -> None:
        """Remove the folder of a checkpoint that could not be created, with its lease, which the caller holds and then
        releases.

        Errors of the storage are ignored: an incomplete folder is no checkpoint, and the next attempt clears it.
        """
        root = self.checkpoint(epoch)
        with suppress(StreamError):
            if not (_is_made(root) or root.is_used):
                remove_folder(root.path)

    def all_roots(self) -> tuple[CheckpointRoot, ...]:
        """Return every folder of an epoch, complete or not, and ``root`` itself if it exists."""
        itself = (CheckpointRoot(self.root),) if _is_there(self.root) else ()
        return (*itself, *(self.checkpoint(epoch) for epoch in self.folders()))

    def remove(self, root: CheckpointRoot) -> None:
        """Remove one of ``all_roots``, whose lease the caller holds.

        The lease is removed last, so that no other process starts in a half-removed checkpoint. From ``root`` itself,
        only this program's files are removed, not the folders of epochs.
        """
        names = list_names(root.path)
        rest = [name for name in names if not name.startswith(_LEASE) and (root.path != self.root or name in _OWN)]
        for name in (*rest, *sorted(name for name in names if name.startswith(_LEASE))):
            remove_entry(root.path / name)
        if not list_names(root.path):
            remove_folder(root.path)

    def remaining_names(self) -> tuple[str, ...]:
        """Return the names of the folder's entries."""
        return tuple(list_names(self.root))

    def _every(self) -> list[tuple[int, CheckpointRoot]]:
        """Return the checkpoints with their epochs, ascending. A damaged one, without identity but with batches, is
        included, because its batches were written."""
        itself = CheckpointRoot(self.root)
        found = [(read_epoch(itself.epoch_path), itself)] if _is_made(itself) else []
        roots = [(epoch, self.checkpoint(epoch)) for epoch in self.folders()]
        found += [(epoch, root) for epoch, root in roots if _is_made(root) or root.is_used]
        return sorted(found, key=lambda one: one[0])


def _is_made(root: CheckpointRoot) -> bool:
    return read_whole(root.app_path) is not None


def _progress(epoch: int, root: CheckpointRoot, written: LastWritten) -> EpochProgress:
    committed = root.last_committed()
    last = -1 if committed is None else committed
    begun = max(root.offsets.batches(), default=-1)
    if begun > last:
        known = written(epoch, begun)
        last = max(last, -1 if known is None else known)
    return EpochProgress(epoch, last)


def _is_there(folder: Location) -> bool:
    """Return whether the folder exists. In a bucket, a folder without files does not exist."""
    return bool(list_names(folder)) if isinstance(folder, ObjectPath) else folder.is_dir()
