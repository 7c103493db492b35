"""Creates a new checkpoint from a savepoint.

The steps of ``restore_checkpoint``, with the state that a crash after each leaves; the next attempt starts again with
step 1:

1. Reject a folder that is in use, and a savepoint that is not compatible. Nothing is written yet.
2. Copy the files with state to restore to ``initial/``, with an index (``initial_state``). The folder is no checkpoint
   yet.
3. Write the published streams, the offsets of the first cut, and the savepoint's name and digest. The folder is no
   checkpoint yet.
4. Write epoch and identity, the identity last. Now the folder is the app's checkpoint.

In batch 0 each shard writes its first state log from ``initial/``, which is deleted once that batch is committed. The
savepoint is only read, and not needed after step 4.
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
from streamcore.savepoint.manifest import SavepointManifest, WatermarkGroupProgress
from streamcore.savepoint.repository import Savepoint
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import read_json, remove_folder
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
    """Run steps 1 to 4. The caller holds the checkpoint's lease.

    ``rewinds``: output written after the savepoint may be written again (``RestoreOrigin``). Raises ``ConfigError`` if
    the folder is in use or the savepoint is not compatible, and ``CorruptState`` if a file differs from the manifest.
    """
    app = app.with_streams(savepoint.manifest.streams)
    # 1. Nothing is overwritten.
    check_restorable(savepoint.manifest, plan, root, epoch)
    # 2. The state.
    remove_folder(root.initial)
    cells = {"watermark_groups": [to_cells(time) for time in restored_watermarks(savepoint.manifest, app)]}
    copy_files(open_object_store(root.initial), savepoint, plan, cells, app.state.buckets)
    # 3. The offsets and the origin.
    remove_folder(root.streams.folder)
    if savepoint.manifest.streams:
        root.streams.write(0, savepoint.manifest.streams)
    root.offsets.write_start(restored_offsets(savepoint.manifest, app))
    manifest = savepoint.manifest
    RestoreOrigin(manifest.name, manifest.digest, manifest.epoch, manifest.batch, rewinds).write(
        root.restored_from_path
    )
    # 4. After this the folder is a checkpoint.
    root.create(AppIdentity.of(app.name, app.key_space), epoch)


def check_restorable(manifest: SavepointManifest, plan: CompatibilityReport, root: CheckpointRoot, epoch: int) -> None:
    """Run step 1: raise ``ConfigError`` if the savepoint cannot be restored to ``root`` in ``epoch``."""
    if root.identity() is not None or root.is_used:
        raise ConfigError(f"checkpoint {root.path}: it is in use; a savepoint is restored to a new folder")
    if read_json(root.ended_path) is not None:
        raise ConfigError(
            f"checkpoint {root.path}: its app has ended and it was deleted (checkpoint_retention); a savepoint "
            "is restored to a new folder"
        )
    if epoch <= manifest.epoch:
        raise ConfigError(f"checkpoint {root.path}: epoch {epoch} is not above {manifest.epoch}, that of the savepoint")
    if not plan.possible:
        worst = [str(reason) for reason in plan.reasons if reason.compatibility is plan.compatibility]
        raise ConfigError(f"savepoint {manifest.name} cannot be restored so: {'; '.join(worst)}")


def restored_offsets(manifest: SavepointManifest, app: App) -> StreamOffsets:
    """Return the offsets that the first cut begins at, without topics that the app does not read any more.

    A new topic has no offset: the planner chooses where it begins.
    """
    stored = manifest.next_position
    read = {app.control_topic, *app.topics}
    return StreamOffsets(stored.clock, {key: offset for key, offset in stored.offsets.items() if key[0] in read})


def restored_watermarks(manifest: SavepointManifest, app: App) -> list[WatermarkState]:
    """Return the watermark state of each of the app's watermark groups, in order.

    A group of topics that the savepoint does not have gets the latest watermark of the stored groups that contain it or
    that it contains: a watermark never goes back.
    """
    known = {frozenset(group.topics): group for group in manifest.watermark_groups}
    every = {(p.topic, p.partition): p for group in manifest.watermark_groups for p in group.partitions}
    restored = []
    for sources in app.watermark_groups:
        topics = {app.topics[source]: source for source in sources}
        same: WatermarkGroupProgress | None = known.get(frozenset(topics))
        partitions = same.partitions if same is not None else [p for p in every.values() if p.topic in topics]
        times = {
            source_partitions(topics[p.topic])[p.partition]: PartitionTime(p.max_event_ms, p.active_ms, p.watermark_ms)
            for p in partitions
        }
        restored.append(
            WatermarkState(
                _latest_watermark(manifest.watermark_groups, {*topics}) if same is None else same.watermark_ms, times
            )
        )
    return restored


def _latest_watermark(watermark_groups: Iterable[WatermarkGroupProgress], topics: set[str]) -> int:
    """Return the latest watermark of the stored groups that contain the topics or are contained in them."""
    related = [d.watermark_ms for d in watermark_groups if topics <= {*d.topics} or topics >= {*d.topics}]
    return max(related, default=NO_WATERMARK)
