"""The sessions service: shop events into a PostgreSQL with its tables and views, whose rows are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import headgate_sessions
from headgate.local.services.database import Address, Database, Schema, database_of
from headgate.local.services.service import Check, Ground, Screen, Server
from headgate.local.shop.feed import Feed, shop_feed
from headgate.local.shop.settings import ShopSettings
from headgate.local.workspace import Names
from headgate.talk import Say
from headgate_sessions.settings import SessionsSettings
from headgate_sessions.topics import ACTIVE, ACTIVITY, REVENUE, SESSIONS, TOP, table_lane
from streamcore.kafka.topics import TopicSpec
from streamcore.lanes import DEAD_LETTERS, LATE
from streamcore.service.documents import KafkaDocument, StreamDocument
from streamcore.service.postgres import TableDocument

if TYPE_CHECKING:
    from headgate.local.app_process import Figures
    from headgate.local.java import Java
    from headgate.local.stack import Stack
    from headgate.timeline import Timeline
    from streamcore.service.settings import ServiceSettings

_STREAM: Final = "shop"
_SCHEMA: Final = "sessions"
_NAMES: Final = Names("sessions", lanes=(SESSIONS, ACTIVITY, LATE, DEAD_LETTERS, REVENUE, ACTIVE, TOP))
#: With the tables, so that it goes with them.
_LEDGER: Final = f"{_SCHEMA}.headgate_ledger"
#: So that one sees sessions while they go on.
_EARLY_MS: Final = 2_000
_TABLES: Final = {
    table_lane(SESSIONS): TableDocument(table="sessions.session", key=("session_id",), version="revision"),
    table_lane(ACTIVITY): TableDocument(table="sessions.activity", key=("minute",), version="revision"),
    table_lane(REVENUE): TableDocument(table="sessions.revenue", key=("minute", "currency"), version="revision"),
    table_lane(ACTIVE): TableDocument(table="sessions.active", key=("until",)),
    table_lane(TOP): TableDocument(table="sessions.top", key=("until", "rank")),
}
_VIEWS: Final = "final_session, live_session, conversion_by_day, revenue_by_day, funnel_by_day, live_minute, active_now"


class SessionsService:
    """``address``: of somebody else's database; None: our own, in the workspace's folder."""

    name = "sessions"
    module = "headgate_sessions"
    names = _NAMES

    def __init__(self, address: Address | None = None) -> None:
        self._address = address
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """There is one after ``server``."""
        assert self._database is not None, "server() comes first"
        return self._database

    def schema(self, folder: Path) -> Schema:
        """The one that holds all tables and views."""
        return Schema(self.database, _SCHEMA, folder)

    def load(self) -> None:
        """Nothing takes long."""

    def server(self, folder: Path, java: Java) -> Server:  # noqa: ARG002 - PostgreSQL needs no Java
        """PostgreSQL."""
        self._database = database_of(self._address, folder, _TABLES, _LEDGER)
        return self._database

    def settings(self, ground: Ground) -> SessionsSettings:
        """Of the app."""
        from headgate.local.stack import PARALLELISM, RETENTION_MS, SHARDS

        names, schema = ground.shop.names, ground.streams / f"{_STREAM}.yaml"
        return SessionsSettings(
            app=names.app,
            kafka=KafkaDocument(bootstrap=ground.kafka.bootstrap),
            stream=StreamDocument(schema_file=schema.absolute(), topic=names.events, reject_extra_fields=True),
            checkpoint=ground.shop.checkpoint,
            jars=ground.jars,
            local_dir=ground.shop.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
            early_ms=_EARLY_MS,
            postgres=self.database.document(),
        )

    def topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """What the app writes, and its control topic."""
        from headgate_sessions.topics import topics

        assert isinstance(settings, SessionsSettings), "its own settings"
        return topics(settings)

    def forget(self, ground: Ground, say: Say) -> None:
        """The tables of an earlier shop."""
        self.schema(ground.shop.folder).drop(say)

    def prepare(self, ground: Ground, say: Say) -> None:
        """Tables and views, and how to look at them."""
        schema = self.schema(ground.shop.folder)
        folder = Path(headgate_sessions.__file__).parent / "sql"
        schema.apply([folder / "tables.sql", folder / "views.sql"])
        say(f"to look at its tables: {schema.how_to_look()}")
        say(f"views in schema {_SCHEMA}: {_VIEWS}, top_now")

    def feed(self, names: Names, shop: ShopSettings) -> Feed:
        """The shop's events as they are."""
        return shop_feed(names.events, shop)

    def milestones(self, figures: Figures) -> Mapping[str, bool]:
        """Cut, events, session, row."""
        return {
            "first cut": bool(figures.cuts),
            "first events": bool(figures.events),
            "first session": bool(figures.lanes[SESSIONS]),
            "first rows in PostgreSQL": any(sink.rows for sink in figures.sinks.values()),
        }

    def screen(self, stack: Stack, timeline: Timeline) -> Screen:
        """Lanes, the sink, and the latest records."""
        from headgate.service_watch import ServiceWatch

        at = self.database.document()
        hint = f"views in schema {_SCHEMA} of postgresql://{at.user}@{at.host}:{at.port}/{at.database}"
        return ServiceWatch(stack, timeline, hint)

    def check(self, stack: Stack) -> Check:
        """The rows of sessions.session."""
        from headgate.verify_sessions import SessionsCheck

        settings = self.settings(stack.ground)
        return SessionsCheck(stack.kafka, stack.shop, settings)
