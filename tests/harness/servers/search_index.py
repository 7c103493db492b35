"""The OpenSearch sink in tests: rows, an app and an alias for each test, and the documents of an index."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
import urllib3

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec, OpenSearchSettings
from streamcore.sinks.opensearch.sink import OpenSearchSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from tests.harness.cut_ids import cut_id
from tests.harness.run.shared_servers import worker_id

SCHEMA = pa.schema(
    [("id", pa.large_string()), ("name", pa.large_string()), ("stock", pa.int64()), ("deleted", pa.bool_())]
)
#: A row: id, name, stock, deleted.
Row = tuple[str | None, str | None, int | None, bool | None]

_NUMBERS = itertools.count(1)


def table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as the table of the lane."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


@dataclass(frozen=True)
class SearchIndex:
    """A server with an app and an alias, accessed over plain HTTP."""

    url: str
    app: str
    alias: str
    http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Send a request; return the JSON of the response, whatever its status."""
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json"}
        answer = self.http.request(method, self.url + path, body=content, headers=headers, timeout=30.0)
        found = orjson.loads(answer.data)
        assert isinstance(found, dict)
        return found

    def settings(self, **changes: object) -> OpenSearchSettings:
        """Return settings with short time-outs; ``changes`` are those of the settings or of the index."""
        spec = IndexSpec(self.alias, ("id",), "deleted", settings={"number_of_replicas": 0})
        names = {name for name in IndexSpec.__dataclass_fields__ if name not in ("alias",)}
        spec = replace(spec, **{name: value for name, value in changes.items() if name in names})  # type: ignore[arg-type]
        rest = {name: value for name, value in changes.items() if name not in names}
        base = OpenSearchSettings((self.url,), {"products": spec}, request_timeout_ms=20_000)
        base = replace(base, patience=RetryPolicy(60_000, 50, 500), limits=BulkLimits(50, 1_000_000, 2))
        return replace(base, **rest)  # type: ignore[arg-type]

    def sink(self, hooks: SinkHooks | None = None, **changes: object) -> OpenSearchSink:
        """Return a sink that is not open yet."""
        return OpenSearchSink(self.settings(**changes), {"products": SCHEMA}, hooks or SinkHooks())

    def owner(self, epoch: int = 1) -> WriterId:
        """Return the writer id of the app."""
        return WriterId(self.app, epoch)

    def contents(self, index: str | None = None) -> dict[str, tuple[object, object]]:
        """Return name and stock of all documents by id."""
        self.ask("POST", f"/{index or self.alias}/_refresh")
        found = self.ask("POST", f"/{index or self.alias}/_search", {"size": 10_000})
        hits = found["hits"]
        assert isinstance(hits, dict)
        return {hit["_id"]: (hit["_source"].get("name"), hit["_source"].get("stock")) for hit in hits["hits"]}


def write(sink: OpenSearchSink, batch: int, rows: Sequence[Row]) -> object:
    """Write a cut."""
    return sink.write(cut_id(batch), {"products": table(rows)} if rows else {})


def oracle(cuts: Mapping[int, Sequence[Row]]) -> dict[str, tuple[object, object]]:
    """Return what is there after these cuts, in their order: a dictionary."""
    found: dict[str, tuple[object, object]] = {}
    for batch in sorted(cuts):
        for name, text, stock, deleted in cuts[batch]:
            assert name is not None
            found.pop(name, None)
            if not deleted:
                found[name] = (text, stock)
    return found


def index_on(node: EmbeddedOpenSearch) -> SearchIndex:
    """Return a new app and alias on this server."""
    return index_at(node.url)


def index_at(url: str) -> SearchIndex:
    """Return a new app and alias on the server at this address."""
    suffix = f"{worker_id()}{next(_NUMBERS)}"
    return SearchIndex(url, f"app{suffix}", f"products{suffix}")
