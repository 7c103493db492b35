"""The work of ``headgate savepoint purge``: removes all data that an app has stored, and no other data.

1. Acquire the lease of every checkpoint. If one is in use or belongs to another app, stop; nothing is removed.
2. Remove the savepoints, their manifests first. A crash leaves fewer savepoints, and files that none refers to.
3. Remove the checkpoints, the oldest epoch first, in each the lease last; then the app's files in the folder itself,
   unless an epoch was started meanwhile, which stays. A crash leaves the newest checkpoint with the last commit.

A repeated purge continues where the previous one ended.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.epochs import EpochStore
from streamcore.errors import ConfigError
from streamcore.leases.acquire import Lease, lease_for
from streamcore.savepoint import SavepointRepository
from streamcore.storage.location import Location


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The numbers of removed savepoints and checkpoints. ``left``: files in the checkpoint's folder that belong to no
    app; ``begun``: epochs that were started meanwhile and stay."""

    savepoints: int
    checkpoints: int
    left: tuple[str, ...]
    begun: tuple[str, ...]


def purge(savepoints: SavepointRepository, checkpoint: Location) -> PurgeResult:
    """Run steps 1 to 3. Raises ``ConfigError`` if a checkpoint is in use or belongs to another app, and ``Fenced`` if
    another process takes one meanwhile."""
    epochs = EpochStore(checkpoint)
    with ExitStack() as held:
        # 1. All leases, before anything is removed.
        owned = [(root, held.enter_context(_lease(root, savepoints.app))) for root in epochs.all_roots()]
        # 2. The savepoints.
        count = savepoints.discard_all()
        # 3. The checkpoints.
        removed = _remove(epochs, owned)
    begun = tuple(f"e{epoch}" for epoch in epochs.folders())
    return PurgeResult(count, removed, tuple(name for name in epochs.remaining_names() if not begun), begun)


def _lease(root: CheckpointRoot, app: str) -> Lease:
    known = root.identity()
    if known is not None and known.name != app:
        raise ConfigError(f"checkpoint {root.path}: belongs to app {known.name}, not {app}")
    return lease_for(root.path)


def _remove(epochs: EpochStore, owned: list[tuple[CheckpointRoot, Lease]]) -> int:
    """Remove the app's checkpoints; return their number. The folder itself holds the mailbox of a running epoch."""
    removed = 0
    for root, lease in sorted(owned, key=lambda one: one[0].path == epochs.root):
        if root.path == epochs.root and epochs.folders():
            break
        lease.check()
        epochs.remove(root)
        removed += 1
    return removed
