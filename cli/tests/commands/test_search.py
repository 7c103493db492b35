"""``headgate search``: the index behind an alias, its rebuild, and errors that say what to do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate.main import run
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import SearchIndex, index_on, write

pytestmark = pytest.mark.opensearch


@pytest.fixture
def search_index(opensearch: EmbeddedOpenSearch) -> Iterator[SearchIndex]:
    one = index_on(opensearch)
    yield one
    one.ask("DELETE", f"/{one.alias}-0*")


@contextmanager
def _app(search_index: SearchIndex) -> Iterator[None]:
    """Run an idle app within the context: from time to time it commits a cut without rows."""
    stop = threading.Event()
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False), ("b", "y", 2, False)])
    search_index.ask("POST", f"/{search_index.alias}/_refresh")

    def idle() -> None:
        batch = 1
        while not stop.wait(0.1):
            sink.write(cut_id(batch), {})
            batch += 1

    thread = threading.Thread(target=idle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sink.close()


def test_the_command_rebuilds_an_index_shows_it_and_drops_the_old_one(
    search_index: SearchIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--url", search_index.url, "--alias", search_index.alias]
    with _app(search_index):
        assert run(["search", "rebuild", *target, "-o", "json"]) == 0
        done = json.loads(capsys.readouterr().out)
        old, new = f"{search_index.alias}-000001", f"{search_index.alias}-000002"
        assert done == {"alias": search_index.alias, "before": old, "now": new, "documents": 2}
        assert run(["search", "status", *target]) == 0
        text = capsys.readouterr().out
        assert f"{search_index.alias}: no rebuild is running" in text
        assert "headgate search drop" in text
        assert run(["search", "status", "--url", search_index.url, "-o", "json"]) == 0
        (found,) = [one for one in json.loads(capsys.readouterr().out) if one["alias"] == search_index.alias]
        assert [(one["index"], one["searched"], one["live"]) for one in found["indexes"]] == [
            (old, False, False),
            (new, True, True),
        ]
        assert run(["search", "drop", *target]) == 0
        assert capsys.readouterr().out.strip() == old
    assert search_index.contents() == {"a": ("x", 1), "b": ("y", 2)}


def test_an_error_is_one_line_that_says_what_to_do(
    search_index: SearchIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--url", search_index.url, "--alias", search_index.alias]
    assert run(["search", "rebuild", *target]) == 1
    assert "no alias that a sink of ours writes to; start the app first" in capsys.readouterr().err
    sink = search_index.sink()
    sink.open(search_index.owner())
    sink.close()
    assert run(["search", "rebuild", *target, "--wait", "0.2"]) == 1
    assert "is it running" in capsys.readouterr().err
    assert run(["search", "status", *target]) == 0
    assert "a rebuild is running, or ended" in capsys.readouterr().out
