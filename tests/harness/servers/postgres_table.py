"""A table for each test with a sink that writes to it, and its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.postgres.settings import PostgresSettings, TableName, TableSpec
from streamcore.sinks.postgres.sink import PostgresSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks, WriteResult
from tests.harness.cut_ids import cut_id

if TYPE_CHECKING:
    from conftest import Database

QUICK = RetryPolicy(recovery_ms=20_000, pause_ms=20, pause_max_ms=200)
ORDERS = pa.schema([("id", pa.large_string()), ("amount", pa.decimal128(18, 2)), ("v", pa.int64())])
CREATE = "CREATE TABLE orders (id text PRIMARY KEY, amount numeric(18,2), v bigint NOT NULL)"

Rows = Sequence[Mapping[str, Any]]


def spec(table: str = "orders", *key: str, **more: str) -> TableSpec:
    return TableSpec(TableName("public", table), key, **more)


def orders(*rows: tuple[Any, ...], schema: pa.Schema = ORDERS) -> pa.Table:
    """Return rows by position."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@dataclass
class SinkDatabase:
    """A database, and sinks of app ``shop`` that write to it."""

    database: Database
    opened: list[PostgresSink] = field(default_factory=list)

    def run(self, *statements: str) -> None:
        with self.database.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str = "SELECT * FROM orders ORDER BY 1") -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            return connection.execute(query).fetchall()

    def settings(self, tables: Mapping[str, TableSpec] | TableSpec, **more: Any) -> PostgresSettings:
        by_lane = {"orders": tables} if isinstance(tables, TableSpec) else tables
        return self.database.settings(by_lane, **{"patience": QUICK, **more})

    def sink(
        self,
        tables: Mapping[str, TableSpec] | TableSpec,
        columns: Mapping[str, pa.Schema] | None = None,
        *,
        epoch: int = 1,
        hooks: SinkHooks | None = None,
        kind: type[PostgresSink] = PostgresSink,
        **more: Any,
    ) -> PostgresSink:
        """Open the connection."""
        made = kind("db", self.settings(tables, **more), columns or {"orders": ORDERS}, hooks)
        self.opened.append(made)
        made.open(WriterId("shop", epoch))
        return made

    def write(self, sink: PostgresSink, batch: int, *rows: tuple[Any, ...]) -> WriteResult:
        return sink.write(cut_id(batch), {"orders": orders(*rows)})
