"""Object stores: the same guarantees in a folder and in a bucket."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streamcore.errors import ConfigError, Retryable
from streamcore.storage import LocalObjectStore, ObjectStore, open_object_store
from streamcore.storage import s3 as module
from streamcore.storage.s3 import PIECE_BYTES, S3ObjectStore
from tests.harness.servers.storage_locations import s3_place


def test_a_store_holds_exactly_what_was_written(any_place: ObjectStore) -> None:
    assert (any_place.files(), any_place.folders(), any_place.read("a")) == ([], [], None)
    any_place.write("a", b"1")
    any_place.write("b/c", b"2")
    any_place.under("b").write("d/e", b"")
    assert any_place.files() == ["a", "b/c", "b/d/e"]
    assert any_place.folders() == ["b"]
    assert any_place.under("b").files() == ["c", "d/e"]
    assert any_place.under("b").folders() == ["d"]
    assert (any_place.read("a"), any_place.under("b").read("c"), any_place.read("b/d/e")) == (b"1", b"2", b"")
    any_place.write("a", b"3")
    assert any_place.read("a") == b"3"


def test_a_range_of_a_file_is_read_and_parts_are_written_behind_each_other(any_place: ObjectStore) -> None:
    large = os.urandom(PIECE_BYTES)
    any_place.write_parts("a/parts", [b"first", b"", large, b"last"])
    whole = b"first" + large + b"last"
    assert any_place.read("a/parts") == whole
    for start, size in ((0, 5), (3, 0), (3, 10), (5, PIECE_BYTES), (2, PIECE_BYTES + 5), (len(whole) - 2, 2)):
        assert any_place.read_range("a/parts", start, size) == whole[start : start + size]
    assert any_place.read_range("a/parts", len(whole) - 2, 10) == b"st"
    assert any_place.read_range("a/parts", len(whole) + 3, 10) == b""
    assert any_place.read_range("a/none", 0, 5) is None
    any_place.write_parts("a/parts", [b"new"])
    any_place.remove_unfinished()
    assert any_place.read("a/parts") == b"new"


def test_removing_a_prefix_keeps_its_neighbours(any_place: ObjectStore) -> None:
    for name in ("a/x", "a/y/z", "ab/x", "b"):
        any_place.write(name, b"1")
    any_place.under("a").remove()
    assert any_place.files() == ["ab/x", "b"]
    any_place.discard("b")
    any_place.discard("b")
    any_place.under("a").remove()
    assert any_place.files() == ["ab/x"]
    any_place.remove()
    assert (any_place.files(), any_place.folders()) == ([], [])


def test_a_store_can_be_reopened_by_its_address_and_in_another_process(any_place: ObjectStore) -> None:
    any_place.under("x").write("a", b"1")
    assert open_object_store(any_place.under("x").url).read("a") == b"1"
    assert open_object_store(any_place.url + "/x/").read("a") == b"1"
    assert pickle.loads(pickle.dumps(any_place)).read("x/a") == b"1"


@pytest.mark.slow
def test_a_multipart_upload_reads_back_complete(any_place: ObjectStore) -> None:
    content = os.urandom(2 * PIECE_BYTES + 17)
    for size in (PIECE_BYTES, PIECE_BYTES + 1, len(content)):
        any_place.write("large", content[:size])
        assert any_place.read("large") == content[:size]


def test_a_reader_sees_the_old_or_the_new_file_while_it_is_replaced(any_place: ObjectStore) -> None:
    contents = [bytes([n]) * 300_000 for n in range(2)]
    any_place.write("file", contents[0])
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for content in contents:
                any_place.write("file", content)

    writing = threading.Thread(target=replace)
    writing.start()
    try:
        assert {any_place.read("file") for _ in range(60)} <= set(contents)
    finally:
        stop.set()
        writing.join()


@pytest.mark.slow
def test_a_file_whose_writer_is_killed_is_complete_or_absent(any_place: ObjectStore) -> None:
    code = (
        "import sys; from streamcore.storage import open_object_store\n"
        "place, content = open_object_store(sys.argv[1]), bytes(80_000_000)\n"
        "print(flush=True); place.write('large', content)"
    )
    found = []
    for wait_s in (0.01, 0.03, 0.1):
        process = subprocess.Popen([sys.executable, "-c", code, any_place.url], stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait_s)
            process.kill()
        found.append(any_place.read("large"))
        assert any_place.files() == ([] if found[-1] is None else ["large"])
        any_place.remove()
    assert found[0] is None
    assert {None if one is None else len(one) for one in found} <= {None, 80_000_000}


def test_a_conditional_write_succeeds_once_for_each_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = s3_place(monkeypatch)
    assert folder.read_tagged("a") is None
    assert folder.exchange("a", b"1", '"some tag"') is None
    first = folder.exchange("a", b"1", None)
    assert first is not None
    assert folder.read_tagged("a") == (b"1", first)
    assert folder.exchange("a", b"2", None) is None
    second = folder.exchange("a", b"2", first)
    assert second is not None
    assert folder.exchange("a", b"3", first) is None
    assert folder.read_tagged("a") == (b"2", second)


def test_a_tag_belongs_to_its_content_while_the_file_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, known, stop = s3_place(monkeypatch), {}, threading.Event()

    def replace() -> None:
        tag, number = None, 0
        while not stop.is_set():
            content = b"%d" % number
            tag, number = folder.exchange("a", content, tag), number + 1
            assert tag is not None
            known[tag] = content

    writing = threading.Thread(target=replace)
    writing.start()
    pairs = [folder.read_tagged("a") for _ in range(1_000)]
    stop.set()
    writing.join()
    seen = {pair for pair in pairs if pair is not None}
    assert len(seen) > 10
    assert all(known[tag] == content for content, tag in seen)


@pytest.mark.parametrize(
    "url", ["s3://", "s3://UPPER/x", "s3://a/x", "s3://bucket/a/../b", "s3://bucket:80/x", "s3://bucket/x?region=eu"]
)
def test_an_address_without_a_prefix_in_a_bucket_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match="write s3://bucket/prefix"):
        open_object_store(url)


def test_keys_in_an_address_are_rejected_without_showing_them() -> None:
    with pytest.raises(ConfigError) as rejected:
        open_object_store("s3://key:hidden@bucket/x")
    assert "hidden" not in str(rejected.value)


def test_addresses_of_other_kinds_are_rejected() -> None:
    with pytest.raises(ConfigError, match="is not known; give a path"):
        open_object_store("ftp://host/place")


def test_extra_slashes_do_not_change_an_address() -> None:
    assert (
        open_object_store("s3://bucket//a/b/") == S3ObjectStore("bucket", "a/b") == S3ObjectStore("bucket").under("a/b")
    )
    assert open_object_store("s3://bucket/").url == "s3://bucket"
    assert open_object_store("file:///x/y") == LocalObjectStore(Path("/x/y"))


@pytest.mark.parametrize(
    ("changed", "bucket", "error", "text"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "", ConfigError, "not allowed"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "", ConfigError, "look at AWS_ENDPOINT_URL, the keys|not allowed"),
        ({}, "there-is-no-such-bucket", ConfigError, "there is no such bucket"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "", Retryable, "127.0.0.1:1"),
        ({"AWS_ALLOW_HTTP": "false"}, "", ConfigError, "has no TLS; set AWS_ALLOW_HTTP=true"),
    ],
)
def test_the_error_for_a_failing_server_names_the_address_and_no_key(
    changed: dict[str, str], bucket: str, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = s3_place(monkeypatch)
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "_store", module._store.__wrapped__)  # the client lives as long as the process
    folder = S3ObjectStore(bucket or folder.bucket, folder.prefix)
    for ask in (lambda: folder.read("a"), lambda: folder.write("a", b""), folder.files, folder.folders, folder.remove):
        with pytest.raises(error, match=text) as rejected:
            ask()
        assert f"s3://{folder.bucket}" in str(rejected.value)
        for secret in (os.environ["AWS_SECRET_ACCESS_KEY"], "Signature="):
            assert secret not in str(rejected.value)
        assert rejected.value.__cause__ is None, "the message of the client would be in a traceback"


def test_a_process_without_a_bucket_does_not_load_the_s3_client() -> None:
    code = (
        "import sys\n"
        "import headgate.main, streamcore.service.spark_savepoints, headgate_rules.settings\n"
        "from streamcore.storage import open_object_store\n"
        "open_object_store('/nowhere').files()\n"
        "print([m for m in sys.modules if m.startswith('obstore') or m == 'streamcore.storage.s3'])"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert completed.stdout == "[]\n"
