"""Makes a new checkpoint from a savepoint, for an app that has not run on it yet.

What ``restore_checkpoint`` does, in steps (a crash after a step leaves what its line says; the next attempt begins
anew):

1. Refuse a folder that belongs to an app already, and a plan that is not possible. Nothing was written.
2. Copy the state that some stage takes to ``initial/``, with its index (``initial_state``). The folder still belongs
   to no app.
3. Write where the first cut begins, and the savepoint that the checkpoint comes from. The folder still belongs to no
   app.
4. Write epoch and identity, the identity last: from here on it is the app's checkpoint.

Each shard makes its first log of that in batch 0, and ``initial/`` is needed no more once that batch is committed. The
savepoint itself is only read, and needed no more after step 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.engine.shard import to_cells
from streamcore.errors import ConfigError
from streamcore.offsets import StreamOffsets, source_partitions
from streamcore.savepoint.compatibility import CompatibilityReport
from streamcore.savepoint.initial_state import copy_files
from streamcore.savepoint.manifest import DomainProgress, SavepointManifest
from streamcore.savepoint.repository import Savepoint
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import remove_folder
from streamcore.watermark import NO_WATERMARK, PartitionTime, WatermarkState


def restore_checkpoint(
    savepoint: Savepoint,
    app: App,
    plan: CompatibilityReport,
    root: CheckpointRoot,
    epoch: int,
    *,
    rewinds: bool = False,
) -> None:
    """Run steps 1 to 4. ``ConfigError`` when the folder is in use or the plan is not possible, ``CorruptState`` when a
    file of the savepoint differs from the written one. Call it while holding the checkpoint's lease.

    ``rewinds``: as in ``Origin``.
    """
    # 1. Nothing is written over.
    check_restorable(savepoint.manifest, plan, root, epoch)
    # 2. The state, by the stage that takes it.
    remove_folder(root.initial)
    cells = {"domains": [to_cells(time) for time in restored_watermarks(savepoint.manifest, app)]}
    copy_files(open_object_store(root.initial), savepoint, plan, cells, app.state.buckets)
    # 3. Where it goes on.
    root.offsets.write_start(restored_offsets(savepoint.manifest, app))
    manifest = savepoint.manifest
    RestoreOrigin(manifest.name, manifest.digest, manifest.epoch, manifest.batch, rewinds).write(
        root.restored_from_path
    )
    # 4. Now it is a checkpoint.
    root.initialise(AppIdentity(app.name, app.shards), epoch=epoch)


def check_restorable(manifest: SavepointManifest, plan: CompatibilityReport, root: CheckpointRoot, epoch: int) -> None:
    """Run step 1 alone."""
    if root.identity() is not None or root.is_used:
        raise ConfigError(f"checkpoint {root.path}: it is in use; a savepoint is restored to a new folder")
    if epoch <= manifest.epoch:
        raise ConfigError(f"checkpoint {root.path}: epoch {epoch} is not above {manifest.epoch}, that of the savepoint")
    if not plan.possible:
        worst = [str(reason) for reason in plan.reasons if reason.compatibility is plan.compatibility]
        raise ConfigError(f"savepoint {manifest.name} cannot be restored so: {'; '.join(worst)}")


def restored_offsets(manifest: SavepointManifest, app: App) -> StreamOffsets:
    """Where the app goes on: of the topics that it still reads. New ones are not in it."""
    stored = manifest.next_position
    read = {app.control_topic, *app.topics}
    return StreamOffsets(stored.clock_ms, {place: n for place, n in stored.offsets.items() if place[0] in read})


def restored_watermarks(manifest: SavepointManifest, app: App) -> list[WatermarkState]:
    """How far event time has come for each of the app's domains.

    A domain that was not there goes on from the latest of those that it is part of, or that are part of it: a
    watermark never goes back.
    """
    known = {frozenset(domain.topics): domain for domain in manifest.domains}
    every = {(p.topic, p.partition): p for domain in manifest.domains for p in domain.partitions}
    found = []
    for sources in app.watermark_groups:
        topics = {app.topics[source]: source for source in sources}
        same: DomainProgress | None = known.get(frozenset(topics))
        mine = same.partitions if same is not None else [p for p in every.values() if p.topic in topics]
        times = {
            source_partitions(topics[p.topic])[p.partition]: PartitionTime(p.max_event_ms, p.active_ms, p.watermark_ms)
            for p in mine
        }
        found.append(WatermarkState(_latest(manifest.domains, {*topics}) if same is None else same.watermark_ms, times))
    return found


def _latest(domains: Iterable[DomainProgress], topics: set[str]) -> int:
    related = [one.watermark_ms for one in domains if topics <= {*one.topics} or topics >= {*one.topics}]
    return max(related, default=NO_WATERMARK)
