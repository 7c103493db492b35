"""A rebuild while the app writes: nothing is missing, nothing deleted comes back, wherever the rebuild dies."""

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
from tests.harness.servers.search_index import Place, Row, oracle, write

pytestmark = [pytest.mark.opensearch]

_STEPS = ["created", "live", "followed", "copying", "copied", "verified", "swapped", "remembering", "retired"]
_LIMITS = RebuildLimits(follow_ms=20_000, verify_ms=30_000, poll_ms=50)


class _Crashed(Exception):
    """The rebuild ends here."""


class _App:
    """Writes cuts of random changes until it is told to stop, and remembers them."""

    def __init__(self, place: Place, seed: int, documents: int) -> None:
        self._place = place
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
            sink = self._place.sink()
            sink.open(self._place.owner())
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


def _rebuild(place: Place, limits: RebuildLimits = _LIMITS, crash: str | None = None) -> Rebuild:
    def reached(step: str) -> None:
        if step == crash:
            raise _Crashed

    client = SearchClient(place.settings().login)
    return Rebuild(client, place.alias, limits=limits, hooks=SinkHooks(on_step=reached))


@pytest.mark.slow
def test_a_rebuild_that_dies_at_each_step_in_turn_ends_with_the_apps_documents_deletes_included(place: Place) -> None:
    app = _App(place, seed=1, documents=300)
    with app.running():
        _wait_for_cuts(app)
        for step in _STEPS:
            with pytest.raises(_Crashed):
                _rebuild(place, crash=step).run()
        client = SearchClient(place.settings().login)
        assert read_alias_state(client, place.alias).stage is RebuildStage.IDLE
        first = f"{place.alias}-000001"
        assert read_alias_state(client, place.alias).old == (first,)
        assert _rebuild(place).drop() == (first,)
        client.close()
    assert place.contents() == oracle(app.cuts)
    assert place.contents(f"{place.alias}-000002") == oracle(app.cuts)
    assert "error" in place.ask("GET", f"/{place.alias}-000001")
    settings = place.ask("GET", f"/{place.alias}-000002/_settings?flat_settings=true")
    assert "'index.gc_deletes': '3600000ms'" in str(settings)


def test_a_new_template_is_in_force_after_a_rebuild_and_holds_what_the_app_wrote(place: Place) -> None:
    app = _App(place, seed=2, documents=50)
    with app.running():
        _wait_for_cuts(app)
        newer = place.sink(template_version=2, properties={"name": {"type": "text"}})
        newer.open(place.owner())  # puts the template
        newer.close()
        rebuilt = _rebuild(place).run()
    mapping = place.ask("GET", f"/{place.alias}-000002/_mapping")
    assert "'name': {'type': 'text'}" in str(mapping)
    assert (rebuilt.before, rebuilt.now) == (f"{place.alias}-000001", f"{place.alias}-000002")
    assert place.contents() == oracle(app.cuts)


def test_without_the_wait_for_a_cut_to_both_a_document_is_missing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: a cut resolved its indexes before the new one was live, and is written after the copy."""
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "x", 1, False)])
    monkeypatch.setattr(Rebuild, "_follow", lambda *_: None)
    monkeypatch.setattr(Rebuild, "_verify", lambda *_: 0)
    rebuilds: list[RebuildResult] = []

    def reached(step: str) -> None:
        if step == "live" and not rebuilds:
            rebuilds.append(_rebuild(place).run())

    slow = place.sink(SinkHooks(on_step=reached))
    slow.open(place.owner())
    write(slow, 1, [("b", "y", 2, False)])
    assert place.contents() == {"a": ("x", 1)}
    monkeypatch.undo()
    sink.close()
    slow.close()


def test_with_the_wait_that_document_is_there(place: Place) -> None:
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "x", 1, False)])
    threads: list[threading.Thread] = []

    def reached(step: str) -> None:
        if step == "live" and not threads:
            threads.append(threading.Thread(target=lambda: _rebuild(place).run()))
            threads[0].start()
            while f"{place.alias}-000002" not in str(place.ask("GET", f"/_alias/{place.alias}-live")):
                time.sleep(0.05)

    slow = place.sink(SinkHooks(on_step=reached))
    slow.open(place.owner())
    write(slow, 1, [("b", "y", 2, False)])
    slow.write(2, {})  # an idle app's cut is enough to go on
    threads[0].join()
    assert place.contents(f"{place.alias}-000002") == {"a": ("x", 1), "b": ("y", 2)}
    sink.close()
    slow.close()


def test_a_document_deleted_during_the_copy_does_not_come_back(place: Place) -> None:
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "x", 1, False), ("b", "x", 1, False)])
    new = f"{place.alias}-000002"
    with pytest.raises(ConfigError):
        _rebuild(place, RebuildLimits(follow_ms=1)).run()
    sink.write(1, {})
    # The copy has read "a" from the old index; now it is deleted; then the copy writes what it has read.
    late = place.ask("GET", f"/{place.alias}-000001/_doc/a")
    write(sink, 2, [("a", None, None, True)])
    params = f"version={late['_version']}&version_type=external"
    assert place.ask("PUT", f"/{new}/_doc/a?{params}", late["_source"])["status"] == 409
    assert _rebuild(place).run().documents == 1
    assert place.contents() == {"b": ("x", 1)}
    sink.close()


def test_without_a_running_app_a_rebuild_says_so_and_can_be_done_again(place: Place) -> None:
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "x", 1, False)])
    with pytest.raises(ConfigError, match=r"has not reached a cut.*is it running"):
        _rebuild(place, RebuildLimits(follow_ms=200, poll_ms=50)).run()
    client = SearchClient(place.settings().login)
    assert read_alias_state(client, place.alias).stage is RebuildStage.LIVE
    client.close()
    write(sink, 1, [("b", "x", 1, False)])
    assert _rebuild(place).run().documents == 2
    sink.close()


def test_a_copy_that_is_not_equal_is_not_searched(place: Place) -> None:
    sink = place.sink()
    sink.open(place.owner())
    write(sink, 0, [("a", "x", 1, False)])
    limits = RebuildLimits(follow_ms=5_000, verify_ms=300, poll_ms=50)
    with pytest.raises(_Crashed):
        _rebuild(place, limits, crash="live").run()
    sink.write(1, {})
    new = f"{place.alias}-000002"
    place.ask("PUT", f"/{new}/_doc/intruder?refresh=true", {"id": "intruder"})
    with pytest.raises(Permanent, match=r"not equal .*counts \(1, 2\)"):
        _rebuild(place, limits).run()
    place.ask("DELETE", f"/{new}/_doc/intruder?refresh=true")
    place.ask("PUT", f"/{new}/_doc/a?refresh=true", {"id": "a", "name": "altered"})
    with pytest.raises(Permanent, match=r"1 sampled ones differ: \['a'\]"):
        _rebuild(place, limits).run()
    client = SearchClient(place.settings().login)
    assert read_alias_state(client, place.alias).searched == f"{place.alias}-000001"
    client.close()
    sink.close()
