"""The checkpoints of an app that is told when to go: one an epoch, side by side in one folder.

::

    <root>/e1/, <root>/e2/   a ``CheckpointRoot`` each, of that epoch, made once
    <root>/                  may be one itself: of a process that was started without being told

Says which of them is there, how far they have come, and whether the next one may be made: what is newer than that from
which it would be made is not left behind by accident. A folder without an identity is no checkpoint yet, whatever a
crash has left in it, and is made anew. Knows neither savepoints nor who asks.

One owner at a time, of all of them: each has its own lease, and whoever owns one finds out before each batch that a
later one was made (``fence``). It is made before its owner fences the writers of earlier epochs, so of two that do
both at once, the earlier one either sees it or was fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.files import names_in, numbers_of, read_whole, remove_entry, remove_folder
from streamcore.checkpoint.layout import CheckpointRoot
from streamcore.errors import ConfigError, Fenced, StreamError
from streamcore.location import Location, ObjectPath
from streamcore.storage import open_folder

_LEASE = "lease."
#: What a process that was not told to go, and one that waits to be, put into the folder itself.
_OWN = (
    *("app.json", "epoch.json", "origin.json", "positions", "initial", "spark"),
    *("request.json", "report.json", "standby"),
)


@dataclass(frozen=True, slots=True, order=True)
class Reached:
    """How far an epoch has come: the last batch that is committed, -1 before the first. Ordered by time."""

    epoch: int
    batch: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of epoch {self.epoch}" if self.batch >= 0 else f"epoch {self.epoch}, without a batch"
        )


class NewerExists(ConfigError):
    """Going on would leave behind, or stand beside, what is there: ``newer``, the newest."""

    def __init__(self, why: str, newer: Reached) -> None:
        super().__init__(why)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class Claim:
    """The checkpoint that somebody wants. ``saved``: the moment of the savepoint that it is made from, if it is not
    there; ``begin``: it may be made with nothing; ``accept_newer``: whatever has been committed since."""

    epoch: int
    saved: Reached | None = None
    begin: bool = False
    accept_newer: bool = False


#: The last batch that may be written of an epoch, None for none. Asked with the epoch and the last batch that it began,
#: which Spark does not know to be done.
LastWritten = Callable[[int, int], int | None]


def _nothing_written(_: int, __: int) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Epochs:
    """Those in the folder ``root``. The functions read and write files; nothing is kept in memory."""

    root: Location

    def checkpoint(self, epoch: int) -> CheckpointRoot:
        """Where the checkpoint of an epoch is, or would be."""
        return CheckpointRoot(self.root / f"e{epoch}")

    def is_made(self, epoch: int) -> bool:
        """Is it there, whole?"""
        return _is_made(self.checkpoint(epoch))

    def made(self) -> tuple[int, ...]:
        """The epochs that have a checkpoint of their own, ascending."""
        return tuple(epoch for epoch in self.folders() if self.is_made(epoch))

    def folders(self) -> tuple[int, ...]:
        """The epochs that have a folder, ascending, whatever is in it."""
        return numbers_of(open_folder(self.root).folders(), prefix="e")

    def newest(self) -> CheckpointRoot | None:
        """That of the highest epoch, the folder itself among them; None where there is none."""
        every = self._every()
        return every[-1][1] if every else None

    def reached(self, written: LastWritten = _nothing_written) -> tuple[Reached, ...]:
        """How far each has come, ascending. ``written`` is asked where a batch was begun and is not committed."""
        return tuple(_reached(epoch, root, written) for epoch, root in self._every())

    def admit(self, claim: Claim, written: LastWritten = _nothing_written) -> None:
        """Return when the claim's checkpoint is there or may be made. ``NewerExists`` for what it would leave behind,
        ``ConfigError`` when there is nothing to make it from. Changes nothing."""
        there = self.reached(written)
        over = [one for one in there if one.epoch > claim.epoch]
        if over:
            raise NewerExists(f"{self.root}: epoch {claim.epoch} is over; there is {over[-1]}", over[-1])
        if self.is_made(claim.epoch):
            return
        committed = max((one for one in there if one.batch >= 0), default=None)
        if claim.saved is None and not claim.begin:
            what = f"{self.root}: there is no checkpoint of epoch {claim.epoch} to go on from"
            if committed is None:
                raise ConfigError(f"{what}, and it may not begin with nothing")
            raise NewerExists(f"{what}; there is {committed}", there[-1])
        if committed is not None and not claim.accept_newer and (claim.saved is None or committed > claim.saved):
            of = f"the savepoint, which is of {claim.saved}" if claim.saved else "nothing"
            raise NewerExists(f"{self.root}: {committed} is committed, which is newer than {of}", there[-1])

    def fence(self, epoch: int) -> None:
        """``Fenced`` once there is a later epoch: whoever owns this one writes nothing more."""
        later = [one for one in self.folders() if one > epoch and self.is_made(one)]
        if later:
            raise Fenced(f"checkpoint {self.checkpoint(epoch).path}: epoch {later[-1]} has begun; stop this process")

    def clear(self, epoch: int) -> None:
        """Remove what a crash has left of a checkpoint that is not made, but the lease, which its caller holds."""
        root = self.checkpoint(epoch)
        if _is_made(root) or root.is_used:
            raise ConfigError(f"checkpoint {root.path}: it is in use; if app.json is missing, restore it from a copy")
        for name in names_in(root.path):
            if not name.startswith(_LEASE):
                remove_entry(root.path / name)

    def discard(self, epoch: int) -> None:
        """Remove the folder of one that could not be made, lease and all; its caller holds it, and then lets go.

        A place that is away keeps it: it counts for nothing, and whoever makes it anew clears it.
        """
        root = self.checkpoint(epoch)
        with suppress(StreamError):
            if not (_is_made(root) or root.is_used):
                remove_folder(root.path)

    def all_roots(self) -> tuple[CheckpointRoot, ...]:
        """Every folder that is a checkpoint or has begun to be one, the folder itself among them if it is there."""
        itself = (CheckpointRoot(self.root),) if _is_there(self.root) else ()
        return (*itself, *(self.checkpoint(epoch) for epoch in self.folders()))

    def remove(self, root: CheckpointRoot) -> None:
        """Remove one of ``all_roots`` that the caller owns, its lease last: nobody else begins in half of it. Of the
        folder itself what is ours, and not the epochs."""
        names = names_in(root.path)
        rest = [name for name in names if not name.startswith(_LEASE) and (root.path != self.root or name in _OWN)]
        for name in (*rest, *sorted(name for name in names if name.startswith(_LEASE))):
            remove_entry(root.path / name)
        if not names_in(root.path):
            remove_folder(root.path)

    def left(self) -> tuple[str, ...]:
        """The names of what is in the folder."""
        return tuple(names_in(self.root))

    def _every(self) -> list[tuple[int, CheckpointRoot]]:
        """Ascending. One without an identity that has batches is damaged, and counts: its batches were written."""
        itself = CheckpointRoot(self.root)
        found = [(read_epoch(itself.epoch_path), itself)] if _is_made(itself) else []
        roots = [(epoch, self.checkpoint(epoch)) for epoch in self.folders()]
        found += [(epoch, root) for epoch, root in roots if _is_made(root) or root.is_used]
        return sorted(found, key=lambda one: one[0])


def _is_made(root: CheckpointRoot) -> bool:
    return read_whole(root.app_path) is not None


def _reached(epoch: int, root: CheckpointRoot, written: LastWritten) -> Reached:
    committed = root.last_committed()
    last = -1 if committed is None else committed
    begun = max(root.positions.batches(), default=-1)
    if begun > last:
        known = written(epoch, begun)
        last = max(last, -1 if known is None else known)
    return Reached(epoch, last)


def _is_there(folder: Location) -> bool:
    """A bucket has no folder without a file."""
    return bool(names_in(folder)) if isinstance(folder, ObjectPath) else folder.is_dir()
