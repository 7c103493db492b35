"""The streams in a checkpoint that were published while the app ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcore.checkpoint.stream_log import StreamLog
from streamcore.errors import CorruptState
from streamcore.schema.published_document import PublishedDocument, digest_documents, merge_documents


def published(name: str, version: int) -> PublishedDocument:
    fields = {"at": "timestamp not null"}
    document = {"name": name, "version": version, "event_time": "at", "keys": [[]], "fields": fields}
    return PublishedDocument.of(f"topic-{name}", document)


A1, A2, B1 = published("a", 1), published("a", 2), published("b", 1)


def test_each_batch_has_the_streams_that_were_written_last_before_it(tmp_path: Path) -> None:
    log = StreamLog(tmp_path / "streams")
    assert log.in_force(7) == ()
    log.write(5, (A1,))
    log.write(9, merge_documents((A1,), (B1, A2)))
    assert [log.in_force(batch) for batch in (4, 5, 8)] == [(), (A1,), (A1,)]
    assert log.in_force(9) == log.in_force(1_000) == (A2, B1)
    log.write(9, (A2, B1))
    assert log.in_force(9) == (A2, B1)


def test_old_files_go_except_for_the_one_that_is_needed(tmp_path: Path) -> None:
    log = StreamLog(tmp_path, keep=10)
    for batch in (1, 2, 3, 14):
        log.write(batch, (A1,))
    assert sorted(int(file.name) for file in tmp_path.iterdir()) == [3, 14]


def test_a_lost_and_a_changed_file_are_found(tmp_path: Path) -> None:
    log = StreamLog(tmp_path)
    log.write(5, (A1,))
    log.write(9, (A2,))
    log.check(9, digest_documents([A2]))
    log.check(3, "")
    (tmp_path / "9").rename(tmp_path / "kept")
    with pytest.raises(CorruptState, match="batch 9 was planned with the published streams"):
        log.check(9, digest_documents([A2]))
    (tmp_path / "9").write_bytes((tmp_path / "5").read_bytes())
    with pytest.raises(CorruptState, match="is of another batch"):
        log.in_force(9)
    (tmp_path / "9").write_bytes((tmp_path / "kept").read_bytes().replace(b"topic-a", b"topic-x"))
    with pytest.raises(CorruptState, match="damaged"):
        log.in_force(9)
