"""Some cuts of nothing, so that an app's first real one finds everything awake.

The first cut of a process takes many times what the next takes: the JVM loads and compiles its classes, Spark generates
code, workers are forked and import, the state store opens. A standby has the time for that before it owns anything. So
it runs the app's own plan, under another name, on empty cuts, with a checkpoint of its own that is deleted afterwards.
Nothing is read from Kafka and nothing is written to a sink; a worker keeps what it built under the rehearsal's name and
never uses it for the app.
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
from streamcore.checkpoint.files import remove_folder
from streamcore.errors import StreamError
from streamcore.kafka.settings import KafkaSettings
from streamcore.location import Location, for_spark
from streamcore.planner import Share
from streamcore.spark.collected import collected
from streamcore.spark.processor import CUT, pack_shares
from streamcore.spark.query import build_query

_LOG = logging.getLogger(__name__)
#: The second finds state that the first wrote.
_CUTS = 2
_LIMIT_S = 120.0
_POLL_S = 0.2
_CLOCK_MS = 1_000


def rehearse(
    session: SparkSession, app: App, kafka: KafkaSettings, tasks: int, scratch: Location, enough: Callable[[], bool]
) -> None:
    """Run it until it is done, or is ``enough``. ``scratch`` is a folder that executors reach too, and is deleted.

    A failure is logged and no more: what is wrong will be wrong again in the first cut, and is said there.
    """
    deadline = time.monotonic() + _LIMIT_S
    done = threading.Event()

    def cut(frame: DataFrame, batch: int) -> None:
        session.sparkContext.setLocalProperty(CUT, pack_shares([Share((), _CLOCK_MS * (batch + 1))]))
        collected(frame)
        if batch + 1 == _CUTS:
            done.set()

    try:
        frame = build_query(session, replace(app, name="rehearsal"), kafka, tasks)
        stream = (
            frame.writeStream.foreachBatch(cut).outputMode("append").option("checkpointLocation", for_spark(scratch))
        )
        query = stream.queryName(f"{app.name}-rehearsal").start()
        try:
            while query.isActive and not done.wait(_POLL_S) and not enough() and time.monotonic() < deadline:
                pass
        finally:
            query.stop()
    except Exception as error:
        _LOG.warning("the rehearsal failed: %s", str(error).partition("\n")[0])
    finally:
        with contextlib.suppress(StreamError):
            remove_folder(scratch)
