"""The search service: events and product changes go in, and the documents in an OpenSearch are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from headgate.errors import InputError
from headgate.local.opensearch_http import OpenSearchHttp
from headgate.local.opensearch_server import NamedServer, OpenSearchServer, OwnNode, Writer
from headgate.local.services.service import Check, Ground, Screen, Server
from headgate.local.shop.feed import Feed, search_feed
from headgate.local.shop.settings import ShopSettings
from headgate.local.workspace import Names
from headgate.talk import Say
from headgate_search.settings import DOCUMENTS, SearchSettings
from headgate_search.topics import CHANGES
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import DEAD_LETTERS, LATE
from streamcore.service.documents import KafkaDocument, StreamDocument
from streamcore.service.opensearch import IndexDocument, OpenSearchDocument
from streamcore.sinks.opensearch.settings import Login

if TYPE_CHECKING:
    from headgate.local.app_process import Figures
    from headgate.local.java import Java
    from headgate.local.stack import Stack
    from headgate.timeline import Timeline
    from headgate.verify_documents import DocumentsVerdict, Mark
    from streamcore.service.settings import ServiceSettings

_PRODUCTS: Final = "products"
_NAMES: Final = Names("search", inputs=(_PRODUCTS,), lanes=(CHANGES, DEAD_LETTERS, LATE))
_SINK: Final = "opensearch"
_READ_MS: Final = 600_000
#: How often popularity alone sends a document again: often enough to be looked at.
_REFRESH_MS: Final = 2_000
#: Text to search in; the other columns get what their types say.
_TEXTS: Final[dict[str, JsonValue]] = {
    "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "description": {"type": "text"},
}
_LOOK: Final = "_search?q=name:lantern&sort=views_1d:desc"


@dataclass
class SearchService:
    """``login``: of somebody else's OpenSearch; None: a node in the data folder."""

    login: Login | None = None
    name: str = "search"
    module: str = "headgate_search"
    names: Names = _NAMES
    _server: OpenSearchServer | None = field(default=None, init=False)

    @property
    def opensearch(self) -> OpenSearchServer:
        """Where the documents go; there is one after ``server``."""
        assert self._server is not None, "server() comes first"
        return self._server

    def load(self) -> None:
        """What compares is needed at the end only."""

    def server(self, folder: Path, java: Java) -> Server:
        """OpenSearch."""
        if self.login is None:
            self._server = OwnNode(folder / "opensearch", java)
        else:
            self._server = NamedServer(self.login)
        return self._server

    def settings(self, ground: Ground) -> SearchSettings:
        """Of the app."""
        from headgate.local.stack import PARALLELISM, RETENTION_MS, SHARDS

        names = ground.shop.names
        return SearchSettings(
            app=names.app,
            kafka=KafkaDocument(bootstrap=ground.kafka.bootstrap),
            products=_stream(ground.streams / "products.yaml", names.input(_PRODUCTS)),
            events=_stream(ground.streams / "shop.yaml", names.events),
            opensearch=self._documents(names),
            refresh_ms=_REFRESH_MS,
            publish_changes=True,
            checkpoint=ground.shop.checkpoint,
            jars=ground.jars,
            local_dir=ground.shop.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
        )

    def _documents(self, names: Names) -> OpenSearchDocument:
        login, replicas = self.opensearch.login, self.opensearch.replicas
        index = IndexDocument(
            alias=alias_of(names),
            id=("id",),
            deleted="deleted",
            properties=_TEXTS,
            settings={} if replicas is None else {"number_of_replicas": replicas},
        )
        return OpenSearchDocument(
            name=_SINK,
            hosts=login.hosts,
            indexes={DOCUMENTS: index},
            user=login.user,
            password_file=login.password_file,
            password_env=login.password_env,
            ca_file=login.ca_file,
        )

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """What the app writes, and its control topic."""
        from headgate_search.topics import topics

        assert isinstance(settings, SearchSettings), "its own settings"
        return topics(settings)

    def forget(self, ground: Ground, say: Say) -> None:
        """What the last app of this folder wrote, as its settings say; on a node of our own, everything.

        ``InputError`` when documents of somebody else are in our place: our versions would lose against theirs.
        """
        self.opensearch.forget(_told(ground.shop.settings_file, self.opensearch.login), say)
        http, alias = OpenSearchHttp(self.opensearch.login), alias_of(ground.shop.names)
        if indexes := [*http.find(f"/_alias/{alias}")]:
            raise InputError(
                f"opensearch {http.url}: {alias} is there already, and not of a shop in {ground.shop.folder}; "
                f"if nobody needs it, delete its index: DELETE /{indexes[0]}"
            )

    def prepare(self, ground: Ground, say: Say) -> None:
        """The app makes the index itself; say how to look into it."""
        say(f"documents are in {alias_of(ground.shop.names)}; look with: {self._look(ground.shop.names)}&pretty'")

    def _look(self, names: Names) -> str:
        login = self.opensearch.login
        user = "" if login.user is None else f"-u {login.user} "
        return f"curl -s {user}'{login.hosts[0].rstrip('/')}/{alias_of(names)}/{_LOOK}"

    def feed(self, names: Names, shop: ShopSettings) -> Feed:
        """Events, and what becomes of products."""
        return search_feed(names.events, names.input(_PRODUCTS), shop)

    def milestones(self, figures: Figures) -> Mapping[str, bool]:
        """Cut, events, document."""
        return {
            "first cut": bool(figures.cuts),
            "first events": bool(figures.events),
            "first document": bool(_rows(figures)),
        }

    def screen(self, stack: Stack, timeline: Timeline) -> Screen:
        """Lanes, the sink, and the latest documents."""
        from headgate.service_watch import ServiceWatch

        url = f"{self.opensearch.login.hosts[0].rstrip('/')}/{alias_of(stack.shop.names)}/_search?q=lantern"
        return ServiceWatch(stack, timeline, f"look: curl '{url.removeprefix('http://')}'")

    def check(self, stack: Stack) -> Check:
        """Documents as they must be in the end."""
        return _DocumentCheck(self, stack)


class _DocumentCheck:
    """What the topics held before, and what the index holds in the end."""

    def __init__(self, service: SearchService, stack: Stack) -> None:
        self._service = service
        self._stack = stack
        self._before = self._mark()

    def processed(self) -> None:
        """Wait until no document is held back for its pace any more."""
        from headgate.verify_documents import await_quiet

        app = self._stack.app
        quiet_s = 2 * _REFRESH_MS / 1_000
        await_quiet(lambda: _rows(app.figures), lambda: app.figures.cuts, quiet_s, self._stack.check)

    def verdict(self) -> DocumentsVerdict:
        """Read the index and the topics' lengths, and compare."""
        from headgate.verify_documents import Found, as_expected, compare

        http = OpenSearchHttp(self._service.opensearch.login)
        documents = as_expected(http.documents(alias_of(self._stack.shop.names)))
        return compare(self._before, Found(self._mark(), documents), self._stack.shop.shop)

    def _mark(self) -> Mark:
        from headgate.verify_documents import Mark
        from streamcore.kafka.readers import end_offsets, read_topic

        kafka, names = self._stack.kafka, self._stack.shop.names
        events, changes = (sum(end_offsets(kafka, [topic]).values()) for topic in names.read)
        dead, late = (len(read_topic(kafka, names.lane(lane), limit_ms=_READ_MS)) for lane in (DEAD_LETTERS, LATE))
        return Mark(events, changes, dead, late)


def alias_of(names: Names) -> str:
    """What readers search."""
    return f"{names.app}-products"


def _told(settings_file: Path, login: Login) -> Writer | None:
    """What an app was told to write to this server; None when it was not, or when nobody knows."""
    try:
        told = json.loads(settings_file.read_text(encoding="utf-8"))
        here = tuple(told["opensearch"]["hosts"]) == login.hosts
        return Writer(told["app"], told["opensearch"]["indexes"][DOCUMENTS]["alias"], _SINK) if here else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stream(schema: Path, topic: str) -> StreamDocument:
    return StreamDocument(schema_file=schema.absolute(), topic=topic, reject_extra_fields=True)


def _rows(figures: Figures) -> int:
    sink = figures.sinks.get(_SINK)
    return 0 if sink is None else sink.rows
