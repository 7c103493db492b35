"""The OpenSearch sink beside a bare bulk loader, on the same server: documents a second, one after the other.

``python -m bench.sinks.opensearch [--rows N] [--rounds N] [--cut N] [--url URL]``

The bare loader is opensearch-py's ``helpers.bulk`` and ``helpers.parallel_bulk`` over plain dictionaries that were made
before the clock started: no versions, no ledger. Each run fills a new index with the same mapping, and its documents
are counted. A round has one run of each, in turn; the ratio is of pairs in the same round, and what is said is the
median.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from opensearchpy import OpenSearch, helpers
from pydantic import JsonValue

from headgate.local.servers.base import Lifetime
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec, OpenSearchSettings
from streamcore.sinks.opensearch.sink import OpenSearchSink
from streamcore.sinks.sink import SinkHooks
from streamcore.writer_id import WriterId
from tests.harness.cut_ids import cut_id

_WORDS = ["white", "hanging", "heart", "light", "holder", "metal", "lantern", "cream", "cupid", "hearts", "coat", "red"]
_NUMBERS = itertools.count(1)
_SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("title", pa.large_string()),
        ("description", pa.large_string()),
        ("category", pa.large_string()),
        ("price", pa.decimal128(12, 2)),
        ("stock", pa.int64()),
        ("sales", pa.int64()),
        ("rating", pa.float64()),
        ("active", pa.bool_()),
        ("changed", pa.timestamp("ms", "UTC")),
    ]
)


def products(count: int) -> pa.Table:
    """Return documents of about 350 bytes each."""
    import decimal

    rng = random.Random(7)
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [
        {
            "id": f"product-{number:08}",
            "title": " ".join(rng.choices(_WORDS, k=5)),
            "description": " ".join(rng.choices(_WORDS, k=20)),
            "category": rng.choice(_WORDS),
            "price": decimal.Decimal(rng.randrange(100, 100_000)).scaleb(-2),
            "stock": rng.randrange(1_000),
            "sales": rng.randrange(100_000),
            "rating": round(rng.random() * 5, 3),
            "active": rng.random() < 0.9,
            "changed": begin + dt.timedelta(milliseconds=rng.randrange(86_400_000)),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def plain(table: pa.Table) -> list[dict[str, object]]:
    """Convert to the values that a loader would have read from a JSON file."""
    return [row | {"price": str(row["price"]), "changed": row["changed"].isoformat()} for row in table.to_pylist()]


def _spec(alias: str) -> IndexSpec:
    text: JsonValue = {"type": "text"}
    properties = {"title": text, "description": text}
    return IndexSpec(alias, ("id",), properties=properties, settings={"number_of_replicas": 0})


def _opened(url: str, limits: BulkLimits) -> tuple[OpenSearchSink, str]:
    number = next(_NUMBERS)
    alias = f"bench{number}"
    settings = OpenSearchSettings((url,), {"products": _spec(alias)}, limits=limits)
    sink = OpenSearchSink(settings, {"products": _SCHEMA}, SinkHooks())
    sink.open(WriterId(f"bench-{time.time_ns()}", 1))
    return sink, f"{alias}-000001"


def _clocked(url: str, index: str, count: int, run: Callable[[], object]) -> tuple[float, float]:
    """Return documents per second, and CPU microseconds of this process per document."""
    started, cpu = time.perf_counter(), time.process_time()
    run()
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    client = OpenSearch([url], timeout=60)
    client.indices.refresh(index=index)
    found = client.count(index=index)["count"]
    assert found == count, f"{index} has {found} documents, not {count}"
    client.indices.delete(index=index)
    client.close()
    return count / seconds, used / count * 1e6


def ours(url: str, table: pa.Table, cut: int, limits: BulkLimits) -> tuple[float, float]:
    """Run the sink, cut by cut."""
    sink, index = _opened(url, limits)
    cuts = [table.slice(begin, cut) for begin in range(0, table.num_rows, cut)]

    def run() -> None:
        for batch, rows in enumerate(cuts):
            sink.write(cut_id(batch), {"products": rows})

    found = _clocked(url, index, table.num_rows, run)
    sink.close()
    return found


def bare(url: str, rows: list[dict[str, object]], *, threads: int, chunk: int) -> tuple[float, float]:
    """Run the loader: one request after the other, or several at a time."""
    sink, index = _opened(url, BulkLimits())
    sink.close()
    client = OpenSearch([url], timeout=60, pool_maxsize=max(1, threads))

    def actions() -> Iterator[dict[str, object]]:
        for row in rows:
            yield {"_index": index, "_id": row["id"], "_source": row}

    def run() -> None:
        if not threads:
            helpers.bulk(client, actions(), chunk_size=chunk)
            return
        for done, _ in helpers.parallel_bulk(client, actions(), thread_count=threads, chunk_size=chunk):
            assert done

    found = _clocked(url, index, len(rows), run)
    client.close()
    return found


def main() -> None:
    """Print one JSON object a side, the last one with the ratio."""
    parser = argparse.ArgumentParser(description="The OpenSearch sink beside a bare bulk loader.")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cut", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--documents", type=int, default=BulkLimits().documents, help="of a request, at most")
    parser.add_argument("--url", default=None, help="a server that runs already (default: one of our own)")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="headgate-bench-") as folder:
        node = EmbeddedOpenSearch(OpenSearchNodeSettings(Path(folder), heap_mb=1024, lifetime=Lifetime.WITH_PARENT))
        url = arguments.url or node.start()
        try:
            _measure(url, arguments)
        finally:
            if arguments.url is None:
                node.kill()


def _measure(url: str, arguments: argparse.Namespace) -> None:
    table = products(arguments.rows)
    rows = plain(table)
    limits = BulkLimits(documents=arguments.documents, in_flight=arguments.in_flight)
    sides: dict[str, Callable[[], tuple[float, float]]] = {
        "headgate": lambda: ours(url, table, arguments.cut, limits),
        "helpers.bulk, 500 a request": lambda: bare(url, rows, threads=0, chunk=500),
        "helpers.bulk, 5000 a request": lambda: bare(url, rows, threads=0, chunk=5_000),
        "helpers.parallel_bulk, 2 threads, 500": lambda: bare(url, rows, threads=2, chunk=500),
    }
    for side in sides.values():
        side()  # the server's compiler
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            found[name].append(sides[name]())
    for name, runs in found.items():
        ratios = [own[0] / other[0] for own, other in zip(found["headgate"], runs, strict=True)]
        said = {
            "workload": "opensearch-sink",
            "side": name,
            "documents_per_second": round(statistics.median(rate for rate, _ in runs)),
            "runs": [round(rate) for rate, _ in runs],
            "client_cpu_us_per_document": round(statistics.median(cpu for _, cpu in runs), 1),
        }
        if name != "headgate":
            said["headgate_ratio"] = round(statistics.median(ratios), 2)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
