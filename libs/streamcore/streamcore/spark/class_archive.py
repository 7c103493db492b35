"""``python -m streamcore.spark.class_archive FILE``: writes an archive of the classes that Spark's JVM loads.

A JVM that is started with the archive maps the classes instead of loading and verifying each, which saves a third of
the processor time of a start. The command runs empty cuts of a small app, and its JVM writes at its end what it has
loaded. If the cuts do not end in ``_LIMIT_S`` seconds, the JVM is killed and there is no archive: it would lack what
the cuts load. A JVM ignores an archive of another version of Java or of other jars of Spark; the archive knows nothing
of the folder of further jars.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamcore.app import App

_LIMIT_S = 300.0


#: The file system that an app uses is in a further jar.
_FILE_SYSTEM = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}


def write_archive(file: Path) -> None:
    """Write the archive."""
    from pyspark import SparkContext

    from streamcore.errors import StreamError
    from streamcore.kafka.settings import KafkaSettings
    from streamcore.spark.session import QUIET_ARCHIVES, SparkSettings, open_session
    from streamcore.spark.warmup import warm_up

    # The name of a machine that builds an image may have no address.
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="localhost")
    with tempfile.TemporaryDirectory() as folder:
        options = (f"-XX:ArchiveClassesAtExit={file}", *QUIET_ARCHIVES)
        settings = SparkSettings(None, local_dir=Path(folder), java_options=options, extra=_FILE_SYSTEM)
        session = open_session("classes", settings)
        gateway = SparkContext._gateway
        assert gateway is not None, "a session has started"
        kafka, scratch = KafkaSettings("127.0.0.1:1"), Path(folder) / "warm-up"
        if not warm_up(session, _small_app(), kafka, 2, scratch, lambda: False, _LIMIT_S):
            gateway.proc.kill()
            raise StreamError(f"no archive: two empty cuts did not end in {_LIMIT_S:.0f} s")
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_LIMIT_S)


def _small_app() -> App:
    """An app with state, whose cuts load what those of every app load."""
    import polars as pl

    from streamcore.aggregates import Sum
    from streamcore.schema import StreamSchema
    from streamcore.topology.stream import source
    from streamcore.topology.topology import Topology
    from streamcore.watermark import bounded_out_of_orderness
    from streamcore.windowing import Tumbling

    stream = {
        "name": "orders",
        "event_time": "at",
        "keys": [["country"]],
        "fields": {"at": "timestamp not null", "country": "string not null", "amount": "decimal(12,2) not null"},
    }
    orders = source(StreamSchema.parse(stream), bounded_out_of_orderness("1m"))
    revenue = orders.key_by("country").window(Tumbling("1h")).aggregate("revenue", revenue=Sum("amount"))
    large = orders.filter(pl.col("amount") >= 1_000)
    topology = Topology("classes", revenue.sink("revenue"), large.sink("large"))
    return topology.app(topics={"orders": "orders"}, shards=2)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write an archive of the classes that Spark's JVM loads.")
    parser.add_argument("file", type=Path, help="the archive")
    write_archive(parser.parse_args().file)


if __name__ == "__main__":
    main()
