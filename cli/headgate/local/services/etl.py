"""The etl service: the shop's events in four formats into one clean model, to a Kafka topic and a table.

What the app is told is in ``etl_documents``, where its rows end in ``etl_tables``. The key of its pseudonyms is made in
the workspace.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import InputError
from headgate.local.services import etl_documents
from headgate.local.services.etl_tables import LANE, DeltaTable, EtlTable
from headgate.local.services.service import Check, Ground, Screen, Server
from headgate.local.shop.expected_rows import RATES
from headgate.local.shop.feed import Feed, formats_feed
from headgate.local.shop.formats import ENCODINGS
from headgate.local.shop.settings import ShopSettings
from headgate.local.workspace import Names
from headgate.talk import Say
from headgate_etl.settings import EtlSettings
from streamcore.kafka.control import ControlLog
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import DEAD_LETTERS, STATUS

if TYPE_CHECKING:
    from headgate.local.app_process import Figures
    from headgate.local.java import Java
    from headgate.local.stack import Stack
    from headgate.timeline import Timeline
    from streamcore.service.settings import ServiceSettings

_KEY_BYTES: Final = 32
_LANES: Final = (etl_documents.CLEAN, DEAD_LETTERS, STATUS)
_NAMES: Final = Names("etl", inputs=tuple(ENCODINGS), lanes=_LANES)


class EtlService:
    """``table``: where rows end besides Kafka; the one in the workspace's folder unless another is named."""

    name = "etl"
    module = "headgate_etl"
    names = _NAMES

    def __init__(self, table: EtlTable | None = None) -> None:
        self._table = table or DeltaTable()

    def load(self) -> None:
        """Nothing takes long."""

    def server(self, folder: Path, java: Java) -> Server | None:  # noqa: ARG002 - no table needs a Java
        """What the table needs."""
        return self._table.server(folder)

    def settings(self, ground: Ground) -> EtlSettings:
        """Of the app. Writes the files that they name: stream files, Avro's schema, the key.

        ``InputError`` when the shop's rows went to a table of another kind so far.
        """
        self._refuse_another_table(ground)
        folder = ground.shop.folder
        _ensure_key(key_file(folder))
        streams = etl_documents.write_streams(folder / "streams")
        return etl_documents.settings(ground, streams, key_file(folder), self._table)

    def _refuse_another_table(self, ground: Ground) -> None:
        """A table that begins in the middle of the shop would lack what came before."""
        before = _target_of(ground.shop.settings_file) if ground.shop.checkpoint.exists() else None
        if before not in (None, self._table.target):
            raise InputError(
                f"data folder {ground.shop.folder}: this shop's rows go to {before}, not to {self._table.target};"
                " name another folder with --data, or begin anew with --fresh"
            )

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """What the app writes, and its control topic."""
        from streamcore.service.topics import own_topics

        return own_topics(settings, _LANES)

    def forget(self, ground: Ground, say: Say) -> None:
        """The table of an earlier shop."""
        self._table.forget(ground.shop.folder, say)

    def prepare(self, ground: Ground, say: Say) -> None:
        """Publish the rates, unless they are there; the table."""
        from headgate.publishing import AppTopics, read_log
        from rulecore.lists.records import Head, records_of
        from streamcore.schema import Type

        head = Head(
            list="rates", version=1, owner="shop", of=Type.parse("string"), value=Type.parse(etl_documents.RATE)
        )
        records = records_of(head, [[currency, rate] for currency, rate in RATES.items()])
        known = {written.control.key for written in read_log(ground.kafka, AppTopics(ground.shop.names.app))}
        missing = [(key, value) for key, value in records if key.encode() not in known]
        with ControlLog(ground.kafka, ground.shop.names.control) as log:
            for key, value in missing:
                log.publish(key, value)
        self._table.prepare(ground.shop.folder)
        say(f"list rates: {'published' if missing else 'was there'}; {self._table.how_to_look(ground.shop.folder)}")

    def feed(self, names: Names, shop: ShopSettings) -> Feed:
        """The shop's events, each in the format of the system that it comes from."""
        return formats_feed(names.events, names.input, shop)

    def milestones(self, figures: Figures) -> Mapping[str, bool]:
        """Cut, events, clean row."""
        return {
            "first cut": bool(figures.cuts),
            "first events": bool(figures.events),
            "first clean row": bool(figures.lanes[etl_documents.CLEAN]),
            f"first rows in {self._table.what}": any(sink.rows for sink in figures.sinks.values()),
        }

    def screen(self, stack: Stack, timeline: Timeline) -> Screen:
        """Lanes, the sink, and the latest records."""
        from headgate.service_watch import ServiceWatch

        app, bootstrap = stack.shop.names.app, stack.kafka.bootstrap
        hint = f"headgate deadletters list --app {app} --bootstrap {bootstrap}"
        return ServiceWatch(stack, timeline, hint)

    def check(self, stack: Stack) -> Check:
        """Clean rows in the topic and in the table, and dead letters."""
        from headgate.verify_etl import EtlCheck

        folder = stack.shop.folder
        return EtlCheck(stack.kafka, stack.shop, lambda: self._table.rows(folder), key_file(folder))


def _target_of(settings_file: Path) -> str | None:
    """Where the table's rows went as the app was told; None when nobody knows."""
    try:
        routes = json.loads(settings_file.read_text(encoding="utf-8"))["routes"]
        return next(str(route["to"]) for route in routes if route["name"] == LANE)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None


def key_file(folder: Path) -> Path:
    """The key of a workspace's pseudonyms."""
    return folder / "pseudonym.key"


def _ensure_key(path: Path) -> None:
    """Whoever started it first may read it, and nobody else."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES))
        part.replace(path)
