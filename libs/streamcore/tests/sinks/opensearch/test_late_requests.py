"""A request of a process that died arrives after its successor has gone on: it changes nothing."""

from __future__ import annotations

import time

import pytest

from streamcore.errors import Fenced
from streamcore.sinks.opensearch.bulk_lines import LaneDocuments, document_version
from streamcore.sinks.opensearch.client import SearchClient
from streamcore.sinks.opensearch.ledger import IndexLedger
from streamcore.sinks.opensearch.settings import IndexSpec
from streamcore.sinks.sink import SinkHooks
from tests.harness.servers.search_index import SCHEMA, Place, table, write

pytestmark = pytest.mark.opensearch


def _late(place: Place, batch: int, *, versions: bool = True) -> None:
    """Return the very request that a predecessor had on its way for this batch."""
    rows = table([("a", "predecessor", 1, False)])
    spec = IndexSpec(place.alias, ("id",), "deleted")
    body = LaneDocuments("products", rows, spec, document_version(1, batch)).last().body()
    if not versions:
        body = body.replace(b',"version_type":"external"', b"").replace(
            b',"version":%d' % document_version(1, batch), b""
        )
    client = SearchClient(place.settings().login)
    client.bulk(f"{place.alias}-000001", body)
    client.close()


def _deleted(place: Place) -> None:
    """Write cuts after the predecessor died in cut 0: its successor wrote it, and deleted the document in cut 1."""
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "predecessor", 1, False)])
    write(sink, 1, [("a", None, None, True)])
    sink.close()


def test_a_late_request_does_not_bring_a_deleted_document_back(place: Place) -> None:
    _deleted(place)
    place.ask("POST", f"/{place.alias}/_refresh")
    _late(place, 0)
    assert place.contents() == {}


def test_a_late_request_does_not_win_over_a_newer_document(place: Place) -> None:
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "predecessor", 1, False)])
    write(sink, 1, [("a", "successor", 2, False)])
    _late(place, 0)
    assert place.contents() == {"a": ("successor", 2)}
    sink.close()


def test_when_the_server_forgets_deletions_too_soon_it_does_come_back(place: Place) -> None:
    """The protection off: what ``open`` refuses."""
    _deleted(place)
    place.ask("PUT", f"/{place.alias}-000001/_settings", {"index.gc_deletes": "100ms"})
    deadline = time.monotonic() + 20
    while place.contents() == {} and time.monotonic() < deadline:  # each look refreshes, and that is when it forgets
        time.sleep(0.3)
        _late(place, 0)
    assert place.contents() == {"a": ("predecessor", 1)}


def test_without_external_versions_it_does_come_back(place: Place) -> None:
    """The protection off."""
    _deleted(place)
    _late(place, 0, versions=False)
    assert place.contents() == {"a": ("predecessor", 1)}


def test_an_owner_of_an_earlier_epoch_writes_nothing_once_a_later_one_has_opened(place: Place) -> None:
    old, new = place.sink(), place.sink()
    old.open(place.owner(1))
    write(old, 5, [("a", "old", 1, False)])
    new.open(place.owner(2))
    with pytest.raises(Fenced, match="epoch 2 has begun, this is 1"):
        write(old, 6, [("a", "old again", 2, False)])
    with pytest.raises(Fenced):
        place.sink().open(place.owner(1))
    write(new, 0, [("a", "new", 3, False)])
    assert place.contents() == {"a": ("new", 3)}
    old.close()
    new.close()


def test_an_owner_that_is_overtaken_in_the_middle_of_a_cut_is_told_at_its_end_and_loses(place: Place) -> None:
    new = place.sink()

    def overtaken(step: str) -> None:
        if step == "live":
            new.open(place.owner(2))
            write(new, 0, [("a", "new", 3, False)])

    old = place.sink(SinkHooks(on_step=overtaken))
    old.open(place.owner(1))
    with pytest.raises(Fenced):
        write(old, 6, [("a", "old", 2, False)])
    assert place.contents() == {"a": ("new", 3)}
    old.close()
    new.close()


def test_without_the_ledger_the_earlier_owner_is_not_stopped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protection off."""
    old, new = place.sink(), place.sink()
    old.open(place.owner(1))
    new.open(place.owner(2))
    monkeypatch.setattr(IndexLedger, "check", lambda *_: None)
    write(old, 6, [("a", "old", 2, False)])
    assert place.contents() == {"a": ("old", 2)}
    assert SCHEMA.names[0] == "id"
    old.close()
    new.close()
