"""A Spark session with the settings that the engine's guarantees and its latency rest on.

Importing this module costs nothing: an app starts its JVM with it and loads the rest meanwhile (``start``).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamcore.arguments import check_whole
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import ConfigError
from streamcore.spark import s3a as objects
from streamcore.spark.executors import Executors
from streamcore.spark.jvm_process import start_gateway, start_jvm
from streamcore.spark.preload import interpret_by_default, preload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRELOAD = EnvironmentVariable(
    "STREAMCORE_PRELOAD",
    "Modules, separated by commas, that are imported before the first worker is forked. The driver sets it.",
    Reader.WORKER,
)
_SPARK_HOME = EnvironmentVariable(
    "SPARK_HOME", "Folder of Spark.", Reader.SERVICE, default="the installed package pyspark"
)
_WORKER_PYTHON = EnvironmentVariable(
    "PYSPARK_PYTHON", "Python of the workers.", Reader.SERVICE, default="the Python of the driver"
)
_PYTHON = EnvironmentVariable(
    "STREAMCORE_PYTHON", "Python that workers on the driver's machine run. The driver sets it.", Reader.WORKER
)
_DRIVER_PATH = EnvironmentVariable(
    "PYTHONPATH", "Folders of modules, as for every Python; workers get the driver's.", Reader.SERVICE
)
_PYTHON_PATH = EnvironmentVariable(
    "STREAMCORE_PYTHONPATH", "The driver's PYTHONPATH, for those workers. The driver sets it.", Reader.WORKER
)
_POLARS_THREADS = EnvironmentVariable(
    "POLARS_MAX_THREADS",
    "Threads of Polars in a process; executors have 1, because Spark runs tasks in parallel.",
    *(Reader.SERVICE, Reader.WORKER),
    default="`1`",
)
CLASS_ARCHIVE = EnvironmentVariable(
    "STREAMCORE_CLASS_ARCHIVE",
    "Archive of the classes that Spark's JVM loads, for faster starts. The image has one; `headgate up` builds one.",
    *(Reader.COMMAND, Reader.SERVICE),
    default="none; `headgate up` takes the one in its cache",
)

#: The variables that a SparkContext sets when it starts, with the values that pyspark takes without them.
_SET_BY_PYSPARK = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}

#: Spark's option for the number of batches whose state stays.
RETAINED = "spark.sql.streaming.minBatchesToRetain"
_STATE = "spark.sql.streaming.stateStore"
_ROCKSDB = f"{_STATE}.rocksdb"
_LOGGING = Path(__file__).with_name("log4j2.properties")
#: Little is asked of the JVM: it plans cuts and moves shuffle blocks. Its quick compiler alone costs less than both do.
_JAVA_OPTIONS = (
    "-Xss8m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    # Java writes and loads a class for each member that reflection has called 15 times: 300 of them in a start.
    "-Dsun.reflect.inflationThreshold=2147483647",
    f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
)
#: Options of a JVM that logs nothing about its archive of classes, also if that does not fit.
QUIET_ARCHIVES = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_WORKER_PROGRAM = Path(__file__).with_name("worker_python.sh")
#: What every worker needs, whatever the app computes. The last has compiled code, which workers share then.
_PRELOAD = ("pyspark.worker", "streamcore.spark.worker", "streamcore.decode.walk.decoder")
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

#: Would register the functions of machine learning in every session, a third of a second of processor time.
_LEFT_OUT = "spark-mllib_"
#: Where most classes come from. The JVM looks for each class in one jar after the other, and Spark has 270 of them: a
#: third of its start was spent on looking.
_OFTEN_USED = (
    *("scala-library", "spark-catalyst_*", "spark-core_*", "spark-sql_*", "spark-sql-api_*", "spark-common-utils_*"),
    *("spark-network-common_*", "spark-unsafe_*", "log4j-api", "log4j-core", "scala-reflect", "py4j", "janino"),
    *("commons-compiler", "hadoop-client-api", "arrow-vector", "netty-common", "netty-transport", "netty-buffer"),
    *("jackson-core", "jackson-databind", "jackson-module-scala_*", "json4s-*", "antlr4-runtime", "ivy"),
)


#: As many cuts as ``checkpoint.offset_log`` keeps.
MAX_RETAINED = 100


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of a Spark session."""

    #: Folder of further jars.
    jars: Path | None
    #: Master of Spark; unused with ``executors``.
    master: str = "local[2]"
    #: Tasks of a stage, best the number of cores.
    parallelism: int = 2
    #: Memory of the driver's JVM, such as 1g.
    driver_memory: str = "1g"
    #: Folder for Spark's temporary files; without it the system's.
    local_dir: Path | None = None
    #: Memory of RocksDB in a process, in MiB.
    rocksdb_memory_mb: int = 256
    #: Further options of the JVM.
    java_options: tuple[str, ...] = ()
    #: Modules that every Python worker finds loaded.
    preload: tuple[str, ...] = ()
    #: Pods that do the work instead of this process.
    executors: Executors | None = None
    #: Whether log messages of the JVM are JSON.
    json_logs: bool = False
    #: Whether the checkpoint is in a bucket.
    objects: bool = False
    #: Checkpoints that are kept, one a cut: the state after each of the last cuts. From 2 to 100.
    retained_checkpoints: int = 20
    #: Further settings of Spark, by name.
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(retained_checkpoints=self.retained_checkpoints)
        if not 2 <= self.retained_checkpoints <= MAX_RETAINED:
            raise ConfigError(
                f"retained_checkpoints: {self.retained_checkpoints} is not from 2, for the cut that may run again, to "
                f"{MAX_RETAINED}, of which the offset log has the offsets"
            )


def _options(settings: SparkSettings) -> dict[str, str]:
    jars = os.pathsep.join(class_path(settings.jars))
    archive = os.environ.get(CLASS_ARCHIVE)
    archives = [f"-XX:SharedArchiveFile={archive}", *QUIET_ARCHIVES] if archive else []
    logs = ["-Dstreamcore.logs=json"] if settings.json_logs else []
    java_options = " ".join([*_JAVA_OPTIONS, *archives, *logs, *settings.java_options])
    options = {
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        # stop() while a batch is in Python recurses deeper than the default stack allows.
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.parallelism),
        "spark.sql.adaptive.enabled": "false",
        # A cut has few and fat rows: to interpret expressions costs less than to generate code and compile it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Each execution describes its plan for a page of Spark's that is not shown.
        "spark.sql.ui.explainMode": "simple",
        # What is large in a row of ours is compressed already (``streamcore.wire.arrow_ipc``).
        "spark.shuffle.compress": "false",
        # It would show that a task that runs again writes other blocks, at the price of a look at every byte.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        f"spark.executorEnv.{_POLARS_THREADS}": "1",
        f"spark.executorEnv.{PRELOAD}": ",".join([*_PRELOAD, *settings.preload]),
        "spark.python.daemon.module": "streamcore.spark.worker_daemon",
        # With it, functions of SQL get workers of their own kind, forked from a process of their own.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        RETAINED: str(settings.retained_checkpoints),
        # Hadoop's local file system starts a process (chmod, readlink) for each file it makes, renames or opens:
        # measured 40 of them and 150 ms a cut. This one asks the operating system directly.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.checkpointFormatVersion": "2",
        f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
        # To count its keys, the store would read each blob that is replaced or removed.
        f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
        f"{_ROCKSDB}.boundedMemoryUsage": "true",
        f"{_ROCKSDB}.maxMemoryUsageMB": str(settings.rocksdb_memory_mb),
    }
    if settings.executors is None and settings.local_dir is not None:
        options["spark.local.dir"] = str(settings.local_dir)
    if settings.executors is not None:  # which have a volume of their own for it
        options |= settings.executors.options() | {"spark.executor.extraJavaOptions": java_options}
    if settings.objects:
        options |= objects.options(os.environ)
    return options | dict(settings.extra)


def class_path(further: Path | None) -> list[str]:
    """Return the class path of Spark's JVM: its own jars that are often used, its other jars, and those of ``further``.

    The folder ``further`` comes last, so that one archive of classes serves every folder: it belongs to the beginning
    of a path.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "pyspark is among the requirements"
    assert spec.origin is not None, "pyspark is a package of files"
    jars = Path(os.environ.get(_SPARK_HOME) or Path(spec.origin).parent) / "jars"
    often_used = [str(jar) for name in _OFTEN_USED for jar in sorted(jars.glob(f"{name}-[0-9]*.jar"))]
    rest = (str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(_LEFT_OUT))
    folder = [] if further is None else [f"{further}/*"]
    return list(dict.fromkeys([*often_used, *rest, *folder]))


def _worker_python(settings: SparkSettings) -> str:
    """Return the program that starts Python for workers. An image, which executors have, contains no archives."""
    is_local = settings.executors is None and os.access(_WORKER_PROGRAM, os.X_OK)
    return str(_WORKER_PROGRAM) if is_local else sys.executable


def _ignore_error(*_: object) -> None:
    return None


def set_environment(settings: SparkSettings) -> None:
    """Set the variables that a session and its workers read, such as ``PYSPARK_PYTHON``: that of the driver.

    The main thread calls it before another thread opens the session. A new variable moves the C library's table of
    variables, and a thread of Polars reads that table while the main thread imports Polars: the process would end by
    SIGSEGV now and then. The variables that pyspark sets itself are there before it does: a new value moves nothing.
    """
    os.environ |= {_PYTHON: sys.executable, _PYTHON_PATH: os.environ.get(_DRIVER_PATH, "")}
    os.environ.setdefault(_WORKER_PYTHON, _worker_python(settings))
    os.environ.setdefault(_POLARS_THREADS, "1")
    for name, value in _SET_BY_PYSPARK.items():
        os.environ.setdefault(name, value)


def import_pyspark() -> None:
    """Import pyspark.

    The main thread calls it before another thread opens the session. The packages of pyspark import each other in
    circles: of two threads that import them at the same time, one finds a module that has only some of its names.
    """
    importlib.import_module("pyspark.sql")


def open_session(app_name: str, settings: SparkSettings) -> SparkSession:
    """Start (or find) the session, with the environment that it needs (``set_environment``)."""
    from py4j import protocol
    from pyspark import SparkConf, SparkContext, accumulators, java_gateway
    from pyspark.sql import SparkSession
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        # It would print a stack trace when the JVM ends; the runner reports why it ended.
        server.handle_error = _ignore_error  # type: ignore[assignment]
    # They look at each argument of each call to the JVM, and load pyspark's tests, and pandas with them, to know if
    # NumPy is there: 0.4 seconds of processor time while the JVM waits. No argument of ours is of NumPy.
    numpy_converters = (NumpyArrayConverter, NumpyScalarConverter)
    protocol.INPUT_CONVERTER[:] = [c for c in protocol.INPUT_CONVERTER if not isinstance(c, numpy_converters)]
    vars(java_gateway)["Popen"] = start_gateway if settings.executors is None else start_jvm
    set_environment(settings)
    options = {"spark.app.name": app_name, **_options(settings)}
    executes = settings.executors is None
    if SparkContext._gateway is None:
        SparkContext._ensure_initialized(conf=SparkConf().setAll([*options.items()]))
        preload(SparkContext._jvm, executes=executes)
    session = SparkSession.builder.config(map={**options}).getOrCreate()
    if executes:
        interpret_by_default(session._jvm)
    return session
