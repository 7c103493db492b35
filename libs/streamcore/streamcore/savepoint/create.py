"""Takes a savepoint, wherever the state is.

The steps (a crash after any of them leaves a folder without a manifest, which is no savepoint; the
next attempt under that name removes it):

1. ``SavepointRepository.create``: an empty folder.
2. ``state_files.write_shard`` for each shard of each stage, in any process, with its blobs as they are after the batch.
3. ``write_manifest``: the manifest, with the digests of what step 2 wrote. Only now it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from streamcore.app import App
from streamcore.engine.shard import from_cells
from streamcore.offsets import StreamOffsets, to_topic_partition
from streamcore.savepoint.app_description import describe
from streamcore.savepoint.manifest import MANIFEST, DomainProgress, PartitionProgress, SavepointManifest
from streamcore.savepoint.state_files import ShardReceipt, merge
from streamcore.storage import ObjectStore
from streamcore.watermark import PartitionTime, WatermarkState


@dataclass(frozen=True, slots=True)
class SavepointPosition:
    """After which batch a savepoint is, and where the next one begins. ``created_ms``: for people.

    ``settled``: false when a later batch may have been written in part.
    """

    epoch: int
    batch: int
    position: StreamOffsets
    created_ms: int
    settled: bool = True


def write_manifest(
    folder: ObjectStore, name: str, app: App, moment: SavepointPosition, receipts: Iterable[ShardReceipt]
) -> SavepointManifest:
    """Run step 3: write the manifest."""
    every = sorted(receipts, key=lambda one: (one.file.stage, one.file.shard))
    manifest = SavepointManifest(
        name=name,
        epoch=moment.epoch,
        batch=moment.batch,
        created_ms=moment.created_ms,
        version=_version(),
        settled=moment.settled,
        app=describe(app),
        position=moment.position.to_json(),
        domains=tuple(_domains(app, [one.cells for one in every])),
        tables=merge(table for one in every for table in one.tables),
        files=tuple(one.file for one in every),
    )
    folder.write(MANIFEST, manifest.to_json())
    return manifest


def _version() -> str:
    try:
        return metadata.version("headgate")
    except metadata.PackageNotFoundError:
        return "unknown"


def _domains(app: App, cells: Iterable[Mapping[str, Any]]) -> Iterable[DomainProgress]:
    """Every shard has the same times, except one that has had no cut yet."""
    known = [[from_cells(time) for time in one["domains"]] for one in cells if "domains" in one]
    for place, sources in enumerate(app.watermark_groups):
        time = _latest([times[place] for times in known])
        partitions = tuple(_progress(app, number, one) for number, one in sorted(time.partitions.items()))
        yield DomainProgress(tuple(app.topics[source] for source in sources), time.watermark_ms, partitions)


def _latest(times: Sequence[WatermarkState]) -> WatermarkState:
    """All of it only ever grows."""
    return max(times, key=_age, default=WatermarkState())


def _age(time: WatermarkState) -> tuple[int, int, int]:
    every = time.partitions.values()
    return time.watermark_ms, len(every), sum(one.active_ms for one in every)


def _progress(app: App, number: int, time: PartitionTime) -> PartitionProgress:
    topic, partition = to_topic_partition(number, app.topics)
    return PartitionProgress(topic, partition, time.max_event_ms, time.active_ms, time.watermark_ms)
