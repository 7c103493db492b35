"""The etl service: the shop's events in four formats into one clean model, to a Kafka topic and a table.

The app's settings are in ``etl_documents``, its tables in ``etl_tables``. The key of its pseudonyms is created in the
workspace.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.console.messages import Print
from headgate.demo.service import LiveView, Server, ServiceContext, ServiceRun, Verifier
from headgate.demo.services import etl_documents
from headgate.demo.services.etl_tables import LANE, DeltaTable, EtlTable
from headgate.demo.shop.expected_rows import RATES
from headgate.demo.shop.feed import Feed, formats_feed
from headgate.demo.shop.formats import ENCODINGS
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.workspace import AppNames
from headgate.errors import InputError
from headgate_etl.settings import EtlSettings
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.topics import TopicSpec
from streamcore.wire.lanes import DEAD_LETTERS, STATUS

if TYPE_CHECKING:
    from headgate.console.timeline import Timeline
    from headgate.demo.app_process import AppMetrics
    from headgate.local.java import Java
    from streamcore.service.config.settings import ServiceSettings

_KEY_BYTES: Final = 32
_LANES: Final = (etl_documents.CLEAN, DEAD_LETTERS, STATUS)
_NAMES: Final = AppNames("etl", inputs=tuple(ENCODINGS), lanes=_LANES)


class EtlService:
    """The etl service. ``table``: the second output beside Kafka; None: a Delta table in the workspace's folder."""

    name = "etl"
    module = "headgate_etl"
    app_names = _NAMES

    def __init__(self, table: EtlTable | None = None) -> None:
        self._table = table or DeltaTable()

    def preload(self) -> None:
        """Do nothing: the service has no slow resources."""

    def server(self, folder: Path, java: Java) -> Server | None:  # noqa: ARG002 - no table needs a Java
        """Return the server that the table needs."""
        return self._table.server(folder)

    def settings(self, context: ServiceContext) -> EtlSettings:
        """Return the app's settings. Writes the files that they name: stream files, the Avro schema, the pseudonym key.

        Raises ``InputError`` if the rows of this workspace went to a table of another kind so far.
        """
        self._check_same_table(context)
        folder = context.workspace.folder
        _ensure_key(key_file(folder))
        streams = etl_documents.write_streams(folder / "streams")
        return etl_documents.settings(context, streams, key_file(folder), self._table)

    def _check_same_table(self, context: ServiceContext) -> None:
        """Raise ``InputError`` if the workspace already writes to another table: the new one would lack the earlier
        rows."""
        old_target = _read_target(context.workspace.settings_file) if context.workspace.checkpoint.exists() else None
        if old_target not in (None, self._table.target):
            raise InputError(
                f"data folder {context.workspace.folder}: the rows of this workspace go to {old_target},"
                f" not to {self._table.target};"
                " name another folder with --data, or create a new workspace with --fresh"
            )

    def app_topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from streamcore.service.topics import topics_of_service

        return topics_of_service(settings, _LANES)

    def delete_leftovers(self, context: ServiceContext, print_message: Print) -> None:
        """Delete the table of an earlier shop."""
        self._table.delete_leftovers(context.workspace.folder, print_message)

    def prepare(self, context: ServiceContext, print_message: Print) -> None:
        """Publish the list of rates unless it is published, and create the table."""
        from headgate.rules.publish import AppTopics, read_log
        from rulecore.lists.records import ListHead, list_records
        from streamcore.schema import Type

        head = ListHead(
            list="rates", version=1, owner="shop", of=Type.parse("string"), value=Type.parse(etl_documents.RATE)
        )
        records = list_records(head, [[currency, rate] for currency, rate in RATES.items()])
        known = {written.control.key for written in read_log(context.kafka, AppTopics(context.workspace.names.app))}
        missing = [(key, value) for key, value in records if key.encode() not in known]
        with ControlLog(context.kafka, context.workspace.names.control) as log:
            for key, value in missing:
                log.publish(key, value)
        self._table.prepare(context.workspace.folder)
        print_message(
            f"list rates: {'published' if missing else 'exists'}; "
            f"{self._table.inspect_command(context.workspace.folder)}"
        )

    def event_feed(self, names: AppNames, shop: ShopSettings) -> Feed:
        """Return the shop's events, each in the format of the system that it comes from."""
        return formats_feed(names.events, names.input, shop)

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return the milestones: cut, events, clean row, rows in the table."""
        return {
            "first cut": bool(metrics.cuts),
            "first events": bool(metrics.events),
            "first clean row": bool(metrics.lanes[etl_documents.CLEAN]),
            f"first rows in {self._table.display_name}": any(sink.rows for sink in metrics.sinks.values()),
        }

    def live_view(self, run: ServiceRun, timeline: Timeline) -> LiveView:
        """Return a view of the lanes, the sink, and the latest records."""
        from headgate.demo.views.service_watch import service_live_view

        app, bootstrap = run.workspace.names.app, run.kafka.bootstrap
        hint = f"headgate deadletters list --app {app} --bootstrap {bootstrap}"
        return service_live_view(run, timeline, hint)

    def verifier(self, run: ServiceRun) -> Verifier:
        """Return the verifier of the clean rows in topic and table, and of the rejected records."""
        from headgate.demo.verify.etl import EtlVerifier

        folder = run.workspace.folder
        return EtlVerifier(run.kafka, run.workspace, lambda: self._table.rows(folder), key_file(folder))


def _read_target(settings_file: Path) -> str | None:
    """Return the table that the app's settings name; None when it is unknown."""
    try:
        routes = json.loads(settings_file.read_text(encoding="utf-8"))["routes"]
        return next(str(route["to"]) for route in routes if route["name"] == LANE)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None


def key_file(folder: Path) -> Path:
    """Return the key file for a workspace's pseudonyms."""
    return folder / "pseudonym.key"


def _ensure_key(path: Path) -> None:
    """Create the key file if it is missing; only the user who creates it may read it."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES))
        part.replace(path)
