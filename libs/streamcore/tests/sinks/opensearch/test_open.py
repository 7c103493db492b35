"""What ``open`` creates, and what it rejects with a remedy in the message."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.opensearch.settings import IndexSpec, OpenSearchSettings
from streamcore.sinks.opensearch.sink import OpenSearchSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from tests.harness.servers.search_index import SCHEMA, SearchIndex, write

pytestmark = pytest.mark.opensearch


def _open_error(search_index: SearchIndex, **changes: object) -> str:
    sink = search_index.sink(**changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        sink.open(search_index.owner())
    sink.close()
    return str(caught.value)


def test_the_first_start_creates_template_index_and_aliases_and_the_second_changes_nothing(
    search_index: SearchIndex,
) -> None:
    first = f"{search_index.alias}-000001"
    for _ in range(2):
        sink = search_index.sink()
        sink.open(search_index.owner())
        sink.close()
        aliases = search_index.ask("GET", f"/{first}/_alias")[first]
        assert aliases == {"aliases": {search_index.alias: {}, f"{search_index.alias}-live": {}}}
    mapping = str(search_index.ask("GET", f"/{first}/_mapping"))
    assert "'dynamic': 'strict'" in mapping
    assert "'versions': 'epoch<<40|batch'" in mapping
    assert "'deleted'" not in mapping


def test_an_index_that_forgets_deletions_too_soon_is_rejected_with_the_request_that_fixes_it(
    search_index: SearchIndex,
) -> None:
    search_index.sink().open(search_index.owner())
    index = f"{search_index.alias}-000001"
    search_index.ask("PUT", f"/{index}/_settings", {"index.gc_deletes": "60s"})
    message = _open_error(search_index)
    match = re.search(r"PUT (/\S+/_settings) (\{.*\})", message)
    assert match is not None, message
    import orjson

    assert search_index.ask("PUT", match[1], orjson.loads(match[2])) == {"acknowledged": True}
    sink = search_index.sink()
    sink.open(search_index.owner())
    sink.close()


def test_an_index_that_acknowledges_before_it_syncs_to_disk_is_rejected(search_index: SearchIndex) -> None:
    assert "translog.durability" in _open_error(search_index, settings={"translog.durability": "async"})


def test_an_alias_that_is_an_index_is_rejected(search_index: SearchIndex) -> None:
    search_index.ask("PUT", f"/{search_index.alias}")
    assert "is an index, not an alias" in _open_error(search_index)
    search_index.ask("DELETE", f"/{search_index.alias}")


def test_an_index_with_versions_of_another_writer_is_rejected(search_index: SearchIndex) -> None:
    """The versions of its documents may be higher than those of the sink: many writers use milliseconds."""
    foreign = f"{search_index.alias}-before"
    search_index.ask("PUT", f"/{foreign}", {"aliases": {search_index.alias: {}}})
    search_index.ask(
        "PUT", f"/{foreign}/_doc/a?version=1764000000000&version_type=external&refresh=true", {"name": "x"}
    )
    message = _open_error(search_index)
    assert "the versions of its documents are not ours" in message
    # The remedy that the message names.
    search_index.ask("POST", "/_aliases", {"actions": [{"remove": {"index": foreign, "alias": search_index.alias}}]})
    sink = search_index.sink()
    sink.open(search_index.owner())
    dest = {"index": f"{search_index.alias}-000001", "op_type": "create"}
    copied = search_index.ask(
        "POST", "/_reindex?refresh=true", {"conflicts": "proceed", "source": {"index": foreign}, "dest": dest}
    )
    assert copied["created"] == 1
    write(sink, 0, [("a", "ours", 1, False)])
    assert search_index.contents() == {"a": ("ours", 1)}
    sink.close()
    search_index.ask("DELETE", f"/{foreign}")


def test_an_index_of_another_app_is_rejected(search_index: SearchIndex) -> None:
    search_index.sink().open(search_index.owner())
    other = replace(search_index, app=f"{search_index.app}-other")
    assert f"belongs to lane products of app {search_index.app}" in _open_error(other)


def test_a_column_that_the_mapping_cannot_hold_is_rejected_and_a_new_one_is_added(search_index: SearchIndex) -> None:
    search_index.sink().open(search_index.owner())
    wider = pa.schema([*SCHEMA, ("colour", pa.large_string())])
    settings = search_index.settings(template_version=2)
    sink = OpenSearchSink(settings, {"products": wider}, SinkHooks())
    sink.open(search_index.owner())
    assert "'colour': {'type': 'keyword'}" in str(search_index.ask("GET", f"/{search_index.alias}-000001/_mapping"))
    sink.close()
    other = pa.schema([("id", pa.large_string()), ("name", pa.bool_()), ("stock", pa.bool_()), ("deleted", pa.bool_())])
    rejected = OpenSearchSink(search_index.settings(template_version=3), {"products": other}, SinkHooks())
    with pytest.raises(ConfigError, match=r"has stock as long, which rejects every bool; .*headgate search rebuild"):
        rejected.open(search_index.owner())


def test_a_template_that_changed_without_a_new_version_is_rejected_and_a_newer_one_is_kept(
    search_index: SearchIndex,
) -> None:
    search_index.sink(template_version=3).open(search_index.owner())
    assert "raise the lane's template_version to 4" in _open_error(search_index, template_version=3, refresh_ms=5_000)
    older = search_index.sink(template_version=2)
    older.open(search_index.owner())
    older.close()
    assert "'version': 3" in str(search_index.ask("GET", f"/_index_template/headgate-{search_index.app}-products"))


def test_an_unavailable_server_is_a_retryable_error_when_the_patience_ends(search_index: SearchIndex) -> None:
    sink = search_index.sink(hosts=("http://127.0.0.1:9",), patience=RetryPolicy(300, 50, 100))
    with pytest.raises(Retryable, match="given up after 300 ms"):
        sink.open(search_index.owner())


def test_a_sink_that_lost_the_app_does_not_retry(search_index: SearchIndex) -> None:
    def raise_fenced() -> None:
        raise Fenced("another process owns the app")

    sink = search_index.sink(SinkHooks(still_owner=raise_fenced), hosts=("http://127.0.0.1:9",))
    with pytest.raises(Fenced):
        sink.open(search_index.owner())


def test_invalid_settings_are_rejected_without_showing_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = {"products": IndexSpec("products", ("id",))}
    host = ("https://search:9200",)
    for wrong in (
        {"hosts": ("search:9200",)},
        {"hosts": ("http://me:secret@search:9200",)},
        {"hosts": ("http://search:9200",), "ca_file": tmp_path / "ca.pem"},
        {"hosts": host, "user": "me"},
        {"hosts": host, "password_env": "X"},
        {"hosts": host, "cert_file": tmp_path / "cert.pem"},
        {"hosts": host, "indexes": index | {"again": IndexSpec("products", ("id",))}},
        {"hosts": host, "indexes": {}},
    ):
        with pytest.raises(ConfigError) as caught:
            OpenSearchSettings(**({"indexes": index} | wrong))
        assert "secret" not in str(caught.value)
    monkeypatch.setenv("SEARCH_PASSWORD", "geheim")
    settings = OpenSearchSettings(host, index, user="me", password_env="SEARCH_PASSWORD")
    assert settings.login.password() == "geheim"
    assert "geheim" not in repr(settings) + repr(settings.login)
    with pytest.raises(ConfigError, match="no column 'id'"):
        OpenSearchSink(settings, {"products": pa.schema([("name", pa.large_string())])}, SinkHooks())


def test_the_settings_build_the_sink() -> None:
    settings = OpenSearchSettings(("http://127.0.0.1:9200",), {"products": IndexSpec("p", ("id",), "deleted")})
    assert settings.indexes["products"].gc_deletes_ms == 3_600_000
    sink = sink_factory(settings, {"products": SCHEMA})(SinkHooks())
    assert sink.lanes == {"products"}
