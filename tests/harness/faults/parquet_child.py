"""A process that writes cuts to a folder of Parquet files and dies at a given step.

``parquet_child.py FOLDER CUTS DEATH [N]``: ``FOLDER`` may be ``s3://bucket/prefix``; ``DEATH`` is a step of the
protocol, at its ``N``-th time, or ``never``. Prints ``done`` when it got through.
"""

from __future__ import annotations

import os
import signal
import sys
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


def main() -> None:
    """Write the cuts that the arguments name."""
    folder, cuts, death = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    left = int(sys.argv[4]) if len(sys.argv) > 4 else 1
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
    print("done")


if __name__ == "__main__":
    main()
