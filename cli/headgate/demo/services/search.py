"""The search service: events and product changes go in, and the documents in an OpenSearch are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final  # entries of a document are made of anything

from pydantic import JsonValue

from headgate.console.messages import Print
from headgate.demo.service import LiveView, Server, ServiceContext, ServiceRun, Verifier
from headgate.demo.services.opensearch_server import ExternalServer, IndexWriter, LocalNode, OpenSearchServer
from headgate.demo.shop.feed import Feed, search_feed
from headgate.demo.shop.search_documents import PRODUCT_CHANGES, PRODUCT_COUNTS
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.workspace import AppNames
from headgate.errors import InputError
from headgate.local.servers.opensearch_http import OpenSearchHttp
from headgate_search.settings import DOCUMENTS, ChangesDocument, CounterDocument, SearchSettings
from headgate_search.topics import CHANGES
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.sinks.opensearch.settings import ClientSettings, IndexSpec, OpenSearchSettings
from streamcore.wire.lanes import DEAD_LETTERS, LATE

if TYPE_CHECKING:
    from headgate.console.timeline import Timeline
    from headgate.demo.app_process import AppMetrics
    from headgate.demo.verify.documents import DocumentCounts, DocumentsVerifyResult
    from headgate.local.java import Java
    from streamcore.service.config.settings import ServiceSettings

_PRODUCTS: Final = "products"
_NAMES: Final = AppNames("search", inputs=(_PRODUCTS,), lanes=(CHANGES, DEAD_LETTERS, LATE))
_SINK: Final = "opensearch"
_READ_MS: Final = 600_000
#: The interval at which the app updates a document whose popularity alone has changed: short, for users to see it.
_REFRESH_MS: Final = 2_000
#: The mapping of the columns that are searched as text; the app derives that of the others from their types.
_TEXT_MAPPING: Final[dict[str, JsonValue]] = {
    "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "description": {"type": "text"},
}
_EXAMPLE_QUERY: Final = "_search?q=name:lantern&sort=views_1d:desc"


@dataclass
class SearchService:
    """``login``: the login of an external OpenSearch; None: a node in the data folder."""

    login: ClientSettings | None = None
    name: str = "search"
    module: str = "headgate_search"
    app_names: AppNames = _NAMES
    _server: OpenSearchServer | None = field(default=None, init=False)

    @property
    def opensearch(self) -> OpenSearchServer:
        """The OpenSearch of the documents, after ``server``."""
        assert self._server is not None, "call server() first"
        return self._server

    def preload(self) -> None:
        """Do nothing: the verifier is imported at the end."""

    def server(self, folder: Path, java: Java) -> Server:
        """Return the OpenSearch."""
        if self.login is None:
            self._server = LocalNode(folder / "opensearch", java)
        else:
            self._server = ExternalServer(self.login)
        return self._server

    def settings(self, context: ServiceContext) -> SearchSettings:
        """Return the app's settings."""
        from headgate.demo.stack import PARALLELISM, RETENTION_MS, SHARDS

        names, products = context.workspace.names, context.streams / "products.yaml"
        return SearchSettings(
            app=names.app,
            kafka=KafkaSettings(context.kafka.bootstrap),
            documents=(ChangesDocument(**_stream(products, names.input(_PRODUCTS)), **PRODUCT_CHANGES),),
            counters=(CounterDocument(**_stream(context.streams / "shop.yaml", names.events), **PRODUCT_COUNTS),),
            opensearch=self._sink_settings(names),
            refresh_ms=_REFRESH_MS,
            publish_changes=True,
            checkpoint=context.workspace.checkpoint,
            jars=context.jars,
            local_dir=context.workspace.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
        )

    def _sink_settings(self, names: AppNames) -> OpenSearchSettings:
        login, replicas = self.opensearch.login, self.opensearch.replicas
        index = IndexSpec(
            alias=alias_for(names),
            id=("id",),
            deleted="deleted",
            properties=_TEXT_MAPPING,
            settings={} if replicas is None else {"number_of_replicas": replicas},
        )
        return OpenSearchSettings(
            name=_SINK,
            hosts=login.hosts,
            indexes={DOCUMENTS: index},
            user=login.user,
            password_file=login.password_file,
            password_env=login.password_env,
            ca_file=login.ca_file,
        )

    def app_topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from headgate_search.service import SERVICE

        assert isinstance(settings, SearchSettings), "the settings of this service"
        return SERVICE.topics(settings)

    def delete_leftovers(self, context: ServiceContext, print_message: Print) -> None:
        """Delete the documents that the last app of this folder wrote; on a local node, all indexes.

        Raises ``InputError`` if the alias belongs to another workspace: documents with higher versions would win over
        ours.
        """
        self.opensearch.delete_leftovers(
            _writer_in_settings(context.workspace.settings_file, self.opensearch.login), print_message
        )
        http, alias = OpenSearchHttp(self.opensearch.login), alias_for(context.workspace.names)
        if indexes := [*http.find(f"/_alias/{alias}")]:
            raise InputError(
                f"opensearch {http.url}: alias {alias} belongs to another workspace than {context.workspace.folder}; "
                f"if it is no longer needed, delete its index: DELETE /{indexes[0]}"
            )

    def prepare(self, context: ServiceContext, print_message: Print) -> None:
        """Print how to look into the index; the app creates it."""
        print_message(
            f"documents are in {alias_for(context.workspace.names)}; "
            f"look with: {self._curl_command(context.workspace.names)}&pretty'"
        )

    def _curl_command(self, names: AppNames) -> str:
        login = self.opensearch.login
        user = "" if login.user is None else f"-u {login.user} "
        return f"curl -s {user}'{login.hosts[0].rstrip('/')}/{alias_for(names)}/{_EXAMPLE_QUERY}"

    def event_feed(self, names: AppNames, shop: ShopSettings) -> Feed:
        """Return the feed of events and product changes."""
        return search_feed(names.events, names.input(_PRODUCTS), shop)

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return the milestones: cut, events, document."""
        return {
            "first cut": bool(metrics.cuts),
            "first events": bool(metrics.events),
            "first document": bool(_sink_rows(metrics)),
        }

    def live_view(self, run: ServiceRun, timeline: Timeline) -> LiveView:
        """Return a view of the lanes, the sink, and the latest documents."""
        from headgate.demo.views.service_watch import service_live_view

        url = f"{self.opensearch.login.hosts[0].rstrip('/')}/{alias_for(run.workspace.names)}/_search?q=lantern"
        return service_live_view(run, timeline, f"look: curl '{url.removeprefix('http://')}'")

    def verifier(self, run: ServiceRun) -> Verifier:
        """Return the verifier of the documents."""
        return _DocumentVerifier(self, run)


class _DocumentVerifier:
    """Verifies the search service: reads the topics before the run, and topics and index at its end."""

    def __init__(self, service: SearchService, run: ServiceRun) -> None:
        self._service = service
        self._run = run
        self._before = self._count_records()

    def on_events_processed(self) -> None:
        """Wait until the app has sent all documents: it delays updates of popularity by up to ``_REFRESH_MS``."""
        from headgate.demo.verify.documents import await_idle_sink

        app = self._run.app
        idle_s = 2 * _REFRESH_MS / 1_000
        await_idle_sink(lambda: _sink_rows(app.metrics), lambda: app.metrics.cuts, idle_s, self._run.raise_if_ended)

    def compare(self) -> DocumentsVerifyResult:
        """Read the index, count the records of the topics, and compare."""
        from headgate.demo.verify.documents import IndexContents, comparable_fields, compare

        http = OpenSearchHttp(self._service.opensearch.login)
        documents = comparable_fields(http.documents(alias_for(self._run.workspace.names)))
        return compare(self._before, IndexContents(self._count_records(), documents), self._run.workspace.shop)

    def _count_records(self) -> DocumentCounts:
        from headgate.demo.verify.documents import DocumentCounts
        from streamcore.kafka.readers import end_offsets, read_topic

        kafka, names = self._run.kafka, self._run.workspace.names
        events, changes = (sum(end_offsets(kafka, [topic]).values()) for topic in names.read)
        dead, late = (len(read_topic(kafka, names.lane(lane), limit_ms=_READ_MS)) for lane in (DEAD_LETTERS, LATE))
        return DocumentCounts(events, changes, dead, late)


def alias_for(names: AppNames) -> str:
    """Return the alias that readers search."""
    return f"{names.app}-products"


def _writer_in_settings(settings_file: Path, login: ClientSettings) -> IndexWriter | None:
    """Return the app, alias and sink of earlier settings for this server; None if they are missing or name another
    server."""
    try:
        settings = json.loads(settings_file.read_text(encoding="utf-8"))
        is_this_server = tuple(settings["opensearch"]["hosts"]) == login.hosts
        return (
            IndexWriter(settings["app"], settings["opensearch"]["indexes"][DOCUMENTS]["alias"], _SINK)
            if is_this_server
            else None
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stream(schema: Path, topic: str) -> dict[str, Any]:
    return {"schema_file": schema.absolute(), "topic": topic, "reject_extra_fields": True}


def _sink_rows(metrics: AppMetrics) -> int:
    sink = metrics.sinks.get(_SINK)
    return 0 if sink is None else sink.rows
