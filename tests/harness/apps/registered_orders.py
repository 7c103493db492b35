"""Orders as records of a schema registry: each version of the schema has one more field, which no rule reads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict

import fastavro

from streamcore.schema_registry.schemas import MAGIC
from tests.harness.apps.orders import Order
from tests.harness.servers.schema_registry import EmbeddedRegistry


def avro_schema(version: int) -> str:
    """Return the JSON of a version of the schema."""
    text = ["null", "string"]
    fields: list[dict[str, object]] = [{"name": f"extra{n}", "type": "int", "default": n} for n in range(version)]
    fields += [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": text},
        {"name": "kind", "type": "string"},
        {"name": "amount", "type": text},
        {"name": "country", "type": text},
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def avro_encoder(schema_id: int, schema: str) -> Callable[[Order], bytes]:
    """Return a function that writes an order with the schema of this id."""
    parsed = fastavro.parse_schema(json.loads(schema))

    def encode(order: Order) -> bytes:
        out = io.BytesIO(bytes([MAGIC]) + schema_id.to_bytes(4, "big"))
        out.seek(5)
        amount = None if order.amount is None else str(order.amount)
        fastavro.schemaless_writer(out, parsed, {**asdict(order), "amount": amount})
        return out.getvalue()

    return encode


def register(registry: EmbeddedRegistry, subject: str, version: int) -> Callable[[Order], bytes]:
    """Register a version under a subject; return the function that writes with it."""
    schema = avro_schema(version)
    return avro_encoder(registry.register(subject, schema), schema)
