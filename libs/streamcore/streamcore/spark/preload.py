"""Shortens the first cut of a JVM: loads libraries while Spark's context starts, and interprets the state's rows.

A start is a chain of steps in one thread of the JVM, and most of a step is the first use of a library. The libraries
here know nothing of Spark, so another thread can load them meanwhile, and no order of loading can block both threads.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

#: Classes whose static parts are large: the parser of SQL, and the reader of the signatures in Scala's classes, with
#: which Spark reads its own JSON files.
_CLASSES = (
    "org.apache.spark.sql.catalyst.parser.SqlBaseLexer",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
    "org.json4s.scalap.scalasig.ScalaSigEntryParsers$",
)


def preload(jvm: JVMView | None, *, executes: bool) -> None:
    """Load libraries in a thread. ``executes``: whether tasks run in this JVM."""
    threading.Thread(target=_load, args=(jvm, executes), name="preload", daemon=True).start()


def _load(jvm: Any, executes: bool) -> None:
    with contextlib.suppress(Exception):  # what is missing is loaded when it is needed, or fails there
        if executes:
            # Spark sorts the rows of a group by code that Janino compiles, and keeps state in RocksDB, a native library
            # that is unpacked from its jar.
            jvm.org.codehaus.janino.ExpressionEvaluator().cook("1 + 1")
            jvm.org.rocksdb.RocksDB.loadLibrary()
        for name in _CLASSES:
            jvm.java.lang.Class.forName(name)
        if executes:
            # Spark asks Scala's reflection for the names of methods with which it reads rows of the state.
            jvm.scala.reflect.runtime.package.universe()


def interpret_by_default(jvm: Any) -> None:
    """Make ``spark.sql.codegen.factoryMode=NO_CODEGEN`` the default of this JVM.

    The thread that serves a worker's state has no session, and so the defaults of Spark. With them it generates and
    compiles code for each kind of row: half a second of the first cut. The rows are few.
    """
    entry = jvm.org.apache.spark.sql.internal.SQLConf.CODEGEN_FACTORY_MODE()
    declared = jvm.java.lang.Class.forName("org.apache.spark.internal.config.ConfigEntryWithDefault")
    default = declared.getDeclaredField("_defaultValue")
    default.setAccessible(True)
    default.set(entry, entry.valueConverter().apply("NO_CODEGEN"))
