"""An archive of the classes that Spark's JVM loads, so that each of the many JVMs of a test run maps them.

The first run on a machine builds it (``headgate.local.class_archive``). A run that cannot, as on a machine that is too
busy, goes on without it.
"""

from __future__ import annotations

import subprocess
from functools import cache

from headgate.console.messages import to_stderr
from headgate.errors import SetupError
from headgate.local import java as java_runtime
from headgate.local.class_archive import ClassArchive


@cache
def use() -> None:
    """Build the archive unless it is there, and have all children of this process use it."""
    java = java_runtime.ensure(to_stderr)
    java_runtime.activate(java)
    archive = ClassArchive.of(java)
    if archive is None:
        return
    try:
        archive.build(to_stderr)
    except (SetupError, subprocess.TimeoutExpired) as error:
        to_stderr(f"Spark starts without an archive of its classes: {error}")
        return
    archive.use()
