"""Makes a new checkpoint from a savepoint, for an app that has not run on it yet.

What ``prepare`` does, in steps (a crash after a step leaves what its line says; the next attempt begins anew):

1. Refuse a folder that belongs to an app already, and a plan that is not possible. Nothing was written.
2. Copy the state that somebody takes to ``initial/``, and write down who takes what (``initial``). The folder is still
   nobody's.
3. Write where the first cut begins, and what the checkpoint comes from. The folder is still nobody's.
4. Write epoch and identity, the identity last: from here on it is the app's checkpoint.

Each shard makes its first log of that in batch 0, and ``initial/`` is needed no more once that batch is committed. The
savepoint itself is only read, and needed no more after step 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.app import App
from streamcore.checkpoint.files import remove_folder
from streamcore.checkpoint.layout import AppIdentity, CheckpointRoot
from streamcore.checkpoint.origin import Origin
from streamcore.errors import ConfigError
from streamcore.position import Position, partitions_of
from streamcore.savepoint.folder import Savepoint
from streamcore.savepoint.initial import fill
from streamcore.savepoint.manifest import DomainProgress, SavepointManifest
from streamcore.savepoint.plan import RestorePlan
from streamcore.shard import to_cells
from streamcore.storage import open_folder
from streamcore.watermark import NO_WATERMARK, PartitionTime, WatermarkState


def prepare(
    savepoint: Savepoint, app: App, plan: RestorePlan, root: CheckpointRoot, epoch: int, *, rewinds: bool = False
) -> None:
    """Steps 1 to 4. ``ConfigError`` when the folder is in use or the plan is not possible, ``CorruptState`` when a file
    of the savepoint is not what was written. Call it while holding the checkpoint's lease.

    ``rewinds``: as in ``Origin``.
    """
    # 1. Nothing is written over.
    refuse(savepoint.manifest, plan, root, epoch)
    # 2. The state, by the stage that takes it.
    remove_folder(root.initial)
    cells = {"domains": [to_cells(time) for time in times_of(savepoint.manifest, app)]}
    fill(open_folder(root.initial), savepoint, plan, cells, app.state.buckets)
    # 3. Where it goes on.
    root.positions.begin(position_of(savepoint.manifest, app))
    manifest = savepoint.manifest
    Origin(manifest.name, manifest.digest, manifest.epoch, manifest.batch, rewinds).write(root.origin_path)
    # 4. Now it is a checkpoint.
    root.prepare(AppIdentity(app.name, app.shards), epoch=epoch)


def refuse(manifest: SavepointManifest, plan: RestorePlan, root: CheckpointRoot, epoch: int) -> None:
    """Step 1 alone."""
    if root.identity() is not None or root.is_used:
        raise ConfigError(f"checkpoint {root.path}: it is in use; a savepoint is restored to a new folder")
    if epoch <= manifest.epoch:
        raise ConfigError(f"checkpoint {root.path}: epoch {epoch} is not above {manifest.epoch}, that of the savepoint")
    if not plan.possible:
        worst = [str(reason) for reason in plan.reasons if reason.verdict is plan.verdict]
        raise ConfigError(f"savepoint {manifest.name} cannot be restored so: {'; '.join(worst)}")


def position_of(manifest: SavepointManifest, app: App) -> Position:
    """Where the app goes on: of the topics that it still reads. New ones are not in it."""
    stored = manifest.next_position
    read = {app.control_topic, *app.topics}
    return Position(stored.clock_ms, {place: n for place, n in stored.offsets.items() if place[0] in read})


def times_of(manifest: SavepointManifest, app: App) -> list[WatermarkState]:
    """How far event time has come for each of the app's domains.

    A domain that was not there goes on from the latest of those that it is part of, or that are part of it: a
    watermark never goes back.
    """
    known = {frozenset(domain.topics): domain for domain in manifest.domains}
    every = {(p.topic, p.partition): p for domain in manifest.domains for p in domain.partitions}
    found = []
    for sources in app.domains:
        topics = {app.topics[source]: source for source in sources}
        same: DomainProgress | None = known.get(frozenset(topics))
        mine = same.partitions if same is not None else [p for p in every.values() if p.topic in topics]
        times = {
            partitions_of(topics[p.topic])[p.partition]: PartitionTime(p.max_event_ms, p.active_ms, p.watermark_ms)
            for p in mine
        }
        found.append(WatermarkState(_latest(manifest.domains, {*topics}) if same is None else same.watermark_ms, times))
    return found


def _latest(domains: Iterable[DomainProgress], topics: set[str]) -> int:
    related = [one.watermark_ms for one in domains if topics <= {*one.topics} or topics >= {*one.topics}]
    return max(related, default=NO_WATERMARK)
