"""Takes a savepoint, wherever the state is.

The steps, whoever takes them (a crash after any of them leaves a folder without a manifest, which is no savepoint; the
next attempt under that name removes it):

1. ``Savepoints.begin``: an empty folder.
2. ``parts.write_shard`` for each shard of each stage, in any process, with its blobs as they are after the batch.
3. ``finish``: the manifest, with the digests of what step 2 wrote. Only now it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from streamcore.app import App
from streamcore.position import Position, place_of
from streamcore.savepoint.describe import describe
from streamcore.savepoint.manifest import MANIFEST, DomainProgress, PartitionProgress, SavepointManifest
from streamcore.savepoint.parts import ShardReceipt, merged
from streamcore.shard import from_cells
from streamcore.storage import Folder
from streamcore.watermark import PartitionTime, WatermarkState


@dataclass(frozen=True, slots=True)
class Moment:
    """After which batch a savepoint is, and where the next one begins. ``created_ms``: for people.

    ``settled``: false when a later batch may have been written in part.
    """

    epoch: int
    batch: int
    position: Position
    created_ms: int
    settled: bool = True


def finish(folder: Folder, name: str, app: App, moment: Moment, receipts: Iterable[ShardReceipt]) -> SavepointManifest:
    """Step 3."""
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
        tables=merged(table for one in every for table in one.tables),
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
    for place, sources in enumerate(app.domains):
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
    topic, partition = place_of(number, app.topics)
    return PartitionProgress(topic, partition, time.max_event_ms, time.active_ms, time.watermark_ms)
