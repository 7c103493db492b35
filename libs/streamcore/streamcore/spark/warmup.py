"""Runs empty cuts that warm up a process, so that the first real cut of its app is fast.

The first cut of a process takes many times as long as the next: the JVM loads and compiles its classes, Spark generates
code, workers are forked and import modules, the state store opens. A standby has the time for this before it is
promoted. It runs the app's query, under another name, on empty cuts, with a scratch checkpoint that is deleted
afterwards. Nothing is read from Kafka or written to a sink. Workers cache the objects of the warm-up under its name and
never use them for the app.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.planner import TaskAssignment
from streamcore.errors import StreamError
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.collect import collect_shards
from streamcore.spark.query import build_query
from streamcore.spark.wire import ASSIGNMENTS_PROPERTY, BATCH_PROPERTY, encode_assignments
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import remove_folder
from streamcore.storage.location import Location, for_spark

_LOG = logging.getLogger(__name__)
#: The second cut reads the state that the first one wrote.
_CUTS = 2
_LIMIT_S = 120.0
_POLL_S = 0.2
_CLOCK_MS = 1_000


def warm_up(
    session: SparkSession,
    app: App,
    kafka: KafkaSettings,
    tasks: int,
    scratch: Location,
    enough: Callable[[], bool],
    limit_s: float = _LIMIT_S,
) -> bool:
    """Run the empty cuts; stop early if ``enough`` returns True, or after ``limit_s`` seconds. Return whether all ran.

    ``scratch``: folder of the scratch checkpoint, which executors must reach and which is deleted at the end.

    A failure is only logged, because the first real cut would report it.
    """
    deadline = time.monotonic() + limit_s
    done = threading.Event()

    def cut(frame: DataFrame, batch: int) -> None:
        session.sparkContext.setLocalProperty(
            ASSIGNMENTS_PROPERTY, encode_assignments([TaskAssignment((), CutClock.at(_CLOCK_MS * (batch + 1)))])
        )
        session.sparkContext.setLocalProperty(BATCH_PROPERTY, str(batch))
        collect_shards(frame)
        if batch + 1 == _CUTS:
            done.set()

    try:
        root = CheckpointRoot(scratch)
        frame = build_query(session, replace(app, name="warmup"), kafka, tasks, open_object_store(root.stages))
        stream = frame.writeStream.foreachBatch(cut).outputMode("append")
        stream = stream.option("checkpointLocation", for_spark(root.spark))
        query = stream.queryName(f"{app.name}-warmup").start()
        try:
            while query.isActive and not done.wait(_POLL_S) and not enough() and time.monotonic() < deadline:
                pass
        finally:
            query.stop()
    except Exception as error:
        _LOG.warning("Spark's warm-up failed: %s; the first cut will be slower", str(error).partition("\n")[0])
    finally:
        with contextlib.suppress(StreamError):
            remove_folder(scratch)
    return done.is_set()
