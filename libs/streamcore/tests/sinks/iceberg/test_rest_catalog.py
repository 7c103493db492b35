"""Iceberg tables of a REST catalogue: the same guarantees as with an SQL catalogue."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Transaction

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.sinks.iceberg.catalog import SingleCommitTransaction
from streamcore.sinks.iceberg.settings import IcebergCatalog, IcebergSettings, IcebergTableSpec
from streamcore.sinks.iceberg.sink import IcebergSink
from streamcore.sinks.sink import WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import iceberg_child, killable
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.iceberg_child import TABLE, options
from tests.harness.oracles import iceberg_files
from tests.harness.servers.iceberg_catalog import running_catalog

pytestmark = pytest.mark.slow

_CUTS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose catalogue is served over HTTP."""
    place = tmp_path_factory.mktemp("rest")
    with running_catalog(place) as server:
        (place / "catalog.json").write_text(json.dumps(server.options))
        yield place


def _sink(folder: Path, table: str, keep_snapshots: int = 100) -> IcebergSink:
    tables = {"rows": IcebergTableSpec(table, ("day",), keep_snapshots=keep_snapshots)}
    return IcebergSink(IcebergSettings(IcebergCatalog(options(folder)), tables), {"rows": SCHEMA})


def test_a_process_killed_before_and_after_a_commit_leaves_a_table_that_its_successor_completes(folder: Path) -> None:
    for death, expected in (("commit", -signal.SIGKILL), ("lost", -signal.SIGKILL), ("never", 0)):
        assert killable.run(iceberg_child.main, folder, _CUTS, death, 2) == expected
    assert iceberg_files.ids(folder, TABLE) == list(range(_CUTS * PER_CUT))


@pytest.mark.parametrize("protected", [True, False])
def test_an_owner_of_an_earlier_epoch_is_fenced_unless_the_library_repeats_its_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    table = f"shop.fenced_{protected}".lower()
    old, new = _sink(folder, table), _sink(folder, table)
    old.open(WriterId("app", 1))
    new.open(WriterId("app", 2))
    if protected:
        with pytest.raises(Fenced):
            old.write(cut_id(0), {"rows": cut(0)})
        assert new.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    else:
        monkeypatch.setattr(SingleCommitTransaction, "commit_transaction", Transaction.commit_transaction)
        assert old.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    assert iceberg_files.ids(folder, table) == list(range(PER_CUT))


def test_old_snapshots_are_expired_and_no_row_is_lost(folder: Path) -> None:
    writer = _sink(folder, "shop.expired", keep_snapshots=4)
    writer.open(WriterId("app", 1))
    for batch in range(8):
        writer.write(cut_id(batch), {"rows": cut(batch)})
    assert 4 <= len(iceberg_files.metadata(folder, "shop.expired")["snapshots"]) <= 5
    assert iceberg_files.ids(folder, "shop.expired") == list(range(8 * PER_CUT))
