"""The OpenSearch client of `headgate up search`: it reads all documents, and deletes the index of a workspace."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.console.messages import silent
from headgate.demo.service import ServiceContext
from headgate.demo.services.opensearch_server import ExternalServer, IndexWriter
from headgate.demo.services.search import SearchService
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.workspace import AppNames, Workspace
from headgate.errors import InputError, OpenSearchError
from headgate.local.java import Java
from headgate.local.servers import opensearch_http
from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate.local.servers.opensearch_http import OpenSearchHttp
from streamcore.kafka.settings import KafkaSettings
from streamcore.sinks.opensearch.settings import ClientSettings
from tests.harness.servers.search_index import SearchIndex, index_on, write

ROWS = [(f"id{number}", "mug", number, False) for number in range(25)]


def write_index(search_index: SearchIndex) -> OpenSearchHttp:
    """Write rows to the index as an app that has ended; return a client."""
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 1, ROWS)
    sink.close()
    return OpenSearchHttp(ClientSettings((search_index.url,)))


@pytest.mark.opensearch
def test_the_client_reads_all_documents_with_any_page_size(
    opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_index = index_on(opensearch)
    client = write_index(search_index)
    for page in (7, 25, 1_000):
        monkeypatch.setattr(opensearch_http, "_PAGE", page)
        found = dict(client.documents(search_index.alias))
        assert {name: source["stock"] for name, source in found.items()} == {r[0]: r[2] for r in ROWS}
    assert dict(client.documents("there-is-none")) == {}


@pytest.mark.opensearch
def test_on_an_external_server_only_the_index_of_the_workspace_is_deleted(opensearch: EmbeddedOpenSearch) -> None:
    mine, other = index_on(opensearch), index_on(opensearch)
    OpenSearchHttp(ClientSettings((mine.url,))).request("PUT", f"/{mine.alias}-0-not-ours", {})
    client = write_index(mine)
    write_index(other)
    server = ExternalServer(ClientSettings((mine.url,)))
    server.start(silent)
    server.delete_leftovers(None, silent)
    assert len(dict(client.documents(mine.alias))) == len(ROWS)
    server.delete_leftovers(IndexWriter(mine.app, mine.alias, "opensearch"), silent)
    assert not client.find(f"/{mine.alias}")
    assert not client.find(f"/_index_template/headgate-{mine.app}-products")
    assert not client.find(f"/headgate-ledger/_doc/{mine.app}.opensearch")
    assert client.find(f"/{mine.alias}-0-not-ours")
    assert len(dict(client.documents(other.alias))) == len(ROWS)
    write_index(mine)  # a new shop of this name, whose epochs begin anew
    for index in (f"{mine.alias}-0-not-ours", f"{mine.alias}-000001", f"{other.alias}-000001"):
        client.delete(f"/{index}")


def new_workspace(folder: Path, search_index: SearchIndex) -> ServiceContext:
    """Return a new workspace in a folder whose last app wrote to this alias, by its settings."""
    names = AppNames(search_index.alias.removesuffix("-products"))
    shop = Workspace(folder, names, ShopSettings(1, 1_700_000_000_000), "b")
    indexes = {"documents": {"alias": search_index.alias}}
    settings = {"app": search_index.app, "opensearch": {"hosts": [search_index.url], "indexes": indexes}}
    shop.settings_file.write_text(json.dumps(settings), encoding="utf-8")
    return ServiceContext(KafkaSettings("nowhere:9092"), shop, folder, folder)


@pytest.mark.opensearch
def test_a_new_workspace_deletes_the_old_index_of_its_folder_and_rejects_an_alias_of_another_app(
    opensearch: EmbeddedOpenSearch, tmp_path: Path, java: Java
) -> None:
    one = index_on(opensearch)
    search_index = replace(one, alias=f"{one.app}-products")
    client = write_index(search_index)
    service = SearchService(ClientSettings((search_index.url,)))
    service.server(tmp_path, java).start(silent)
    context = new_workspace(tmp_path, search_index)
    service.delete_leftovers(context, silent)
    assert not client.find(f"/_alias/{search_index.alias}")
    write_index(replace(search_index, app="somebody"))
    with pytest.raises(InputError, match=f"DELETE /{search_index.alias}-000001"):
        service.delete_leftovers(context, silent)
    assert len(dict(client.documents(search_index.alias))) == len(ROWS)
    client.delete(f"/{search_index.alias}-000001")


# --- logging in -----------------------------------------------------------------------------------------------------


@pytest.fixture
def locked_server() -> Iterator[tuple[str, list[str | None]]]:
    """A server that rejects every request, and the authorization headers that it got."""
    authorizations: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorizations.append(self.headers["authorization"])
            self.send_error(401)

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", authorizations
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_password_is_sent_to_the_server_and_printed_nowhere(
    locked_server: tuple[str, list[str | None]], tmp_path: Path
) -> None:
    url, authorizations = locked_server
    secret = tmp_path / "password"
    secret.write_text("hunter2\n", encoding="utf-8")
    client = OpenSearchHttp(ClientSettings((url,), "me", secret))
    with pytest.raises(OpenSearchError, match="401") as rejected:
        client.request("GET", "/")
    assert authorizations == ["Basic bWU6aHVudGVyMg=="]
    assert "hunter2" not in str(rejected.value)
    assert "hunter2" not in repr(client)


def test_the_error_names_an_unreachable_server() -> None:
    with pytest.raises(OpenSearchError, match=r"127\.0\.0\.1:1: .*does it run"):
        OpenSearchHttp(ClientSettings(("http://127.0.0.1:1",))).request("GET", "/")
