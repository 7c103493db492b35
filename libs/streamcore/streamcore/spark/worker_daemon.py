"""The process that Spark forks its Python workers from, with the heavy modules loaded once.

A fresh worker spends 1.6 CPU-seconds on imports, and a cold app starts several. Forked from this process they find the
modules there. Only modules are loaded before the fork: no thread is started and nothing is computed, for neither
would survive it.

Spark's own loop collects garbage after every task, all of it: with those modules loaded that is most of what a small
task costs (measured: 65 of 78 CPU-ms). Here what was loaded is frozen, and the collections that are asked for
are skipped; the ones that Python does by itself, when objects have piled up, stay.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace

from streamcore.spark.session import PRELOAD


class _WithoutPandas:
    """Hides pandas from pyarrow, which would load it, a third of all that is loaded, only to know its types."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("workers do without pandas", name=name)


def main() -> None:
    """Load, then serve forks until Spark ends."""
    from pyspark import daemon

    sys.meta_path.insert(0, _WithoutPandas())
    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        importlib.import_module(name)
    gc.freeze()
    # As the JVM does (``jvm_process``): a drain needs the workers. The JVM ends this process by its standard input, and
    # the workers by SIGKILL.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    vars(daemon)["gc"] = SimpleNamespace(collect=lambda: 0)
    daemon.manager()


if __name__ == "__main__":
    main()
