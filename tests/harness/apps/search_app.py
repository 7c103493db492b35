"""The search app in-process: settings for tests, an index of its output, and short notations of input rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from headgate.demo.shop.search_documents import PRODUCT_CHANGES, PRODUCT_COUNTS
from headgate_search.app import build_app, build_topology
from headgate_search.settings import SearchSettings
from streamcore.topology import text_tables as tables
from streamcore.topology.simulation import Simulation, SimulationResult

ROOT = Path(__file__).parents[3]

Document = Mapping[str, object]
#: id, op, name, price, updated_at in milliseconds.
ProductChange = tuple[str, str, str | None, str | None, int]
#: type, product, quantity, amount, status, time in milliseconds, partition.
Event = tuple[str, str | None, int | None, str | None, str | None, int, int]


def shop_streams(changes_topic: str, events_topic: str, **more: object) -> dict[str, object]:
    """Return the entries ``documents`` and ``counters`` of the demo shop. ``more``: further entries of both streams."""
    folder = ROOT / "streams"
    changes = {"schema_file": str(folder / "products.yaml"), "topic": changes_topic, **PRODUCT_CHANGES, **more}
    events = {"schema_file": str(folder / "shop.yaml"), "topic": events_topic, **PRODUCT_COUNTS, **more}
    return {"documents": [changes], "counters": [events]}


def settings(**more: object) -> SearchSettings:
    """Return settings; ``more`` replaces entries."""
    return SearchSettings.model_validate(
        {
            "kafka": {"bootstrap": "nowhere:9092"},
            "checkpoint": "/nowhere",
            "jars": "/nowhere",
            **shop_streams("products", "shop"),
            "opensearch": {
                "hosts": ["http://nowhere:9200"],
                "indexes": {"documents": {"alias": "products", "id": ["id"], "deleted": "deleted"}},
            },
            "idle_timeout_ms": 10**12,
        }
        | more
    )


@dataclass
class Index:
    """A model of an index. ``tombstones``: deletions by id; ``sent``: the number of rows."""

    documents: dict[str, Document] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    def apply(self, rows: pl.DataFrame) -> None:
        """Apply the rows of a cut: at most one a document."""
        if not rows.height:
            return
        assert rows["id"].n_unique() == rows.height
        self.sent += rows.height
        for row in rows.iter_rows(named=True):
            name, deleted = row.pop("id"), row.pop("deleted")
            if deleted:
                assert all(value is None for column, value in row.items() if column != "updated_at")
                self.documents.pop(name, None)
                self.tombstones[name] = self.tombstones.get(name, 0) + 1
            else:
                self.documents[name] = row


class App:
    """The app, cut by cut, and the index behind it. ``restart`` continues in another process from the stored state."""

    def __init__(self, with_settings: SearchSettings, shards: int = 1) -> None:
        self.settings = with_settings.model_copy(update={"shards": shards})
        self.topology = build_topology(self.settings)
        self.index = Index()
        self.late = 0
        self.dead: list[str] = []
        self.app = build_app(self.settings)
        self.simulation = Simulation(self.topology, app=self.app)

    def cut(self, changes: pl.DataFrame | None, events: pl.DataFrame | None, clock_ms: int) -> pl.DataFrame:
        """Run a cut; return the documents."""
        inputs = {name: rows for name, rows in (("products", changes), ("shop", events)) if rows is not None}
        return self._apply(self.simulation.cut(inputs, clock_ms=clock_ms))

    def end(self, clock_ms: int) -> pl.DataFrame:
        """End all streams, and let a refresh pass; return the documents."""
        self._apply(self.simulation.end(clock_ms=clock_ms))
        return self.cut(None, None, clock_ms + self.settings.refresh_ms)

    def restart(self) -> None:
        before = self.simulation
        self.simulation = Simulation(self.topology, app=self.app, blobs=before.blobs)
        self.simulation.offsets, self.simulation.seen = before.offsets, before.seen

    def _apply(self, result: SimulationResult) -> pl.DataFrame:
        documents = result["documents"]
        self.index.apply(documents)
        self.late += result["late"].height
        self.dead += [dict(record.headers)["reason"].decode() for record in result.dead]
        return documents


def changes(with_settings: SearchSettings, rows: Sequence[ProductChange]) -> pl.DataFrame:
    """Return product changes as rows."""
    stream = with_settings.documents[0].stream_schema()
    return tables.event_table(
        stream, [(i, op, name, None, "c", price, "EUR", True, _time(at_ms)) for i, op, name, price, at_ms in rows]
    )


def events(with_settings: SearchSettings, rows: Sequence[Event]) -> pl.DataFrame:
    """Return events of the shop as rows, with the partition of each."""
    stream = with_settings.counters[0].stream_schema()
    frame = tables.event_table(
        stream,
        [
            (f"e{n}", _time(at_ms), what, "u1", "s1", product, quantity, amount, "EUR", None, None, None, status)
            for n, (what, product, quantity, amount, status, at_ms, _) in enumerate(rows)
        ],
    )
    return frame.with_columns(pl.Series("partition", [row[-1] for row in rows], dtype=pl.Int32))


def _time(at_ms: int) -> str:
    seconds, ms = divmod(at_ms, 1_000)
    day, second = divmod(seconds, 86_400)
    assert 0 <= day < 28, "times of tests are in January 1970"
    return f"1970-01-{day + 1:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{ms:03}Z"
