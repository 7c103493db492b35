"""The jars that Spark needs beyond those of pyspark: those of an image, or of the cache, which fetches them once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from headgate.console.messages import Print, to_stderr
from headgate.local import jars, java
from streamcore.storage.location import Location, ObjectPath


def ensure_spark(checkpoint: Location, print_message: Print = to_stderr) -> Path | None:
    """Make Java and the jars ready for a Spark session. Return the folder of the jars; None if Spark has them.

    ``checkpoint``: decides whether the client of object stores is needed too.
    """
    installed = java.ensure(print_message)
    java.activate(installed)
    name = jars.JarSet.S3 if isinstance(checkpoint, ObjectPath) else jars.JarSet.SPARK
    return None if _has(name) else jars.ensure(name, installed, print_message)


def _has(name: jars.JarSet) -> bool:
    """Return whether Spark's own folder has the jars of the set, as in an image."""
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(place) / "jars" for place in (spec.submodule_search_locations or ())] if spec else []
    wanted = [jar.file_name for jar in jars.parse_lock(jars.lock_text(name))]
    return any(all((folder / jar).exists() for jar in wanted) for folder in folders)
