"""Delta tables on a real S3 server: the same guarantees as on a disk, with conditional puts as commits.

Needs a server that the environment names (``tests/harness/servers/s3_server.py``); leaves its objects there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, StreamError
from streamcore.sinks.delta.settings import DeltaSettings
from streamcore.sinks.delta.sink import DeltaSink
from streamcore.sinks.sink import SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import delta_child, killable
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut, settings, sink
from tests.harness.oracles import delta_log
from tests.harness.servers.s3_server import ENDPOINT, S3Location, environment, new_location, options

pytestmark = [
    pytest.mark.skipif(not ENDPOINT, reason="no S3 server: name one (tests/harness/servers/s3_server.py)"),
    pytest.mark.slow,
]

_OWNER = WriterId("app", 1)
#: Enough cuts for upkeep, which never delays a cut, to run several times.
_CUTS = 25


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Location:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return new_location(tmp_path)


def _ids(location: S3Location) -> list[int]:
    return sorted(int(str(row["id"])) for row in delta_log.rows(location.copy()))


@pytest.mark.parametrize(
    ("death", "at"),
    [("created", 1), ("fenced", 1), ("before-commit", 3), ("committed", 5), ("compacted", 1), ("checkpointed", 1)],
)
def test_a_process_killed_at_any_step_leaves_a_table_that_its_successor_completes(
    location: S3Location, death: str, at: int
) -> None:
    assert killable.run(delta_child.main, location.uri, _CUTS, death, at) == -signal.SIGKILL
    assert killable.run(delta_child.main, location.uri, _CUTS) == 0
    assert _ids(location) == list(range(_CUTS * PER_CUT))


def test_kills_at_random_moments_neither_lose_nor_repeat_rows(location: S3Location) -> None:
    killable.run_and_kill((100, 200, 300, 400), delta_child.main, location.uri, 40)
    assert killable.run(delta_child.main, location.uri, 40) == 0
    assert _ids(location) == list(range(40 * PER_CUT))


def test_two_processes_of_one_epoch_write_the_same_cuts_once(location: S3Location) -> None:
    sink(location.uri).open(_OWNER)
    assert 0 in killable.run_together(2, delta_child.main, location.uri, 20), (
        "the slower one may be fenced: the ledger is ahead"
    )
    assert _ids(location) == list(range(20 * PER_CUT))


def test_an_epoch_that_starts_between_the_files_and_the_commit_fences_the_writer(location: S3Location) -> None:
    new = sink(location.uri)

    def overtake(step: str) -> None:
        if step == "before-commit":
            new.open(WriterId("app", 2))

    old = sink(location.uri, SinkHooks(on_step=overtake))
    old.open(_OWNER)
    with pytest.raises(Fenced):
        old.write(cut_id(0), {"rows": cut(0)})
    assert new.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    assert _ids(location) == list(range(PER_CUT))


class _Forgetful(DeltaSink):
    """The protection off: a commit has neither its cut nor its epoch."""

    def _marks(self, lane: str, cut: CutId) -> Mapping[str, int]:
        return {}


def test_without_the_application_transaction_a_replayed_cut_is_written_twice(location: S3Location) -> None:
    for _ in range(2):
        writer = _Forgetful(settings(location.uri), {"rows": SCHEMA})
        writer.open(_OWNER)
        assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        writer.close()
    assert _ids(location) == sorted([*range(PER_CUT)] * 2)


def test_the_keys_of_the_settings_are_used_and_no_error_contains_them(
    location: S3Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(os.environ["AWS_SECRET_ACCESS_KEY"])
    wrong.write_text("not-the-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-this-one-either")

    def writer(secret: Path) -> DeltaSink:
        document = {
            "tables": {"rows": {"uri": location.uri, "partition_by": ["day"]}},
            "storage": {
                "options": options() | {"aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"]},
                "secret_files": {"aws_secret_access_key": secret},
            },
            "patience": {"recovery_ms": 1_000},
        }
        return DeltaSink(TypeAdapter(DeltaSettings).validate_python(document), {"rows": SCHEMA})

    with pytest.raises(StreamError) as rejected:
        writer(wrong).open(_OWNER)
    assert "not-the-secret" not in f"{rejected.value} {rejected.value.__cause__}"
    sound = writer(right)
    sound.open(_OWNER)
    assert sound.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", right.read_text())
    assert _ids(location) == list(range(PER_CUT))
