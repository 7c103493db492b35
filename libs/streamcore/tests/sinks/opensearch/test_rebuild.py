"""A rebuild while the app writes loses no document and restores no deleted one, wherever the rebuild dies."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamcore.errors import ConfigError, Permanent
from streamcore.sinks.opensearch.client import SearchClient
from streamcore.sinks.opensearch.rebuild import Rebuild, RebuildLimits, RebuildResult, RebuildStage, read_alias_state
from streamcore.sinks.sink import SinkHooks
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import Row, SearchIndex, oracle, write

pytestmark = [pytest.mark.opensearch]

_STEPS = ["created", "live", "followed", "copying", "copied", "verified", "swapped", "remembering", "retired"]
_LIMITS = RebuildLimits(follow_ms=20_000, verify_ms=30_000, poll_ms=50)


class _Crashed(Exception):
    """The rebuild ends here."""


class _App:
    """Writes cuts of random changes until it is stopped, and records them."""

    def __init__(self, search_index: SearchIndex, seed: int, documents: int) -> None:
        self._search_index = search_index
        self._random = random.Random(seed)
        self._names = [f"d{number}" for number in range(documents)]
        self.cuts: dict[int, list[Row]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            sink = self._search_index.sink()
            sink.open(self._search_index.owner())
            self._cut(sink, [(name, "first", 0, False) for name in self._names])
            while not self._stop.wait(0.02):
                names = self._random.sample(self._names, 8)
                self._cut(sink, [(n, "later", len(self.cuts), self._random.random() < 0.5) for n in names])
            sink.close()
        except BaseException as error:
            self.failure = error

    def _cut(self, sink: object, rows: list[Row]) -> None:
        batch = len(self.cuts)
        self.cuts[batch] = rows
        write(sink, batch, rows)  # type: ignore[arg-type]


def _wait_for_cuts(app: _App) -> None:
    while len(app.cuts) < 3 and app.failure is None:
        time.sleep(0.05)


def _rebuild(search_index: SearchIndex, limits: RebuildLimits = _LIMITS, crash: str | None = None) -> Rebuild:
    def reached(step: str) -> None:
        if step == crash:
            raise _Crashed

    client = SearchClient(search_index.settings().login)
    return Rebuild(client, search_index.alias, limits=limits, hooks=SinkHooks(on_step=reached))


@pytest.mark.slow
def test_a_rebuild_that_dies_at_any_step_ends_with_the_documents_of_the_app(
    search_index: SearchIndex,
) -> None:
    app = _App(search_index, seed=1, documents=300)
    with app.running():
        _wait_for_cuts(app)
        for step in _STEPS:
            with pytest.raises(_Crashed):
                _rebuild(search_index, crash=step).run()
        client = SearchClient(search_index.settings().login)
        assert read_alias_state(client, search_index.alias).stage is RebuildStage.IDLE
        first = f"{search_index.alias}-000001"
        assert read_alias_state(client, search_index.alias).old == (first,)
        assert _rebuild(search_index).drop() == (first,)
        client.close()
    assert search_index.contents() == oracle(app.cuts)
    assert search_index.contents(f"{search_index.alias}-000002") == oracle(app.cuts)
    assert "error" in search_index.ask("GET", f"/{search_index.alias}-000001")
    settings = search_index.ask("GET", f"/{search_index.alias}-000002/_settings?flat_settings=true")
    assert "'index.gc_deletes': '3600000ms'" in str(settings)


def test_a_rebuild_applies_a_new_template_and_keeps_the_documents_of_the_app(search_index: SearchIndex) -> None:
    app = _App(search_index, seed=2, documents=50)
    with app.running():
        _wait_for_cuts(app)
        newer = search_index.sink(template_version=2, properties={"name": {"type": "text"}})
        newer.open(search_index.owner())  # puts the template
        newer.close()
        rebuilt = _rebuild(search_index).run()
    mapping = search_index.ask("GET", f"/{search_index.alias}-000002/_mapping")
    assert "'name': {'type': 'text'}" in str(mapping)
    assert (rebuilt.before, rebuilt.now) == (f"{search_index.alias}-000001", f"{search_index.alias}-000002")
    assert search_index.contents() == oracle(app.cuts)


def test_without_the_wait_for_a_cut_to_both_indexes_a_document_is_missing(
    search_index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: a cut resolved its indexes before the new one was live, and is written after the copy."""
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False)])
    monkeypatch.setattr(Rebuild, "_follow", lambda *_: None)
    monkeypatch.setattr(Rebuild, "_verify", lambda *_: 0)
    rebuilds: list[RebuildResult] = []

    def reached(step: str) -> None:
        if step == "live" and not rebuilds:
            rebuilds.append(_rebuild(search_index).run())

    slow = search_index.sink(SinkHooks(on_step=reached))
    slow.open(search_index.owner())
    write(slow, 1, [("b", "y", 2, False)])
    assert search_index.contents() == {"a": ("x", 1)}
    monkeypatch.undo()
    sink.close()
    slow.close()


def test_with_the_wait_for_a_cut_to_both_indexes_no_document_is_missing(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False)])
    threads: list[threading.Thread] = []

    def reached(step: str) -> None:
        if step == "live" and not threads:
            threads.append(threading.Thread(target=lambda: _rebuild(search_index).run()))
            threads[0].start()
            while f"{search_index.alias}-000002" not in str(
                search_index.ask("GET", f"/_alias/{search_index.alias}-live")
            ):
                time.sleep(0.05)

    slow = search_index.sink(SinkHooks(on_step=reached))
    slow.open(search_index.owner())
    write(slow, 1, [("b", "y", 2, False)])
    slow.write(cut_id(2), {})  # a cut of an idle app is enough to continue
    threads[0].join()
    assert search_index.contents(f"{search_index.alias}-000002") == {"a": ("x", 1), "b": ("y", 2)}
    sink.close()
    slow.close()


def test_the_copy_does_not_restore_a_document_that_was_deleted_meanwhile(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False), ("b", "x", 1, False)])
    new = f"{search_index.alias}-000002"
    with pytest.raises(ConfigError):
        _rebuild(search_index, RebuildLimits(follow_ms=1)).run()
    sink.write(cut_id(1), {})
    # The copy has read "a" from the old index; now it is deleted; then the copy writes what it has read.
    late = search_index.ask("GET", f"/{search_index.alias}-000001/_doc/a")
    write(sink, 2, [("a", None, None, True)])
    params = f"version={late['_version']}&version_type=external"
    assert search_index.ask("PUT", f"/{new}/_doc/a?{params}", late["_source"])["status"] == 409
    assert _rebuild(search_index).run().documents == 1
    assert search_index.contents() == {"b": ("x", 1)}
    sink.close()


def test_a_rebuild_without_a_running_app_fails_with_a_reason_and_can_be_repeated(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False)])
    with pytest.raises(ConfigError, match=r"has not reached a cut.*is it running"):
        _rebuild(search_index, RebuildLimits(follow_ms=200, poll_ms=50)).run()
    client = SearchClient(search_index.settings().login)
    assert read_alias_state(client, search_index.alias).stage is RebuildStage.LIVE
    client.close()
    write(sink, 1, [("b", "x", 1, False)])
    assert _rebuild(search_index).run().documents == 2
    sink.close()


def test_a_rebuild_does_not_switch_to_an_unequal_copy(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False)])
    limits = RebuildLimits(follow_ms=5_000, verify_ms=300, poll_ms=50)
    with pytest.raises(_Crashed):
        _rebuild(search_index, limits, crash="live").run()
    for batch in range(1, 4):  # an empty cut is noted only if the server answers at once
        sink.write(cut_id(batch), {})
    new = f"{search_index.alias}-000002"
    search_index.ask("PUT", f"/{new}/_doc/intruder?refresh=true", {"id": "intruder"})
    with pytest.raises(Permanent, match=r"not equal .*counts \(1, 2\)"):
        _rebuild(search_index, limits).run()
    search_index.ask("DELETE", f"/{new}/_doc/intruder?refresh=true")
    search_index.ask("PUT", f"/{new}/_doc/a?refresh=true", {"id": "a", "name": "altered"})
    with pytest.raises(Permanent, match=r"1 sampled ones differ: \['a'\]"):
        _rebuild(search_index, limits).run()
    client = SearchClient(search_index.settings().login)
    assert read_alias_state(client, search_index.alias).searched == f"{search_index.alias}-000001"
    client.close()
    sink.close()
