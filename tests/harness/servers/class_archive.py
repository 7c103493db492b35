"""An archive of the classes that Spark's JVM loads, so that each of the many JVMs of a test run maps them.

The first run on a machine makes it (``streamcore.spark.class_archive``). A run that cannot, as on a machine that is too
busy, goes on without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from headgate.console.messages import to_stderr
from headgate.errors import SetupError
from headgate.local import cache as local_cache
from headgate.local import jars
from headgate.local import java as java_runtime

_VARIABLE = "STREAMCORE_CLASS_ARCHIVE"
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
        file = str(part / "spark.jsa")
        command = [sys.executable, "-m", "streamcore.spark.class_archive", file, "--jars", str(library)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if not (part / "spark.jsa").exists():
            raise SetupError(f"tests: no archive of Spark's classes: {completed.stderr[-2000:]}")

    try:
        local_cache.publish(target, build, to_stderr)
    except (SetupError, subprocess.TimeoutExpired) as error:
        to_stderr(f"Spark starts without an archive of its classes: {error}")
        return
    os.environ[_VARIABLE] = str(target / "spark.jsa")
