"""Starts Spark's JVM, so that a signal to all processes of a service leaves it alone, and forwards its messages.

What Spark's Python workers write to standard error comes through the JVM as well. It drops lines
that are of no use to a person: the stack traces of threads, and the ends of threads that Spark itself ends.
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from streamcore.environment import JAVA_HOME
from streamcore.spark.java_command import gateway_command, gateway_environment

#: Beginnings of lines that come with every start: Java names a module that Spark loads on purpose, and Spark reports
#: the steps of a process that it asks for the state variables of a query.
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Starting Streaming TransformWithStateInPandas Python worker",
    b"Streaming TransformWithStateInPandas Python worker",
)
#: The thread that waits until a worker asks for state: when a task ends before its worker has connected, Spark closes
#: the socket under it. With any other error it is the thread in which the state store failed.
_STATE_THREAD = b'Exception in thread "stateConnectionListenerThread" '
_CLOSED = re.compile(rb"\S*\.(?:ClosedByInterrupt|AsynchronousClose|ClosedChannel)Exception")
_THREAD_ENDED = b'Exception in thread "'
#: Of a failed task. Spark adds advice to its developers.
_WORKER_ENDED = re.compile(rb"TaskSetManager.*Lost task .*Python worker exited unexpectedly")
_LOG = logging.getLogger(__name__)
_CAUSE = b"Caused by: "
_TRACE = (b"\tat ", b"\t... ", b"\tSuppressed: ", b"\t\tat ")


def start_jvm(command: Sequence[str], *, preexec_fn: Callable[[], object], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process as ``Popen`` does; it ignores SIGTERM, and so does every program that it becomes.

    systemd, for example, sends SIGTERM to every process of a service. The driver drains then, and needs its JVM until
    the last batch. The JVM ends when the driver ends, however that happens: its standard input is closed then.
    """

    def prepare() -> None:
        preexec_fn()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    options.setdefault("stderr", subprocess.PIPE)
    process = subprocess.Popen(command, preexec_fn=prepare, **options)  # noqa: PLW1509 - pyspark starts it so too
    if process.stderr is not None:
        threading.Thread(target=_forward, args=(process.stderr,), name="jvm-messages", daemon=True).start()
    return process


def start_gateway(command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start the JVM of ``command``, which calls ``spark-submit``, as ``start_jvm`` does, but without ``spark-submit``.

    Raises ``ConfigError`` if there is no Java.
    """
    gateway = gateway_command(command, env.get(JAVA_HOME))
    return start_jvm(gateway, env=gateway_environment(command, env), **options)


def _forward(messages: IO[bytes]) -> None:
    """Write the lines to standard error, until the last process that holds the other end has closed it."""
    for line in drop_noise(messages):
        if _WORKER_ENDED.search(line):
            _LOG.warning(
                "a Python worker of Spark ended: it was killed, or its memory was not enough; its task runs again"
            )
            continue
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()


def drop_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are of use to a person. Of a thread that ended with an error they are the error and its
    causes; of the thread of the state, whose error has its cause in it, the error."""
    trace: tuple[bytes, ...] = ()
    for line in lines:
        if trace and line.startswith(trace):
            continue
        is_cause = bool(trace) and line.startswith(_CAUSE)
        trace = _TRACE if is_cause or line.startswith(_THREAD_ENDED) else ()
        if line.startswith(_STATE_THREAD):
            trace = (*_TRACE, _CAUSE)
            if _CLOSED.match(line, len(_STATE_THREAD)):
                continue
        if line.strip() and not line.startswith(_NOISE):
            yield line
