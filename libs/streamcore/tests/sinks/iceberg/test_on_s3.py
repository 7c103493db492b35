"""Iceberg tables with their files on a real S3 server: the same guarantees as on a disk.

Needs a server that the environment names (``tests/harness/servers/s3_server.py``); leaves its objects there. The
catalogue is SQL: a bucket alone has no commit that fails for the second of two writers.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, StreamError
from streamcore.sinks.iceberg.settings import IcebergSettings
from streamcore.sinks.iceberg.sink import IcebergSink
from streamcore.sinks.sink import SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import iceberg_child, killable
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.iceberg_child import TABLE, options, settings, sink
from tests.harness.oracles import iceberg_files
from tests.harness.servers import s3_server

pytestmark = [
    pytest.mark.skipif(not s3_server.ENDPOINT, reason="no S3 server: name one (tests/harness/servers/s3_server.py)"),
    pytest.mark.slow,
]

_OWNER = WriterId("app", 1)
_CUTS = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a catalogue whose tables are in the bucket."""
    other = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": s3_server.new_location(tmp_path).uri,
        "s3.endpoint": s3_server.ENDPOINT,
        "s3.region": os.environ.get("AWS_REGION", "us-east-1"),
    }
    (tmp_path / "catalog.json").write_text(json.dumps(other))
    return tmp_path


@pytest.mark.parametrize(("death", "at"), [("created", 1), ("before-commit", 3), ("commit", 3), ("lost", 4)])
def test_a_process_killed_at_any_step_leaves_a_table_that_its_successor_completes(
    folder: Path, death: str, at: int
) -> None:
    assert killable.run(iceberg_child.main, folder, _CUTS, death, at) == -signal.SIGKILL
    assert killable.run(iceberg_child.main, folder, _CUTS) == 0
    assert iceberg_files.ids(folder, TABLE) == list(range(_CUTS * PER_CUT))


def test_kills_at_random_moments_neither_lose_nor_repeat_rows(folder: Path) -> None:
    killable.run_and_kill((300, 500, 800), iceberg_child.main, folder, 20)
    assert killable.run(iceberg_child.main, folder, 20) == 0
    assert iceberg_files.ids(folder, TABLE) == list(range(20 * PER_CUT))


def test_an_epoch_that_starts_between_the_files_and_the_commit_fences_the_writer(folder: Path) -> None:
    new = sink(folder)

    def overtake(step: str) -> None:
        if step == "before-commit":
            new.open(WriterId("app", 2))

    old = sink(folder, SinkHooks(on_step=overtake))
    old.open(_OWNER)
    with pytest.raises(Fenced):
        old.write(cut_id(0), {"rows": cut(0)})
    assert new.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    assert iceberg_files.ids(folder, TABLE) == list(range(PER_CUT))


class _Forgetful(IcebergSink):
    """The protection off: a commit has no cut."""

    def _entries(self, lane: str, cut: CutId | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return super()._entries(lane, None)


def test_without_the_ledger_a_replayed_cut_is_written_twice(folder: Path) -> None:
    for _ in range(2):
        writer = _Forgetful(settings(folder), {"rows": SCHEMA})
        writer.open(_OWNER)
        assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        writer.close()
    assert iceberg_files.ids(folder, TABLE) == sorted([*range(PER_CUT)] * 2)


def test_the_keys_of_the_settings_are_used_and_no_error_contains_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = folder / "right", folder / "wrong"
    right.write_text(os.environ["AWS_SECRET_ACCESS_KEY"])
    wrong.write_text("not-the-secret")

    def writer(secret: Path) -> IcebergSink:
        catalog = {
            "options": options(folder) | {"s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"]},
            "secret_files": {"s3.secret-access-key": secret},
        }
        document = {"catalog": catalog, "tables": {"rows": {"table": TABLE}}, "patience": {"recovery_ms": 1_000}}
        return IcebergSink(TypeAdapter(IcebergSettings).validate_python(document), {"rows": SCHEMA})

    with monkeypatch.context() as without:
        without.delenv("AWS_SECRET_ACCESS_KEY")
        sound = writer(right)
        sound.open(_OWNER)
        assert sound.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        with pytest.raises(StreamError) as rejected:
            writer(wrong).open(WriterId("app", 2))
        assert "not-the-secret" not in f"{rejected.value} {rejected.value.__cause__}"
    assert iceberg_files.ids(folder, TABLE) == list(range(PER_CUT))
