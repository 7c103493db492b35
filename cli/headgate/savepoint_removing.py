"""What ``headgate savepoint purge`` does: all that an app has stored goes, and nothing that is not the app's.

1. Own every checkpoint that is there; refuse when one is in use, or another app's. Nothing is removed.
2. Remove the savepoints, their manifests first. A crash leaves fewer, and parts that count for nothing.
3. Remove the checkpoints that are owned, the oldest epoch first, each with its lease last; then what is the app's in
   the folder itself, unless an epoch was begun meanwhile, which stays. A crash leaves the newest: what was committed
   last is known until the end.

Done again it goes on where it ended.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from streamcore.checkpoint.epochs import Epochs
from streamcore.checkpoint.layout import CheckpointRoot
from streamcore.checkpoint.lease import Lease, lease_on
from streamcore.errors import ConfigError
from streamcore.location import Location
from streamcore.savepoint import Savepoints


@dataclass(frozen=True, slots=True)
class Purged:
    """How many there were. ``left``: what is in the checkpoint's folder and no app's; ``begun``: epochs that somebody
    began meanwhile, which stay."""

    savepoints: int
    checkpoints: int
    left: tuple[str, ...]
    begun: tuple[str, ...]


def purge(savepoints: Savepoints, checkpoint: Location) -> Purged:
    """Steps 1 to 3. ``ConfigError`` when a checkpoint is owned, or belongs to another app; ``Fenced`` when one is taken
    away meanwhile."""
    epochs = Epochs(checkpoint)
    with ExitStack() as held:
        # 1. All of them, or nothing is touched.
        owned = [(root, held.enter_context(_lease(root, savepoints.app))) for root in epochs.all_roots()]
        # 2. Nobody goes on from them any more.
        count = savepoints.discard_all()
        # 3. The rest.
        removed = _remove(epochs, owned)
    begun = tuple(f"e{epoch}" for epoch in epochs.folders())
    return Purged(count, removed, tuple(name for name in epochs.left() if not begun), begun)


def _lease(root: CheckpointRoot, app: str) -> Lease:
    known = root.identity()
    if known is not None and known.name != app:
        raise ConfigError(f"checkpoint {root.path}: belongs to app {known.name}, not {app}")
    return lease_on(root.path)


def _remove(epochs: Epochs, owned: list[tuple[CheckpointRoot, Lease]]) -> int:
    """How many. The folder itself has the mailbox of whoever runs in an epoch."""
    removed = 0
    for root, lease in sorted(owned, key=lambda one: one[0].path == epochs.root):
        if root.path == epochs.root and epochs.folders():
            break
        lease.check()
        epochs.remove(root)
        removed += 1
    return removed
