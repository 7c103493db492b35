"""Describes the steps to take a savepoint, and does the last one.

A crash before the end of step 3 leaves a folder without a manifest, which is no savepoint; the next attempt with that
name removes it.

1. ``SavepointRepository.create``: an empty folder.
2. ``state_files.save_shard`` for each shard of each stage, in any process, with its state after the batch.
3. ``write_manifest``: the manifest, with the digests of the files of step 2. Now the savepoint exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from streamcore.app import App
from streamcore.engine.shard import from_cells
from streamcore.offsets import StreamOffsets, to_topic_partition
from streamcore.savepoint.app_description import describe
from streamcore.savepoint.manifest import (
    FORMAT,
    FORMAT_WITH_STREAMS,
    MANIFEST,
    PartitionProgress,
    SavepointManifest,
    UnequalCopies,
    WatermarkGroupProgress,
)
from streamcore.savepoint.state_files import ShardReceipt, merge
from streamcore.schema.published_document import PublishedDocument
from streamcore.storage import ObjectStore
from streamcore.watermark import PartitionTime, WatermarkState


@dataclass(frozen=True, slots=True)
class SavepointPosition:
    """The batch whose state a savepoint has.

    ``position``: the offsets and clock at which the next cut begins. ``created_ms``: time of creation, for people.
    ``settled``: False if a part of a later batch may be written. ``streams``: those that were published while the app
    ran, as the next cut has them.
    """

    epoch: int
    batch: int
    position: StreamOffsets
    created_ms: int
    settled: bool = True
    streams: tuple[PublishedDocument, ...] = ()


def write_manifest(
    folder: ObjectStore, name: str, app: App, position: SavepointPosition, receipts: Iterable[ShardReceipt]
) -> SavepointManifest:
    """Run step 3: write the manifest."""
    ordered = sorted(receipts, key=lambda receipt: (receipt.stage, receipt.shard))
    manifest = SavepointManifest(
        name=name,
        epoch=position.epoch,
        batch=position.batch,
        created_ms=position.created_ms,
        version=_version(),
        settled=position.settled,
        app=describe(app),
        position=position.position.to_json(),
        watermark_groups=tuple(_watermark_groups(app, [receipt.cells for receipt in ordered])),
        tables=merge(table for receipt in ordered for table in receipt.tables),
        files=tuple(file for receipt in ordered for file in receipt.files),
        unequal_copies=tuple(_unequal_copies(ordered)),
        streams=position.streams,
        format=FORMAT_WITH_STREAMS if position.streams else FORMAT,
    )
    folder.write(MANIFEST, manifest.to_json())
    return manifest


def _unequal_copies(receipts: Iterable[ShardReceipt]) -> Iterator[UnequalCopies]:
    """Yield each replicated table with two shards whose rows differ."""
    first: dict[tuple[int, str], tuple[int, str]] = {}
    found: set[tuple[int, str]] = set()
    for receipt in receipts:
        for name, digest in receipt.copies.items():
            table, shard = (receipt.stage, name), receipt.shard
            known_shard, known_digest = first.setdefault(table, (shard, digest))
            if digest != known_digest and table not in found:
                found.add(table)
                yield UnequalCopies(name, (known_shard, shard))


def _version() -> str:
    try:
        return metadata.version("headgate")
    except metadata.PackageNotFoundError:
        return "unknown"


def _watermark_groups(app: App, cells: Iterable[Mapping[str, Any]]) -> Iterable[WatermarkGroupProgress]:
    """Yield the event time of each watermark group. ``cells``: of all shards, which have equal watermarks; a shard that
    has had no cut yet has none."""
    known = [[from_cells(cell) for cell in shard["watermark_groups"]] for shard in cells if "watermark_groups" in shard]
    for index, sources in enumerate(app.watermark_groups):
        time = _latest([times[index] for times in known])
        partitions = tuple(_progress(app, number, progress) for number, progress in sorted(time.partitions.items()))
        yield WatermarkGroupProgress(tuple(app.topics[source] for source in sources), time.watermark_ms, partitions)


def _latest(times: Sequence[WatermarkState]) -> WatermarkState:
    """Return the latest of the watermark states of all shards; an empty one without any."""
    return max(times, key=_order, default=WatermarkState())


def _order(time: WatermarkState) -> tuple[int, int, int]:
    """Return a sort key that grows with each cut, because none of its values ever decreases."""
    partitions = time.partitions.values()
    return time.watermark_ms, len(partitions), sum(partition.active_ms for partition in partitions)


def _progress(app: App, number: int, time: PartitionTime) -> PartitionProgress:
    topic, partition = to_topic_partition(number, app.topics)
    return PartitionProgress(topic, partition, time.max_event_ms, time.active_ms, time.watermark_ms)
