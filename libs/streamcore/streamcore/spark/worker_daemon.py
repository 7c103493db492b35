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
from types import SimpleNamespace

from streamcore.spark.session import PRELOAD
from streamcore.wire import no_pandas


def main() -> None:
    """Load, then serve forks until Spark ends. No garbage is looked for meanwhile: what is loaded stays."""
    gc.disable()
    no_pandas.block()
    from pyspark import daemon

    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    # As the JVM does (``jvm_process``): a drain needs the workers. The JVM ends this process by its standard input, and
    # the workers by SIGKILL.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    vars(daemon)["gc"] = SimpleNamespace(collect=lambda: 0)
    daemon.manager()


if __name__ == "__main__":
    main()
