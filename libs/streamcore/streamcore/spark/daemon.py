"""The process that Spark forks its Python workers from, with the heavy modules loaded once.

A fresh worker spends 1.6 CPU-seconds on imports, and a cold app starts several. Forked from this process they find the
modules there. Only modules are loaded before the fork: no thread is started and nothing is computed, for neither
would survive it.
"""

from __future__ import annotations

import importlib
import os

from pyspark.daemon import manager

#: Names the modules to load, separated by commas.
PRELOAD = "STREAMCORE_PRELOAD"


def main() -> None:
    """Load, then serve forks until Spark ends."""
    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        importlib.import_module(name)
    manager()


if __name__ == "__main__":
    main()
