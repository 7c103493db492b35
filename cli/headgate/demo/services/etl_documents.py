"""The settings of the demo's etl app: its inputs with their stream files, one model, routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from headgate.demo.services.etl_tables import LANE, EtlTable
from headgate.demo.shop.expected_rows import MAX_AMOUNT
from headgate.demo.shop.formats import CSV_COLUMNS, LOGIN_SCHEMA
from headgate_etl.settings import EtlSettings

if TYPE_CHECKING:
    from headgate.demo.service import ServiceContext

CLEAN: Final = "clean"
RATE: Final = "decimal(12,6)"
#: How long an event is remembered as a duplicate: less than the lateness of the shop's late events, more than the jump
#: of event time between two blocks.
_HORIZON_MS: Final = 2_400_000

_STREAMS: Final[Mapping[str, Mapping[str, object]]] = {
    "access-log": {
        "at": {"type": "timestamp not null", "from": "time"},
        "ip": {"type": "string", "from": "remote_host"},
        "user": "string",
        "path": "string",
        "query": "string",
    },
    "carts": {
        "event_id": "string not null",
        "at": "timestamp not null",
        "type": "string not null",
        "user": "string",
        "product": "string",
        "quantity": "long",
        "amount": "string",
        "country": "string not null",
        "ip": "string",
    },
    "logins": {
        "event_id": "string not null",
        "at": "timestamp not null",
        "user": "string not null",
        "ok": "boolean not null",
        "country": "string not null",
        "ip": "string",
    },
}
_MODEL: Final = {
    "id": "string not null",
    "at": "timestamp not null",
    "type": "string not null",
    "source": "string not null",
    "user": "string",
    "ip": "string",
    "country": "string not null",
    "product": "string",
    "quantity": "long",
    "card": "string",
    "status": "string",
    "amount": "decimal(12,2)",
    "currency": "string",
    "rate": RATE,
    "euros": "decimal(18,2)",
}
_PAYMENTS: Final = {
    "id": "event_id",
    "at": "ts",
    "type": "type",
    "source": "'payments'",
    "user": "user_id",
    "ip": "ip",
    "country": "country",
    "product": "product_id",
    "quantity": "quantity",
    "card": "card",
    "status": "status",
    "amount": "amount",
    "currency": "currency",
}
_VIEWS: Final = {
    "id": "regexp_extract(query, 'event=([^&]+)', 1)",
    "at": "at",
    "type": "'view'",
    "source": "'access-log'",
    "user": "user",
    "ip": "ip",
    "country": "regexp_extract(query, 'country=([^&]+)', 1)",
    "product": "regexp_extract(path, '^/products/(.+)$', 1)",
}
_CARTS: Final = {
    "id": "event_id",
    "at": "at",
    "type": "type",
    "source": "'carts'",
    "user": "user",
    "ip": "ip",
    "country": "country",
    "product": "product",
    "quantity": "quantity",
    "amount": "to_decimal(replace(amount, ',', '.'), 12, 2)",
    "currency": "case when country = 'GB' then 'GBP' when country = 'PL' then 'PLN' else 'EUR' end",
}
_LOGINS: Final = {
    "id": "event_id",
    "at": "at",
    "type": "'login'",
    "source": "'logins'",
    "user": "user",
    "ip": "ip",
    "country": "country",
    "status": "if(ok, 'ok', 'failed')",
}


def write_streams(folder: Path) -> Path:
    """Write the stream files of all inputs but ``streams/shop.yaml``, and the Avro schema; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, fields in _STREAMS.items():
        stream = {"name": name.replace("-", "_"), "event_time": "at", "keys": [["user"]], "fields": dict(fields)}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(stream, sort_keys=False), encoding="utf-8")
    (folder / "login.avsc").write_text(json.dumps(LOGIN_SCHEMA, indent=2), encoding="utf-8")
    return folder


def settings(context: ServiceContext, streams: Path, key_file: Path, table: EtlTable) -> EtlSettings:
    """Return the app's settings. ``streams``: the folder that ``write_streams`` filled."""
    from headgate.demo.stack import PARALLELISM, RETENTION_MS, SHARDS

    names = context.workspace.names
    document = {
        "app": names.app,
        "kafka": {"bootstrap": context.kafka.bootstrap},
        "checkpoint": context.workspace.checkpoint,
        "jars": context.jars,
        "local_dir": context.workspace.scratch,
        "shards": SHARDS,
        "parallelism": PARALLELISM,
        "output_retention_ms": RETENTION_MS,
        "inputs": _inputs(context, streams),
        "model": _MODEL,
        "id": ["id"],
        "rules": {"amount-plausible": f"amount <= {MAX_AMOUNT}"},
        "deduplicate": {"horizon_ms": _HORIZON_MS},
        "lists": {"rates": {"of": "string", "value": RATE, "missing": "dead_letter"}},
        "derive": {
            "rate": "case when amount is not null then lookup('rates', currency) end",
            "euros": "round(amount * rate, 2)",
        },
        "mask": {
            "user": {"how": "pseudonym", "key_file": key_file.absolute()},
            "ip": {"how": "network"},
            "card": {"how": "keep_last", "characters": 2},
        },
        "routes": [{"name": CLEAN, "key": ["user"]}, {"name": LANE, "to": table.target}],
        **table.settings_entry(context.workspace.folder),
    }
    return EtlSettings.model_validate(document)


def _inputs(context: ServiceContext, streams: Path) -> list[dict[str, object]]:
    names = context.workspace.names
    return [
        {
            "schema_file": (context.streams / "shop.yaml").absolute(),
            "topic": names.events,
            "reject_extra_fields": True,
            "map": _PAYMENTS,
        },
        {
            "schema_file": (streams / "access-log.yaml").absolute(),
            "topic": names.input("access-log"),
            "format": {"kind": "access-log", "layout": "common"},
            "map": _VIEWS,
        },
        {
            "schema_file": (streams / "carts.yaml").absolute(),
            "topic": names.input("carts"),
            "format": {"kind": "csv", "columns": CSV_COLUMNS, "delimiter": ";", "null_values": ["-"]},
            "map": _CARTS,
        },
        {
            "schema_file": (streams / "logins.yaml").absolute(),
            "topic": names.input("logins"),
            "format": {"kind": "avro", "framing": "bare", "schema_file": (streams / "login.avsc").absolute()},
            "map": _LOGINS,
        },
    ]
