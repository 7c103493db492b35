"""A rules app in this process to which stream documents and rules are published while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from headgate_rules.settings import RulesSettings
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.publication import StreamPublication
from streamcore.wire.lanes import STATUS, Record

NOW_MS = 1_800_000_000_000
ORDERS: dict[str, Any] = {
    "name": "orders",
    "when": {"from": "type", "equals": "order"},
    "event_time": "at",
    "event_id": "id",
    "keys": [["user"]],
    "fields": {
        "id": "string not null",
        "at": "timestamp not null",
        "user": "string not null",
        "total": "decimal(8,2)",
        "pieces": "long",
        "item": "struct<sku: string, price: long>",
    },
}
LOGINS: dict[str, Any] = {
    "name": "logins",
    "when": {"from": "type", "equals": "login"},
    "event_time": "at",
    "keys": [["user"]],
    "fields": {"at": "timestamp not null", "user": "string not null", "country": "string"},
}


def changed(version: int = 2, fields: Mapping[str, object] | None = None, **entries: object) -> dict[str, Any]:
    """Return a later document of the orders; a field of type None is left out."""
    merged = {**ORDERS["fields"], **(fields or {})}
    return {**ORDERS, "version": version, **entries, "fields": {n: kind for n, kind in merged.items() if kind}}


@dataclasses.dataclass
class Shop:
    """A rules app in this process, and the offsets of its topics."""

    app: InProcessApp
    control: int = 0
    events: int = 0

    def send(self, *changes: tuple[str, bytes | None], events: Sequence[Mapping[str, object]] = ()) -> list[Record]:
        """Run a cut with control records and events."""
        records = [control_record(self.control + n, key, value) for n, (key, value) in enumerate(changes)]
        records += [RawRecord(0, 0, self.events + n, orjson.dumps(event)) for n, event in enumerate(events)]
        self.control, self.events = self.control + len(changes), self.events + len(events)
        return self.app.cut(records, NOW_MS + self.events)

    def publish(self, document: Mapping[str, object], topic: str | None = None) -> dict[str, Any]:
        """Publish a document; return the answer, which comes with this cut or the next one."""
        offset = self.control
        output = [*self.send(stream(document, topic)), *self.send()]
        (answer,) = [one for one in statuses(output) if one["control"]["offset"] == offset]
        return answer


def stream(document: Mapping[str, object], topic: str | None = None) -> tuple[str, bytes]:
    record = StreamPublication(document, topic)
    return record.key, record.encode()


def rule(name: str, version: int = 1, **entries: object) -> tuple[str, bytes]:
    body = {"id": name, "version": version, "owner": "o", "on": "orders", "then": {"severity": "low", "message": "m"}}
    return name, orjson.dumps(body | entries)


def window(name: str, having: str, version: int = 1, **entries: object) -> tuple[str, bytes]:
    return rule(name, version, **{"group_by": ["user"], "within": {"tumbling": "1h"}, "having": having} | entries)


def order(number: int, **fields: object) -> dict[str, object]:
    event = {"type": "order", "id": str(number), "at": NOW_MS - 1000 + number, "user": "a", "total": "1.50"}
    return event | fields


def lane(records: Sequence[Record], name: str) -> list[dict[str, Any]]:
    return [orjson.loads(one.value or b"null") for one in records if one.lane == name]


def statuses(records: Sequence[Record]) -> list[dict[str, Any]]:
    return lane(records, STATUS)


def settings(folder: Path, *documents: Mapping[str, object], **entries: object) -> RulesSettings:
    streams = []
    for document in documents or (ORDERS,):
        file = folder / f"{document['name']}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        streams.append({"schema_file": str(file), "topic": "events"})
    body = {"kafka": {"bootstrap": "nowhere:1"}, "checkpoint": str(folder), "jars": str(folder), "streams": streams}
    return RulesSettings.model_validate(body | {"shards": 2} | entries)
