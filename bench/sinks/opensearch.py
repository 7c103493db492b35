"""Compares the OpenSearch sink with a bulk loader on the same server, in documents per second.

``python -m bench.sinks.opensearch [--rows N] [--rounds N] [--cut N] [--url URL]``

The loader is opensearch-py's ``helpers.bulk`` or ``helpers.parallel_bulk`` over dictionaries that are built before the
measurement. It writes no versions and no ledger. Each run fills a new index with the same mapping, and its documents
are counted. A round has one run of each side, one after the other. The figures are medians; ratios are of runs of the
same round.
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
from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec, OpenSearchSettings
from streamcore.sinks.opensearch.sink import OpenSearchSink
from streamcore.sinks.sink import SinkHooks
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


def make_products(count: int) -> pa.Table:
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


def to_plain_rows(table: pa.Table) -> list[dict[str, object]]:
    """Convert to dictionaries with the values that a loader reads from a JSON file."""
    return [row | {"price": str(row["price"]), "changed": row["changed"].isoformat()} for row in table.to_pylist()]


def _spec(alias: str) -> IndexSpec:
    text: JsonValue = {"type": "text"}
    properties = {"title": text, "description": text}
    return IndexSpec(alias, ("id",), properties=properties, settings={"number_of_replicas": 0})


def _open_sink(url: str, limits: BulkLimits) -> tuple[OpenSearchSink, str]:
    number = next(_NUMBERS)
    alias = f"bench{number}"
    settings = OpenSearchSettings((url,), {"products": _spec(alias)}, limits=limits)
    sink = OpenSearchSink(settings, {"products": _SCHEMA}, SinkHooks())
    sink.open(WriterId(f"bench-{time.time_ns()}", 1))
    return sink, f"{alias}-000001"


def _time_run(url: str, index: str, count: int, run: Callable[[], object]) -> tuple[float, float]:
    """Call ``run``, and return documents per second and the CPU microseconds of this process per document.

    Raise ``AssertionError`` unless the index then has ``count`` documents. Delete the index.
    """
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


def run_sink(url: str, table: pa.Table, cut: int, limits: BulkLimits) -> tuple[float, float]:
    """Write the rows with the sink, in cuts. Return documents per second and CPU microseconds per document."""
    sink, index = _open_sink(url, limits)
    cuts = [table.slice(begin, cut) for begin in range(0, table.num_rows, cut)]

    def run() -> None:
        for batch, rows in enumerate(cuts):
            sink.write(cut_id(batch), {"products": rows})

    found = _time_run(url, index, table.num_rows, run)
    sink.close()
    return found


def run_loader(url: str, rows: list[dict[str, object]], *, threads: int, chunk: int) -> tuple[float, float]:
    """Write the rows with the loader. Return documents per second and CPU microseconds per document.

    ``threads``: requests at the same time; with 0, one request after the other. ``chunk``: documents per request.
    """
    sink, index = _open_sink(url, BulkLimits())
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

    found = _time_run(url, index, len(rows), run)
    client.close()
    return found


def main() -> None:
    """Print one JSON object for each side."""
    parser = argparse.ArgumentParser(description="Compares the OpenSearch sink with a bulk loader.")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cut", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument(
        "--documents", type=int, default=BulkLimits().documents, help="highest number of documents in a request"
    )
    parser.add_argument("--url", default=None, help="a running server (default: start one)")
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
    table = make_products(arguments.rows)
    rows = to_plain_rows(table)
    limits = BulkLimits(documents=arguments.documents, in_flight=arguments.in_flight)
    sides: dict[str, Callable[[], tuple[float, float]]] = {
        "headgate": lambda: run_sink(url, table, arguments.cut, limits),
        "helpers.bulk, 500 a request": lambda: run_loader(url, rows, threads=0, chunk=500),
        "helpers.bulk, 5000 a request": lambda: run_loader(url, rows, threads=0, chunk=5_000),
        "helpers.parallel_bulk, 2 threads, 500": lambda: run_loader(url, rows, threads=2, chunk=500),
    }
    for side in sides.values():
        side()  # warms up the server's JVM
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            found[name].append(sides[name]())
    for name, runs in found.items():
        ratios = [own[0] / other[0] for own, other in zip(found["headgate"], runs, strict=True)]
        result = {
            "workload": "opensearch-sink",
            "side": name,
            "documents_per_second": round(statistics.median(rate for rate, _ in runs)),
            "runs": [round(rate) for rate, _ in runs],
            "client_cpu_us_per_document": round(statistics.median(cpu for _, cpu in runs), 1),
        }
        if name != "headgate":
            result["headgate_ratio"] = round(statistics.median(ratios), 2)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
