"""A process that writes cuts to a folder of Parquet files and dies at a given step.

``folder`` may be ``s3://bucket/prefix``; ``death`` is a step of the protocol, the ``at``-th time, or ``never``.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.parquet.settings import ParquetFolderSpec, ParquetSettings
from streamcore.sinks.parquet.sink import ParquetSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from streamcore.storage.location import location
from tests.harness.cut_ids import cut_id
from tests.harness.faults.delta_child import SCHEMA, cut


def settings(folder: Path | str) -> ParquetSettings:
    """Return the settings of one lane in a folder."""
    return ParquetSettings(
        {"rows": ParquetFolderSpec(location(folder), ("day",))}, patience=RetryPolicy(20_000, 10, 100)
    )


def sink(folder: Path | str, hooks: SinkHooks | None = None) -> ParquetSink:
    """Return the sink of the folder."""
    return ParquetSink(settings(folder), {"rows": SCHEMA}, hooks)


def main(folder: Path | str, cuts: int, death: str = "never", at: int = 1) -> None:
    """Write cuts 0 to ``cuts`` - 1, without those that an earlier process has written."""
    left = at
    lock = threading.Lock()

    def reached(step: str) -> None:
        nonlocal left
        with lock:  # files are written by several threads
            left -= step == death
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    writer = sink(folder, SinkHooks(on_step=reached))
    last = writer.open(WriterId("app", 1))
    for batch in range(0 if last is None else last.batch, cuts):  # Spark repeats the last cut
        writer.write(cut_id(batch), {"rows": cut(batch)})
    writer.close()
