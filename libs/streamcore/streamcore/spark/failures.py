"""Turns what ended a query into one error of streamcore, whose message is one sentence.

Spark reports a lost worker, an unreachable broker, a full disk, a damaged file and a bug with one exception, whose text
is a stack trace of Java. Its last cause describes the failure, and the error of a Python worker is text in it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamcore import errors
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.spark_files import find_log_damage, find_state_damage
from streamcore.errors import CorruptState, Permanent, Retryable, StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)')
_JAVA_CLASS = re.compile(r"(?:[a-z][\w$]*\.)+[\w$]*?(\w+): ")
_TASK = re.compile(
    r"(?:\S+: )?Job aborted due to stage failure: .*? most recent failure: Lost task .*? \(TID.*?\) \(.*?\): "
)
#: Texts in errors of Spark, Hadoop and RocksDB about a damaged file. The last is of a change log that ends early.
_DAMAGED = (
    *("ChecksumException", "Checksum error", "Stream is corrupted", "ZipException", "Corruption: "),
    "readLineage should only be invoked",
)
#: A Python worker that found its connection closed, in code of pyspark: the JVM's side of it ended first.
_CUT_OFF = re.compile(
    r'  File "[^"\n]*/pyspark/[^"\n]*", line \d+, in \w+\n(?:    .*\n)*'
    r"(?:EOFError|BrokenPipeError|ConnectionResetError)\b"
)
#: Texts of failures of which a damaged or missing file may be the cause.
_UNREADABLE = (
    *("CANNOT_LOAD_STATE_STORE", "RocksDBException", "NoSuchFile", "FileNotFound", "JsonParseException"),
    "java.io.EOFException",
)
#: Texts of the error of a query with other keyed stages than its checkpoint; the second is of a query that has, or had,
#: blocks that go around a stage: Spark counts its source once for each way.
_OTHER_STAGES = (
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "sources in the checkpoint offsets and now there are",
)
_MOST_FILES = 3
#: A disk with less room counts as full: a block of 4 KiB may be free that a larger file does not fit into.
_FULL_BYTES = 1 << 20
#: Exit code of a JVM with -XX:+ExitOnOutOfMemoryError.
_OUT_OF_MEMORY = 3


class TaskFailed(Retryable):
    """A Python worker raised an error that is not one of streamcore. A second attempt that ends in the same way shows
    that it is a fault of the program."""


def explain_failure(
    text: str, root: CheckpointRoot, find_savepoint: Callable[[], str | None], local_dir: Path | None = None
) -> StreamError:
    """Return the error for a query that ended with this text of Spark.

    ``root``: the app's checkpoint, of which Spark's files are checked; those of the state only if the text is about
    them, for there may be many. ``find_savepoint`` returns the name of the newest savepoint. ``local_dir``: the folder
    in which Spark keeps files for itself.
    """
    if _CUT_OFF.search(text):
        return _explain_cut_off(root, local_dir)
    if (python := _worker_error(text)) is not None:
        return python
    cause = last_cause(text)
    if "No space left on device" in text:
        return Retryable(f"disk full: {_describe_full_disks(root, local_dir)} ({cause}); make room there")
    damage = find_log_damage(root.spark)
    if not damage and any(sign in text for sign in _DAMAGED + _UNREADABLE):
        damage = find_state_damage(root.spark)
    if damage or any(sign in text for sign in _DAMAGED):
        return CorruptState(_describe_damage(root, damage, cause, find_savepoint()))
    if any(sign in text for sign in _OTHER_STAGES):
        return Permanent(
            f"checkpoint {root.spark}: it was written with other keyed stages: a step of the program with state, "
            f"`deduplicate` of a stream, or the setting `feature_stage`, came or went, or another version wrote it; "
            f"{_describe_remedy(find_savepoint())}, or take the change back"
        )
    if "Python worker exited unexpectedly" in text:
        return Retryable("a Python worker of Spark ended: it was killed, or its memory was not enough")
    if "Python worker failed to connect back" in text:
        return Retryable("a Python worker of Spark did not start in time; the machine has too little processor time")
    if "CANNOT_LOAD_STATE_STORE" in text:
        remedy = _describe_remedy(find_savepoint())
        return Retryable(f"checkpoint {root.spark}: the state cannot be read: {cause}; if this stays so, {remedy}")
    return Retryable(cause)


def _explain_cut_off(root: CheckpointRoot, local_dir: Path | None) -> Retryable:
    """Return the error for a worker to which Spark has closed the connection. Most often the state store failed, of
    which the worker learns no more."""
    if full := _full_disks(root, local_dir):
        return Retryable(f"disk full: {' and '.join(full)}; make room there")
    return Retryable(
        f"the JVM of Spark closed its connection to a Python worker, as it does when it cannot read or write the state "
        f"in {root.spark}; its own message, before this one, has the reason"
    )


def _describe_full_disks(root: CheckpointRoot, local_dir: Path | None) -> str:
    """Name the folders that have no room, or all to which Spark writes if there is room again."""
    return " and ".join(_full_disks(root, local_dir) or _folders(root, local_dir))


def _full_disks(root: CheckpointRoot, local_dir: Path | None) -> list[str]:
    free = {place: _free_bytes(path) for place, path in _folders(root, local_dir).items()}
    return [f"{place} has {count} bytes free" for place, count in free.items() if count < _FULL_BYTES]


def _folders(root: CheckpointRoot, local_dir: Path | None) -> dict[str, Path]:
    """Return the folders on disks of this machine to which Spark writes, by their descriptions."""
    folders = {"checkpoint": root.path, "local_dir": local_dir or Path(tempfile.gettempdir())}
    return {f"{name} {path}": path for name, path in folders.items() if isinstance(path, Path)}


def _free_bytes(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(folder).free
    return 0


def _describe_damage(root: CheckpointRoot, damage: list[str], cause: str, savepoint: str | None) -> str:
    files = "; ".join(damage[:_MOST_FILES]) or f"the files of Spark cannot be read ({cause})"
    more = f"; and {len(damage) - _MOST_FILES} more" if len(damage) > _MOST_FILES else ""
    return f"checkpoint {root.spark}: {files}{more}; {_describe_remedy(savepoint)}. Nothing was changed."


def _describe_remedy(savepoint: str | None) -> str:
    return f"restore the app from {f'savepoint {savepoint}' if savepoint else 'a savepoint; there is none of this app'}"


def last_cause(text: str) -> str:
    """Return the message of the last cause in a stack trace of Java, without the name of a package."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Without a cause the exception itself follows Py4J's line, after a colon.
    first = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "")
    cause = _TASK.sub("", causes[-1] if causes else first)
    return _JAVA_CLASS.sub(r"\1: ", cause, count=1)


def _worker_error(text: str) -> StreamError | None:
    """Return the error that a Python worker raised, or None if there is none in the text."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = rest.split("\n")
    begin = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), None)
    if begin is None:
        return None
    end = next((n for n in range(begin, len(lines)) if not lines[n] or lines[n].startswith("\t")), len(lines))
    name, _, first = lines[begin].partition(": ")
    message = " ".join([first, *lines[begin + 1 : end]]).strip()
    kind = getattr(errors, name.rpartition(".")[2], None) if name.startswith(errors.__name__) else None
    if kind is not None:
        return Permanent(message) if kind is StreamError else kind(message)
    frames = [m for m in map(_FRAME.fullmatch, lines[:begin]) if m is not None]
    where = f" (line {frames[-1][2]} of {frames[-1][1]}, in {frames[-1][3]})" if frames else ""
    return TaskFailed(f"{name}: {message}{where}" if message else f"{name}{where}")


def explain_jvm_end(session: SparkSession, wait_s: float = 5) -> Permanent | None:
    """Return an error that describes how the JVM ended, or None if it still lives after ``wait_s``."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(timeout=wait_s)
    except subprocess.TimeoutExpired:
        return None
    return Permanent(f"the JVM of Spark (process {process.pid}) ended: {_describe_exit(code)}. Start the service again")


def _describe_exit(code: int) -> str:
    """Describe the exit code of a JVM; below 0 it is the number of a signal."""
    if code == -signal.SIGKILL:
        return "signal 9, which the system sends when memory is short; compare its limit with the setting driver_memory"
    if code < 0:
        return f"signal {-code}, {signal.Signals(-code).name}"
    if code == _OUT_OF_MEMORY:
        return "its memory is full; raise the setting driver_memory"
    return f"exit code {code}; its last messages are on standard error"
