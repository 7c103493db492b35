"""An archive of the classes that Spark's JVM loads, so that each of the many JVMs of a test run maps them.

A start with the archive takes about half of the CPU seconds of one without. The first run on a machine makes it: a
process runs empty cuts of a small app, and its JVM writes down what it has loaded. A JVM leaves an archive aside that
does not fit its version or its jars.

Run as a program, with the folder of the jars: the process whose classes are archived.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from headgate.console.messages import to_stderr
from headgate.errors import SetupError
from headgate.local import cache as local_cache
from headgate.local import jars
from headgate.local import java as java_runtime

_OPTIONS = "SPARK_SUBMIT_OPTS"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_LIMIT_S = 300.0


@cache
def use() -> None:
    """Make the archive unless it is there, and have all children of this process use it."""
    java = java_runtime.ensure(to_stderr)
    java_runtime.activate(java)
    if not java.shares_classes:
        return
    library = jars.ensure(jars.JarSet.SPARK, java, to_stderr)
    identity = f"{java.home}|{java.build}|{library}|{metadata.version('pyspark')}|{sys.prefix}"
    target = local_cache.root() / "classes" / f"spark-{sha256(identity.encode()).hexdigest()[:16]}"

    def build(part: Path) -> None:
        command = [sys.executable, "-m", "tests.harness.servers.class_archive", str(library)]
        options = {_OPTIONS: f"-XX:ArchiveClassesAtExit={part / 'spark.jsa'} {_QUIET}"}
        done = subprocess.run(
            command, env=os.environ | options, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        if not (part / "spark.jsa").exists():
            raise SetupError(f"tests: no archive of Spark's classes: {done.stderr[-2000:]}")

    local_cache.publish(target, build, to_stderr)
    os.environ[_OPTIONS] = f"-XX:SharedArchiveFile={target / 'spark.jsa'} {_QUIET}"


def _load_classes(library: Path) -> None:
    """Run empty cuts of an app with state, then wait until the JVM has written its archive."""
    import polars as pl
    from pyspark import SparkContext

    import streamcore as sc
    from streamcore.spark.session import open_session
    from streamcore.spark.warmup import warm_up

    stream = {
        "name": "orders",
        "event_time": "at",
        "keys": [["country"]],
        "fields": {"at": "timestamp not null", "country": "string not null", "amount": "decimal(12,2) not null"},
    }
    orders = sc.source(sc.StreamSchema.parse(stream), sc.bounded_out_of_orderness(60_000))
    revenue = orders.key_by("country").window(sc.Tumbling(3_600_000)).aggregate("revenue", revenue=sc.Sum("amount"))
    large = orders.filter(pl.col("amount") >= 1_000)
    topology = sc.Topology("classes", revenue.sink("revenue"), large.sink("large"))
    app = topology.app(topics={"orders": "orders"}, shards=2)
    with tempfile.TemporaryDirectory() as scratch:
        session = open_session("classes", sc.SparkSettings(library, local_dir=Path(scratch)))
        warm_up(session, app, sc.KafkaSettings("127.0.0.1:1"), 2, Path(scratch) / "warm", lambda: False)
        gateway = SparkContext._gateway
        assert gateway is not None, "a session has started"
        session.stop()
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()
        process.wait(_LIMIT_S)


if __name__ == "__main__":
    _load_classes(Path(sys.argv[1]))
