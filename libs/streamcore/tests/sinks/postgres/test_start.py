"""What a sink rejects at start, and whether the statement in its error fixes the fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Retryable
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.postgres.ddl import create_tables
from streamcore.sinks.postgres.settings import PostgresSettings, SslMode, TableName, TableSpec
from streamcore.sinks.postgres.sink import PostgresSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from tests.harness.cut_ids import cut_id
from tests.harness.servers.postgres_table import CREATE, ORDERS, orders, spec

if TYPE_CHECKING:
    from tests.harness.servers.postgres_table import SinkDatabase

pytestmark = pytest.mark.postgres
KEYED = spec("orders", "id")
ALL = pa.schema(
    [
        ("id", pa.large_string()),
        ("n", pa.int64()),
        ("amount", pa.decimal128(18, 2)),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("ms", "UTC")),
    ]
)


def open_error(sink_database: SinkDatabase, table: TableSpec = KEYED, columns: pa.Schema = ORDERS) -> str:
    with pytest.raises(ConfigError) as caught:
        sink_database.sink(table, {"orders": columns})
    return str(caught.value)


@pytest.mark.parametrize(
    "table", [spec(), KEYED, spec("orders", "id", "n", version="at"), spec("orders", "id", deleted="flag")]
)
def test_the_statement_in_the_error_for_a_missing_table_creates_one_that_fits(
    sink_database: SinkDatabase, table: TableSpec
) -> None:
    message = open_error(sink_database, table, ALL)
    assert "orders does not exist; run:\nCREATE TABLE" in message
    sink_database.run(message.split("run:\n")[1])
    sink_database.sink(table, {"orders": ALL})


@pytest.mark.parametrize("table", [KEYED, spec("orders", "amount", "id")])
def test_the_statement_in_the_error_for_a_missing_key_creates_one_that_fits(
    sink_database: SinkDatabase, table: TableSpec
) -> None:
    sink_database.run("CREATE TABLE orders (id text NOT NULL, amount numeric NOT NULL, v bigint, UNIQUE (id, v))")
    message = open_error(sink_database, table)
    assert "has no primary key or unique constraint of exactly" in message
    sink_database.run(message.split("run: ")[1])
    sink_database.sink(table)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        ("CREATE TABLE orders (id text PRIMARY KEY, amount numeric)", r'ADD COLUMN "v" bigint'),
        (CREATE.replace("18,2", "18,1"), r"'amount' as numeric\(18,1\).*loss"),
        (CREATE.replace("numeric(18,2)", "double precision"), "'amount' as double precision"),
        ("CREATE TABLE orders (id text PRIMARY KEY, amount numeric, v text)", "'v' as text"),
        ("CREATE TABLE orders (id uuid PRIMARY KEY, amount numeric, v bigint)", "'id' as uuid.*as a key"),
        ("CREATE TABLE orders (id char(9) PRIMARY KEY, amount numeric, v bigint)", "'id' as character"),
        ("CREATE TABLE orders (id text UNIQUE, amount numeric, v bigint)", 'ALTER "id" SET NOT NULL'),
        (CREATE.replace("KEY", "KEY DEFERRABLE"), "checked at once"),
        ("CREATE TABLE orders (id text NOT NULL, amount numeric, v bigint); "
         "CREATE UNIQUE INDEX ON orders (id) WHERE v > 0", "exactly"),
        ("CREATE TABLE orders (id text PRIMARY KEY, amount numeric, v bigint, x int NOT NULL)", "'x'.*default"),
        (CREATE.replace("bigint", "bigint GENERATED ALWAYS AS (1) STORED"), "by itself"),
        ("CREATE VIEW orders AS SELECT ''::text AS id, 1.0 AS amount, 1::bigint AS v", "not a table"),
        ("CREATE COLLATION c (provider = icu, locale = 'und', deterministic = false); "
         "CREATE TABLE orders (id text COLLATE c PRIMARY KEY, amount numeric, v bigint)", "deterministic collation"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_hold_the_lane_is_rejected(sink_database: SinkDatabase, create: str, message: str) -> None:
    sink_database.run(*create.split("; "))
    assert re.search(message, open_error(sink_database))


def test_a_table_with_more_columns_and_narrower_types_is_fine(sink_database: SinkDatabase) -> None:
    sink_database.run(
        "CREATE TABLE orders (x int, v smallint, id varchar(9) PRIMARY KEY, amount numeric, t timestamp DEFAULT now())"
    )
    assert sink_database.write(sink_database.sink(KEYED), 0, ("a", None, 1)).rows == 1


@pytest.mark.parametrize(
    ("grants", "message"),
    [
        ([], r"permission denied for schema|ledger"),
        (["USAGE, CREATE ON SCHEMA public"], r"GRANT SELECT, INSERT, UPDATE ON"),
        (["USAGE, CREATE ON SCHEMA public", "SELECT, INSERT ON orders"], r"GRANT UPDATE ON"),
        (
            ["USAGE ON SCHEMA public", "SELECT, INSERT, UPDATE ON orders"],
            r"(?s)ledger.*CREATE TABLE.*GRANT SELECT, INSERT",
        ),
        (["USAGE, CREATE ON SCHEMA public", "SELECT, INSERT, UPDATE ON orders"], ""),
    ],
)
def test_the_error_names_a_missing_privilege(
    sink_database: SinkDatabase, grants: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"restricted_{sink_database.database.name}_{len(grants)}_{len(message)}".replace("-", "_")
    monkeypatch.setenv("HEADGATE_TEST_PASSWORD", "tellnobody")
    sink_database.run(
        CREATE, f"CREATE ROLE {role} LOGIN PASSWORD 'tellnobody'", "REVOKE ALL ON SCHEMA public FROM PUBLIC"
    )
    sink_database.run(*(f"GRANT {grant} TO {role}" for grant in grants))
    login: dict[str, Any] = {"user": role, "password_file": None, "password_env": "HEADGATE_TEST_PASSWORD"}
    if not message:
        sink_database.sink(KEYED, **login)
        return
    with pytest.raises(ConfigError, match=message):
        sink_database.sink(KEYED, **login)


@pytest.mark.parametrize(
    "change", [{"user": "nobody_here"}, {"database": "nowhere"}, {"password_env": "HG_TEST_WRONG"}]
)
def test_a_rejected_login_is_an_immediate_error_without_the_password(
    sink_database: SinkDatabase, change: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HG_TEST_WRONG", "opensesame")
    login: dict[str, Any] = {"password_file": None, "password_env": "HG_TEST_WRONG"} | change
    if "database" in change:
        login = {**change}
    with pytest.raises(ConfigError) as caught:
        sink_database.sink(KEYED, **login)
    assert "opensesame" not in f"{caught.value!r} {caught.value.__cause__!r} {sink_database.settings(KEYED, **login)!r}"
    assert caught.value.__cause__ is None


def test_the_sink_retries_an_unavailable_server_until_its_patience_ends(tmp_path: Path) -> None:
    settings = PostgresSettings("127.0.0.1", "d", "u", {"orders": KEYED}, port=1, patience=RetryPolicy(300, 10, 50))
    with pytest.raises(Retryable, match=r"\d+ attempts within 300 ms"):
        PostgresSink("db", settings, {"orders": ORDERS}).open(WriterId("shop", 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tables": {}}, "no lane"),
        ({"password_file": Path("x"), "password_env": "X"}, "one of them"),
        ({"password_env": "p@ss"}, "name of an environment variable"),
        ({"cert_file": Path("x")}, "together"),
        ({"sslmode": SslMode.VERIFY_FULL}, "ca_file"),
    ],
)  # fmt: skip
def test_contradictory_settings_are_rejected(change: dict[str, object], message: str) -> None:
    some: dict[str, Any] = {"host": "h", "database": "d", "user": "u", "tables": {"orders": KEYED}, **change}
    with pytest.raises(ConfigError, match=message) as caught:
        PostgresSettings(**some)
    assert "p@ss" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TableName.parse("orders"), "schema.table"),
        (lambda: TableName.parse('public."x"'), "schema.table"),
        (lambda: spec("t", version="v"), "need a key"),
        (lambda: spec("t", "a", "a"), "twice"),
        (lambda: spec("t", "a", version="a"), "not part of the key"),
    ],
)
def test_invalid_values_are_rejected(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        (spec("orders", "nr"), ORDERS, r"names \['nr'\]"),
        (spec("orders", "id", deleted="v"), ORDERS, "must be boolean"),
        (spec("orders", "x"), pa.schema([("x", pa.float64())]), "double, which no key"),
        (spec(), pa.schema([("x", pa.list_(pa.int64()))]), "no table holds"),
        (spec(), pa.schema([("x", pa.timestamp("ms"))]), "no table holds"),
        (spec(), pa.schema([("a%s", pa.int64())]), "no quotes or %"),
    ],
)
def test_lanes_that_no_table_could_hold_are_rejected_without_a_server(
    table: TableSpec, columns: pa.Schema, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PostgresSink("db", PostgresSettings("127.0.0.1", "d", "u", {"orders": table}), {"orders": columns})


def test_settings_from_a_document_build_the_sink(sink_database: SinkDatabase) -> None:
    settings = TypeAdapter(PostgresSettings).validate_python(
        {
            "host": sink_database.database.host,
            "port": sink_database.database.port,
            "database": sink_database.database.name,
            "user": sink_database.database.user,
            "password_file": str(sink_database.database.password_file),
            "sslmode": "disable",
            "patience": {"recovery_ms": 5000},
            "timeouts": {"lock_ms": 700},
            "tables": {"orders": {"table": "public.orders", "key": ["id"], "version": "v"}},
        }
    )
    assert settings.tables == {"orders": spec("orders", "id", version="v")}
    assert (settings.timeouts.lock_ms, settings.patience.recovery_ms) == (700, 5_000)
    assert create_tables(settings, {"orders": ORDERS})[0].startswith('CREATE TABLE "public"."orders"')
    assert create_tables(settings, {"orders": ORDERS}) == []
    sink = sink_factory(settings, {"orders": ORDERS})(SinkHooks())
    sink.open(WriterId("shop", 1))
    assert sink.write(cut_id(0), {"orders": orders(("a", None, 1))}).rows == 1
    sink.close()
