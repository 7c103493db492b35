"""A request of a dead process that arrives after its successor has continued changes nothing."""

from __future__ import annotations

import time

import pytest

from streamcore.errors import Fenced
from streamcore.sinks.opensearch.bulk_lines import LaneDocuments, document_version
from streamcore.sinks.opensearch.client import SearchClient
from streamcore.sinks.opensearch.ledger import IndexLedger
from streamcore.sinks.opensearch.settings import IndexSpec
from streamcore.sinks.sink import SinkHooks
from tests.harness.servers.search_index import SCHEMA, SearchIndex, table, write

pytestmark = pytest.mark.opensearch


def _send_late_request(search_index: SearchIndex, batch: int, *, versions: bool = True) -> None:
    """Send the request that a predecessor had in flight for this batch."""
    rows = table([("a", "predecessor", 1, False)])
    spec = IndexSpec(search_index.alias, ("id",), "deleted")
    body = LaneDocuments("products", rows, spec, document_version(1, batch)).last().body()
    if not versions:
        body = body.replace(b',"version_type":"external"', b"").replace(
            b',"version":%d' % document_version(1, batch), b""
        )
    client = SearchClient(search_index.settings().login)
    client.bulk(f"{search_index.alias}-000001", body)
    client.close()


def _write_and_delete(search_index: SearchIndex) -> None:
    """Write cuts as the successor of a process that died in cut 0: cut 0 again, and cut 1, a deletion."""
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "predecessor", 1, False)])
    write(sink, 1, [("a", None, None, True)])
    sink.close()


def test_a_late_request_does_not_restore_a_deleted_document(search_index: SearchIndex) -> None:
    _write_and_delete(search_index)
    search_index.ask("POST", f"/{search_index.alias}/_refresh")
    _send_late_request(search_index, 0)
    assert search_index.contents() == {}


def test_a_late_request_does_not_overwrite_a_newer_document(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "predecessor", 1, False)])
    write(sink, 1, [("a", "successor", 2, False)])
    _send_late_request(search_index, 0)
    assert search_index.contents() == {"a": ("successor", 2)}
    sink.close()


def test_a_late_request_restores_a_deleted_document_if_the_server_forgets_deletions_too_soon(
    search_index: SearchIndex,
) -> None:
    """The protection off: settings that ``open`` rejects."""
    _write_and_delete(search_index)
    search_index.ask("PUT", f"/{search_index.alias}-000001/_settings", {"index.gc_deletes": "100ms"})
    deadline = time.monotonic() + 20
    while (
        search_index.contents() == {} and time.monotonic() < deadline
    ):  # each search refreshes the index, which makes the server forget deletions
        time.sleep(0.3)
        _send_late_request(search_index, 0)
    assert search_index.contents() == {"a": ("predecessor", 1)}


def test_a_late_request_restores_a_deleted_document_without_external_versions(search_index: SearchIndex) -> None:
    """The protection off."""
    _write_and_delete(search_index)
    _send_late_request(search_index, 0, versions=False)
    assert search_index.contents() == {"a": ("predecessor", 1)}


def test_an_owner_of_an_earlier_epoch_writes_nothing_once_a_later_one_has_opened(search_index: SearchIndex) -> None:
    old, new = search_index.sink(), search_index.sink()
    old.open(search_index.owner(1))
    write(old, 5, [("a", "old", 1, False)])
    new.open(search_index.owner(2))
    with pytest.raises(Fenced, match="epoch 2 has begun, this is 1"):
        write(old, 6, [("a", "old again", 2, False)])
    with pytest.raises(Fenced):
        search_index.sink().open(search_index.owner(1))
    write(new, 0, [("a", "new", 3, False)])
    assert search_index.contents() == {"a": ("new", 3)}
    old.close()
    new.close()


def test_an_owner_that_is_superseded_in_the_middle_of_a_cut_is_fenced_at_its_end(
    search_index: SearchIndex,
) -> None:
    new = search_index.sink()

    def write_as_successor(step: str) -> None:
        if step == "live":
            new.open(search_index.owner(2))
            write(new, 0, [("a", "new", 3, False)])

    old = search_index.sink(SinkHooks(on_step=write_as_successor))
    old.open(search_index.owner(1))
    with pytest.raises(Fenced):
        write(old, 6, [("a", "old", 2, False)])
    assert search_index.contents() == {"a": ("new", 3)}
    old.close()
    new.close()


def test_without_the_ledger_the_earlier_owner_is_not_fenced(
    search_index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off."""
    old, new = search_index.sink(), search_index.sink()
    old.open(search_index.owner(1))
    new.open(search_index.owner(2))
    monkeypatch.setattr(IndexLedger, "check", lambda *_: None)
    write(old, 6, [("a", "old", 2, False)])
    assert search_index.contents() == {"a": ("old", 2)}
    assert SCHEMA.names[0] == "id"
    old.close()
    new.close()
