"""The settings of sinks, as people write them: parsed, rejected, and serialised without a loss."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from streamcore.sinks.delta.settings import DeltaSettings
from streamcore.sinks.iceberg.settings import IcebergSettings
from streamcore.sinks.opensearch.settings import OpenSearchSettings
from streamcore.sinks.parquet.settings import ParquetSettings
from streamcore.sinks.postgres.settings import PostgresSettings, TableName, TableSpec, Timeouts
from streamcore.sinks.sink import RetryPolicy
from streamcore.sinks.webhook.settings import WebhookSettings

DOCUMENTS: list[tuple[type[object], dict[str, object]]] = [
    (
        PostgresSettings,
        {
            "host": "db",
            "database": "shop",
            "user": "etl",
            "tables": {"orders": {"table": "public.orders", "key": ["id"]}},
            "ledger": "shop.ledger",
            "timeouts": {"lock_ms": 700},
            "patience": {"recovery_ms": 5_000},
        },
    ),
    (
        DeltaSettings,
        {
            "tables": {"orders": {"uri": "s3://lake/orders", "vacuum_retention_hours": 48}},
            "storage": {"options": {"aws_region": "eu-central-1"}, "secret_env": {"aws_secret_access_key": "KEY"}},
        },
    ),
    (
        OpenSearchSettings,
        {
            "hosts": ["http://search:9200"],
            "indexes": {"documents": {"alias": "products", "id": ["id"], "properties": {"n": {"type": "text"}}}},
            "limits": {"documents": 100},
        },
    ),
    (
        IcebergSettings,
        {
            "catalog": {"options": {"type": "rest", "uri": "https://lake/"}, "secret_env": {"token": "TOKEN"}},
            "tables": {"orders": {"table": "shop.orders", "merge_schema": True}},
        },
    ),
    (WebhookSettings, {"endpoints": {"orders": {"url": "https://hooks.shop/o", "signing_key_file": "key"}}}),
    (ParquetSettings, {"tables": {"orders": {"uri": "s3://lake/orders", "partition_by": ["day"]}}}),
]


@pytest.mark.parametrize(("sink", "document"), DOCUMENTS)
def test_settings_from_a_document_serialise_to_the_same_document(
    sink: type[object], document: dict[str, object]
) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(sink)
    settings = adapter.validate_python(document)
    assert json.loads(adapter.dump_json(settings, exclude_defaults=True)) == document
    assert adapter.validate_json(adapter.dump_json(settings)) == settings


@pytest.mark.parametrize(("sink", "document"), DOCUMENTS)
def test_an_unknown_setting_is_rejected_without_showing_its_value(
    sink: type[object], document: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match="pasword") as rejected:
        TypeAdapter(sink).validate_python(document | {"pasword": "hush"})
    assert "hush" not in str(rejected.value)


def test_numbers_out_of_bounds_are_rejected_in_code_as_well() -> None:
    tables = {"orders": TableSpec(TableName("public", "orders"))}
    with pytest.raises(ValidationError, match="port"):
        PostgresSettings("db", "shop", "etl", tables, port=0)
    with pytest.raises(ValidationError, match="max_rejected"):
        PostgresSettings("db", "shop", "etl", tables, max_rejected=-1)
    with pytest.raises(ValidationError, match="connect_ms"):
        Timeouts(connect_ms=1)
    with pytest.raises(ValidationError, match="pause_ms"):
        RetryPolicy(pause_ms=0)
