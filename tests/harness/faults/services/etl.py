"""The etl service with the retail lines in two inputs: sales to each kind of table and to a webhook, returns to Kafka.

Each seventh answer of the webhook is lost, so that its requests come again. Among the lines are records of 20 MB, which
Kafka takes and no decoder does.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from headgate.local.servers.postgres import EmbeddedPostgres
from rulecore.language import ListType
from rulecore.lists.records import ListHead, list_records
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import ensure_topics
from streamcore.schema import STRING, Type
from streamcore.service.topics import topics_of_service
from tests.harness.apps import retail_etl
from tests.harness.apps.retail_etl import MODEL
from tests.harness.faults.services.servers import Postgres
from tests.harness.faults.services.trial import LINES, Input, ServicePlan, ServiceScene
from tests.harness.oracles import delta_log, iceberg_files
from tests.harness.oracles.parquet_notes import counted_files
from tests.harness.oracles.retail_etl_sql import RATES, Expected
from tests.harness.servers.webhook_receiver import WebhookReceiver

TOPICS = ("retail", "retail_text")
ICEBERG_TABLE = "shop.sales"
LARGE_BYTES = 20_000_000
_CREATE = """create table sales (
    id text not null, invoice text not null, stock text not null, description text, quantity bigint not null,
    sold_at timestamptz not null, price numeric(12,3) not null, customer text, country text not null,
    currency text not null, rate numeric(12,6) not null, amount numeric(18,2) not null)"""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class EtlOutput:
    """``lake``: a folder with the Delta table, the Iceberg catalogue and the Parquet files. No table has a key: what is
    written twice is there twice."""

    database: Postgres
    lake: Path
    receiver: WebhookReceiver

    def read_postgres(self) -> Counter[Row]:
        """Return the rows of the PostgreSQL table."""
        with self.database.connect() as connection:
            return Counter(map(_format_row, connection.execute(f"select {', '.join(MODEL)} from sales").fetchall()))

    def read_delta(self) -> Counter[Row]:
        """Return the rows of the Delta table."""
        return Counter(_format_row(row[name] for name in MODEL) for row in delta_log.rows(self.lake / "delta"))

    def read_iceberg(self) -> Counter[Row]:
        """Return the rows of the Iceberg table."""
        return _count_rows([str(file) for file in iceberg_files.live_files(self.lake, ICEBERG_TABLE)])

    def read_parquet(self) -> Counter[Row]:
        """Return the rows of the Parquet files that count."""
        return _count_rows(counted_files(self.lake / "files"))

    def read_webhook(self) -> Counter[Row]:
        """Return the rows that a receiver has that keeps the ids of requests."""
        rows = (row for rows in self.receiver.rows_by_message().values() for row in rows)
        return Counter(tuple(row[name] for name in MODEL) for row in rows)

    def read_all(self) -> Mapping[str, Counter[Row]]:
        """Return the sales in each system."""
        return {
            "PostgreSQL": self.read_postgres(),
            "Delta": self.read_delta(),
            "Iceberg": self.read_iceberg(),
            "Parquet": self.read_parquet(),
            "webhook": self.read_webhook(),
        }

    def check(self, scene: ServiceScene) -> None:
        """Compare the tables, the topic and the dead letters with DuckDB."""
        expected = Expected(LINES)
        sales, returns = expected.lane(sales=True), expected.lane(sales=False)
        for system, found in self.read_all().items():
            check_same(found, sales, system)
        assert len(self.receiver.rows_by_message()) < len(self.receiver.requests), "answers were lost"
        check_same(Counter(_values(r.value) for r in scene.read("returns")), returns)
        sent = SentRecords.from_input(scene.plan.records)
        letters = [sent.check_letter(scene.app.name, dict(r.headers), r.value) for r in scene.read("deadletters")]
        expected_letters = [
            (topic, sent.offsets[str(topic)][int(str(line))], code) for topic, line, code in expected.letters()
        ]
        check_same(
            Counter(letters),
            [*expected_letters, *((topic, offset, "too_large") for topic, offset in sent.large_records())],
        )
        assert len(sales) + len(returns) + len(letters) + expected.duplicates() == len(scene.plan.records)


@dataclass(frozen=True, slots=True)
class SentRecords:
    """``values``: by topic and offset. ``offsets``: of the lines, which the oracle counts without large records."""

    values: Mapping[str, Sequence[bytes | None]]
    offsets: Mapping[str, Sequence[int]]

    @classmethod
    def from_input(cls, records: Sequence[Input]) -> SentRecords:
        """Return the records by topic and offset."""
        values = {topic: [value for name, _, value in records if name == topic] for topic in TOPICS}
        lines = {topic: [n for n, one in enumerate(some) if not _large(one)] for topic, some in values.items()}
        return cls(values, lines)

    def large_records(self) -> list[tuple[str, int]]:
        """Return topic and offset of the large records."""
        return [(topic, n) for topic, some in self.values.items() for n, one in enumerate(some) if _large(one)]

    def check_letter(self, app: str, headers: Mapping[str, bytes], value: bytes | None) -> Row:
        """Check that a dead letter has the original bytes, as many as fit; return its topic, offset and code."""
        topic, offset = headers["source_topic"].decode().removeprefix(f"{app}."), int(headers["source_offset"])
        sent = self.values[topic][offset]
        if _large(sent):
            assert value is not None
            assert headers["truncated_from_bytes"] == b"%d" % LARGE_BYTES
            assert len(value) > 900_000
            assert (sent or b"").startswith(value)
        else:
            assert value == sent
        return topic, offset, headers["reason_code"].decode()


def _large(value: bytes | None) -> bool:
    return value is not None and len(value) >= LARGE_BYTES


def _count_rows(files: Sequence[str]) -> Counter[Row]:
    frame = pl.read_parquet([*files], hive_partitioning=True).select(*MODEL)
    return Counter(map(_format_row, frame.iter_rows()))


def check_same(found: Counter[Row], expected: Iterable[Row], system: str = "") -> None:
    """Check that both hold the same rows, each as often; the message shows some of the difference."""
    expected_rows = Counter(expected)
    missing, extra = expected_rows - found, found - expected_rows
    assert not (missing | extra), (
        f"{system}: missing {missing.total()}: {[*missing][:3]}, too many {extra.total()}: {[*extra][:3]}"
    )


def plan_etl(
    folder: Path, kafka: KafkaSettings, name: str, server: EmbeddedPostgres, receiver: WebhookReceiver
) -> tuple[ServicePlan, EtlOutput]:
    """Start the server, publish the list, and return the plan of the service."""
    database = Postgres(server)
    server.start()
    with database.connect() as connection:
        connection.execute(_CREATE)
    receiver.answer = lambda _: None if len(receiver.requests) % 7 == 0 else 204
    output = EtlOutput(database, folder / "lake", receiver)
    output.lake.mkdir()
    settings = _settings(output, name)
    ensure_topics(
        kafka, topics_of_service(retail_etl.settings(app=name, **settings), ("returns", "deadletters", "status"))
    )
    with ControlLog(kafka, f"{name}.control") as log:
        for key, value in _rates():
            log.publish(key, value)
    document = retail_etl.settings(app=name, **settings).model_dump(mode="json", include={*_SETTINGS, *settings})
    return ServicePlan(("headgate_etl",), document, _records(), server, output.check), output


_SETTINGS = ("model", "id", "rules", "lists", "derive", "deduplicate", "mask")


def _settings(output: EtlOutput, name: str) -> dict[str, object]:
    document = retail_etl.settings().model_dump(mode="json")
    inputs = [one | {"topic": f"{name}.{one['topic']}"} for one in document["inputs"]]
    by = {"partition_by": ["currency"]}
    lake = output.lake
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    postgres = output.database.login | {"tables": {"sales": {"table": "public.sales"}}}
    sales = {"when": "quantity > 0"}
    routes = [
        {"name": "sales", "to": "postgres", **sales},
        {"name": "sales-delta", "to": "delta", **sales},
        {"name": "sales-iceberg", "to": "iceberg", **sales},
        {"name": "sales-files", "to": "parquet", **sales},
        {"name": "sales-hook", "to": "webhook", **sales},
        {"name": "returns", "when": "quantity <= 0", "key": ["invoice"]},
    ]
    return {
        "inputs": inputs,
        "routes": routes,
        "delta": {"tables": {"sales-delta": {"uri": str(lake / "delta"), "compact_every": 5, **by}}},
        "iceberg": {"catalog": {"options": catalog}, "tables": {"sales-iceberg": {"table": ICEBERG_TABLE, **by}}},
        "parquet": {"tables": {"sales-files": {"uri": str(lake / "files"), **by}}},
        "webhook": {"endpoints": {"sales-hook": {"url": output.receiver.url}}},
        "postgres": postgres,
    }


def _records() -> list[Input]:
    lines: list[Input] = [(TOPICS[r.source], r.key, r.value) for r in retail_etl.records(LINES)]
    large: list[Input] = [(topic, b"large", random.Random(1).randbytes(LARGE_BYTES)) for topic in TOPICS]
    third = len(lines) // 3
    return [*lines[:third], large[0], *lines[third : 2 * third], large[1], *lines[2 * third :]]


def _rates() -> list[tuple[str, bytes]]:
    kind = ListType("rates", STRING, Type.parse("decimal(12,6)"))
    head = ListHead(list=kind.name, version=1, owner="finance", of=kind.of, value=kind.value)
    return list_records(head, [[currency, rate] for currency, rate in RATES.items()])


def _format_row(row: Iterable[object]) -> Row:
    """Return the row in the form of the oracle: decimals as text, times in UTC."""
    return tuple(_text(value) for value in row)


def _text(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    return value if value is None or isinstance(value, int) else str(value)


def _values(value: bytes | None) -> Row:
    body = json.loads(value or b"")
    return tuple(body[name] for name in MODEL)
