"""The message when a query ends: one sentence with the cause, from texts as Spark writes them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.errors import ConfigError, CorruptState, Permanent, Retryable, StreamError
from streamcore.spark.failures import TaskFailed, explain_failure, explain_jvm_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """An error occurred while calling o157.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult: \n\
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:56)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 5.0 failed 1 times, most \
recent failure: Lost task 1.0 in stage 5.0 (TID 9) (host executor driver): """
WORKER = (
    JOB
    + """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/usr/lib/pyspark/worker.py", line 3000, in main
    process()
    ~~~~~~~^^
  File "/usr/lib/streamcore/spark/worker.py", line 74, in _read
    reader = _readers.pop(kafka, None)
{}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:600)
"""
)
STATE = (
    JOB
    + """org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] State not loaded.
\tat org.apache.spark.sql.execution.streaming.state.RocksDB.load(RocksDB.scala:1)
Caused by: {}
\tat org.apache.hadoop.fs.FSInputChecker.verifySums(FSInputChecker.java:347)
"""
)
SCHEMA = "_stateSchema/default/0_id"
#: As Spark writes it, shortened.
DESCRIPTION = (
    'v2\n{"operatorInfo":{"operatorId":0},"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,'
    '"numPartitions":2,"stateSchemaFilePaths":["file:/a/_stateSchema/default/0_id"]}],"operatorPropertiesJson":'
    '"{\\"timeMode\\":\\"NoTime\\",\\"outputMode\\":\\"Append\\",\\"stateVariables\\":[]}"}'
)


def explain(text: str, folder: Path, savepoint: str | None = "nightly") -> StreamError:
    return explain_failure(text, CheckpointRoot(folder), lambda: savepoint)


def state_file(folder: Path, content: bytes, checked: bytes) -> Path:
    """A change log of version 1, with Hadoop's checksum of ``checked``, and the logs of Spark."""
    for log in ("offsets", "commits"):
        (folder / "spark" / log).mkdir(parents=True)
        (folder / "spark" / log / "0").write_text('v2\n{"stateUniqueIds":{"0":[["id"]]}}')
    (folder / "spark" / "metadata").write_text("{}")
    operator = folder / "spark" / "state" / "0"
    for name, text in (("_metadata/v2/0", DESCRIPTION.replace("/a/", f"{operator}/")), (SCHEMA, "v3")):
        (operator / name).parent.mkdir(parents=True)
        (operator / name).write_text(text)
    file = operator / "0" / "1_id.changelog"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    sums = b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(checked).to_bytes(4, "big")
    (file.parent / f".{file.name}.crc").write_bytes(sums)
    return file


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("streamcore.errors.Retryable: kafka a:9092: no answer", Retryable, "kafka a:9092: no answer"),
        ("streamcore.errors.ConfigError: no such table", ConfigError, "no such table"),
        ("streamcore.errors.CorruptState: blob 7 is missing", CorruptState, "blob 7 is missing"),
        (
            "TypeError: unhashable type: 'dict'",
            TaskFailed,
            "TypeError: unhashable type: 'dict' (line 74 of /usr/lib/streamcore/spark/worker.py, in _read)",
        ),
    ],
)
def test_the_error_of_a_python_worker_keeps_its_type_and_message(
    line: str, kind: type[StreamError], message: str, tmp_path: Path
) -> None:
    found = explain(WORKER.format(line), tmp_path)
    assert type(found) is kind
    assert str(found) == message


def test_damage_that_a_python_worker_finds_names_the_newest_savepoint_if_there_is_one(tmp_path: Path) -> None:
    text = WORKER.format("streamcore.errors.CorruptState: 0/1/3.index: is missing; restore the app from a savepoint")
    found = explain(text, tmp_path)
    assert type(found) is CorruptState
    assert str(found) == "0/1/3.index: is missing; restore the app from savepoint nightly"
    assert str(explain(text, tmp_path, savepoint=None)).endswith("is missing; restore the app from a savepoint")


def test_the_error_names_a_file_with_a_wrong_checksum_and_the_savepoint(tmp_path: Path) -> None:
    state_file(tmp_path, b"changed", b"written")
    found = explain(STATE.format("java.lang.NullPointerException"), tmp_path)
    assert type(found) is CorruptState
    assert str(found) == (
        f"checkpoint {tmp_path}/spark: state/0/0/1_id.changelog does not match its checksum in "
        "state/0/0/.1_id.changelog.crc; restore the app from savepoint nightly. Nothing was changed."
    )


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    state_file(tmp_path, b"", b"").unlink()
    found = explain(STATE.format("java.nio.file.NoSuchFileException: /tmp/x"), tmp_path, savepoint=None)
    assert "state/0/0/1_id.changelog is missing; restore the app from a savepoint; there is none" in str(found)


@pytest.mark.parametrize(
    "entry", ["stateStoreInfo", "numColsPrefixKey", "numPartitions", "timeMode", "outputMode", "stateVariables"]
)
def test_the_error_names_a_description_of_an_operator_that_lost_an_entry(entry: str, tmp_path: Path) -> None:
    state_file(tmp_path, b"", b"")
    file = tmp_path / "spark/state/0/_metadata/v2/0"
    file.write_text(DESCRIPTION.replace(entry, entry[:-1] + "~"))
    found = explain("key not found: timeMode\n=== Streaming Query ===\n", tmp_path)
    assert type(found) is CorruptState
    assert "state/0/_metadata/v2/0 is changed; restore the app from savepoint nightly" in str(found)


def test_a_change_log_that_ends_early_is_damage(tmp_path: Path) -> None:
    cause = "java.lang.AssertionError: assertion failed: readLineage should only be invoked with state store checkpoint"
    found = explain(STATE.format(cause), tmp_path)
    assert type(found) is CorruptState
    assert "restore the app from savepoint nightly" in str(found)


def test_a_change_log_in_which_spark_reads_beyond_the_end_is_damage(tmp_path: Path) -> None:
    state_file(tmp_path, b"cut", b"whole")
    found = explain(JOB + "java.io.EOFException: reached the end", tmp_path)
    assert type(found) is CorruptState
    assert "state/0/0/1_id.changelog does not match its checksum" in str(found)


@pytest.mark.parametrize("name", ["_metadata/v2/0", SCHEMA])
def test_the_error_names_a_missing_file_of_an_operator(name: str, tmp_path: Path) -> None:
    state_file(tmp_path, b"", b"")
    assert type(explain(JOB + "java.lang.IllegalStateException: no metadata", tmp_path)) is Retryable
    (tmp_path / "spark/state/0" / name).unlink()
    found = explain(JOB + "java.lang.IllegalStateException: no metadata", tmp_path)
    assert type(found) is CorruptState
    assert f"state/0/{name} is missing; restore the app from savepoint nightly" in str(found)


def test_the_error_names_a_missing_snapshot_that_has_a_checksum(tmp_path: Path) -> None:
    snapshot = state_file(tmp_path, b"", b"").with_name("1_id.zip")
    snapshot.with_name("1_id.zip.crc").write_bytes(b"{}")
    assert "state/0/0/1_id.zip is missing" in str(explain(STATE.format("java.lang.NullPointerException"), tmp_path))


@pytest.mark.parametrize("place", [0, 40, -90])
def test_the_error_names_a_changed_snapshot_without_checksums(place: int, tmp_path: Path) -> None:
    snapshot = state_file(tmp_path, b"", b"").with_name("1_id.zip")
    with zipfile.ZipFile(snapshot, "w") as parts:
        parts.writestr("MANIFEST-000005", b"m" * 64)
        parts.writestr("metadata", 'v1\n{"sstFiles":[]}')
    content = bytearray(snapshot.read_bytes())
    text = STATE.format("java.lang.NullPointerException")
    assert type(explain(text, tmp_path)) is Retryable
    content[place] ^= 1
    snapshot.write_bytes(content)
    assert "state/0/0/1_id.zip is cut short or changed; restore the app" in str(explain(text, tmp_path))


def test_damage_that_only_spark_detects_is_corrupt_state(tmp_path: Path) -> None:
    state_file(tmp_path, b"written", b"written")
    cause = "org.rocksdb.RocksDBException: Corruption: block checksum mismatch in /tmp/spark-1/000008.sst"
    found = explain(STATE.format(cause), tmp_path)
    assert type(found) is CorruptState
    assert "RocksDBException: Corruption: block checksum mismatch" in str(found)


def test_intact_state_that_could_not_be_loaded_is_retryable(tmp_path: Path) -> None:
    state_file(tmp_path, b"written", b"written")
    found = explain(STATE.format("java.io.IOException: Connection reset"), tmp_path)
    assert type(found) is Retryable
    assert str(found) == (
        f"checkpoint {tmp_path}/spark: the state cannot be read: IOException: Connection reset; if this stays so, "
        "restore the app from savepoint nightly"
    )


@pytest.mark.parametrize("full", ["checkpoint", "local_dir"])
def test_the_error_names_the_full_disk(full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"checkpoint": tmp_path / "checkpoint", "local_dir": tmp_path / "local"}

    def disk_usage(folder: Path) -> SimpleNamespace:
        return SimpleNamespace(free=4096 if folder == folders[full] else 1 << 30)

    text = STATE.format("java.io.FileNotFoundException: /var/x/y (No space left on device)")
    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    found = explain_failure(text, CheckpointRoot(folders["checkpoint"]), lambda: None, folders["local_dir"])
    assert type(found) is Retryable
    assert str(found) == (
        f"disk full: {full} {folders[full]} has 4096 bytes free (FileNotFoundException: /var/x/y (No space left on "
        "device)); make room there"
    )


@pytest.mark.parametrize("error", ["EOFError", "BrokenPipeError: [Errno 32] Broken pipe"])
@pytest.mark.parametrize("free", [0, 1 << 30])
def test_a_worker_that_lost_its_connection_is_no_fault_of_the_program(
    error: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = '  File "/usr/lib/pyspark/serializers.py", line 602, in read_int\n    raise EOFError\n'
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    found = explain(WORKER.format(frame + error), tmp_path)
    assert type(found) is Retryable
    assert ("closed its connection to a Python worker" if free else "has 0 bytes free") in str(found)


def test_an_end_of_file_in_the_program_is_a_fault_of_the_program(tmp_path: Path) -> None:
    assert type(explain(WORKER.format("EOFError"), tmp_path)) is TaskFailed


def test_a_task_error_without_a_cause_keeps_its_message(tmp_path: Path) -> None:
    found = explain(JOB + "java.io.EOFException: reached the end", tmp_path)
    assert str(found) == "EOFException: reached the end"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9, which the system sends when memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "signal 15, SIGTERM"),
        ("raise SystemExit(3)", "raise the setting driver_memory"),
        ("raise SystemExit(1)", "exit code 1"),
    ],
)
def test_the_error_gives_the_reason_why_the_jvm_ended(code: str, words: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        found = explain_jvm_end(spark_session(process))
    assert type(found) is Permanent
    assert f"(process {process.pid}) ended: " in str(found)
    assert words in str(found)


def test_a_running_jvm_raises_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert explain_jvm_end(spark_session(process), wait_s=0.1) is None
        process.send_signal(signal.SIGKILL)


def spark_session(process: subprocess.Popen[bytes]) -> SparkSession:
    """A session whose JVM is this process."""
    gateway = SimpleNamespace(proc=process)
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway)))


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.spark.SparkRuntimeException: [STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming "
        "stateful operator name does not match with the operator in state metadata.",
        "java.lang.AssertionError: assertion failed: There are [1] sources in the checkpoint offsets and now there are "
        "[2] sources requested by the query. Cannot continue.",
    ],
)
def test_a_checkpoint_of_other_keyed_stages_is_named_and_not_tried_again(cause: str, tmp_path: Path) -> None:
    found = explain(JOB.partition("Caused by")[0] + f"Caused by: {cause}\n", tmp_path)
    assert type(found) is Permanent
    assert "or the setting `feature_stage`, came or went, or another version wrote it; restore the app" in str(found)
