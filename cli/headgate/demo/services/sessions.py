"""The sessions service: sessions of the shop's users and dashboard metrics, in the tables of a PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import headgate_sessions
from headgate.console.messages import Print
from headgate.demo.service import LiveView, Server, ServiceContext, ServiceRun, Verifier
from headgate.demo.services.database import Database, PostgresAddress, Schema, choose_database
from headgate.demo.shop.feed import Feed, shop_feed
from headgate.demo.shop.session_columns import shop_entries, shop_metrics
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.workspace import AppNames
from headgate_sessions.settings import DashboardMetricsDocument, FieldsDocument, SessionsSettings
from headgate_sessions.topics import ACTIVE, ACTIVITY, REVENUE, SESSIONS, TOP
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec
from streamcore.service.config.documents import StreamDocument
from streamcore.sinks.postgres.settings import TableName, TableSpec
from streamcore.wire.lanes import DEAD_LETTERS, LATE, table_lane

if TYPE_CHECKING:
    from headgate.console.timeline import Timeline
    from headgate.demo.app_process import AppMetrics
    from headgate.local.java import Java
    from streamcore.service.config.settings import ServiceSettings

_STREAM: Final = "shop"
_SCHEMA: Final = "sessions"
_NAMES: Final = AppNames("sessions", lanes=(SESSIONS, ACTIVITY, LATE, DEAD_LETTERS, REVENUE, ACTIVE, TOP))
#: In the schema of the tables, so that they are deleted together.
_LEDGER: Final = TableName(_SCHEMA, "headgate_ledger")
#: The interval of early results, in milliseconds: short, for users to see sessions before they end.
_EARLY_MS: Final = 2_000
_TABLES: Final = {
    table_lane(SESSIONS): TableSpec(table=TableName(_SCHEMA, "session"), key=("session_id",), version="revision"),
    table_lane(ACTIVITY): TableSpec(table=TableName(_SCHEMA, "activity"), key=("minute",), version="revision"),
    table_lane(REVENUE): TableSpec(table=TableName(_SCHEMA, "revenue"), key=("minute", "currency"), version="revision"),
    table_lane(ACTIVE): TableSpec(table=TableName(_SCHEMA, "active"), key=("until",)),
    table_lane(TOP): TableSpec(table=TableName(_SCHEMA, "top"), key=("until", "rank")),
}
_VIEWS: Final = "final_session, live_session, conversion_by_day, revenue_by_day, funnel_by_day, live_minute, active_now"


class SessionsService:
    """``address``: the address of an external database; None: a local one in the workspace's folder."""

    name = "sessions"
    module = "headgate_sessions"
    app_names = _NAMES

    def __init__(self, address: PostgresAddress | None = None) -> None:
        self._address = address
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """The database, after ``server``."""
        assert self._database is not None, "call server() first"
        return self._database

    def schema(self, folder: Path) -> Schema:
        """Return the schema that holds all tables and views."""
        return Schema(self.database, _SCHEMA, folder)

    def preload(self) -> None:
        """Do nothing: the service has no slow resources."""

    def server(self, folder: Path, java: Java) -> Server:  # noqa: ARG002 - PostgreSQL needs no Java
        """Return the PostgreSQL."""
        self._database = choose_database(self._address, folder, _TABLES, _LEDGER)
        return self._database

    def settings(self, context: ServiceContext) -> SessionsSettings:
        """Return the app's settings."""
        from headgate.demo.stack import PARALLELISM, RETENTION_MS, SHARDS

        names, schema = context.workspace.names, context.streams / f"{_STREAM}.yaml"
        return SessionsSettings(
            app=names.app,
            kafka=KafkaSettings(context.kafka.bootstrap),
            stream=StreamDocument(schema_file=schema.absolute(), topic=names.events, reject_extra_fields=True),
            checkpoint=context.workspace.checkpoint,
            jars=context.jars,
            local_dir=context.workspace.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=RETENTION_MS,
            early_ms=_EARLY_MS,
            fields=FieldsDocument(event_id="event_id"),
            dashboard_metrics=DashboardMetricsDocument(**shop_metrics()),
            postgres=self.database.settings(),
            **shop_entries(),
        )

    def app_topics(self, settings: ServiceSettings) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from headgate_sessions.service import SERVICE

        assert isinstance(settings, SessionsSettings), "the settings of this service"
        return SERVICE.topics(settings)

    def delete_leftovers(self, context: ServiceContext, print_message: Print) -> None:
        """Delete the tables of an earlier shop."""
        self.schema(context.workspace.folder).drop(print_message)

    def prepare(self, context: ServiceContext, print_message: Print) -> None:
        """Create tables and views, and print how to look at them."""
        schema = self.schema(context.workspace.folder)
        folder = Path(headgate_sessions.__file__).parent / "sql"
        schema.apply([folder / "tables.sql", folder / "views.sql"])
        print_message(f"to look at its tables: {schema.inspect_command()}")
        print_message(f"views in schema {_SCHEMA}: {_VIEWS}, top_now")

    def event_feed(self, names: AppNames, shop: ShopSettings) -> Feed:
        """Return the shop's events unchanged."""
        return shop_feed(names.events, shop)

    def milestones(self, metrics: AppMetrics) -> Mapping[str, bool]:
        """Return the milestones: cut, events, session, rows in the table."""
        return {
            "first cut": bool(metrics.cuts),
            "first events": bool(metrics.events),
            "first session": bool(metrics.lanes[SESSIONS]),
            "first rows in PostgreSQL": any(sink.rows for sink in metrics.sinks.values()),
        }

    def live_view(self, run: ServiceRun, timeline: Timeline) -> LiveView:
        """Return a view of the lanes, the sink, and the latest records."""
        from headgate.demo.views.service_watch import service_live_view

        server = self.database.settings()
        hint = f"views in schema {_SCHEMA} of postgresql://{server.user}@{server.host}:{server.port}/{server.database}"
        return service_live_view(run, timeline, hint)

    def verifier(self, run: ServiceRun) -> Verifier:
        """Return the verifier of the rows of sessions.session."""
        from headgate.demo.verify.sessions import SessionsVerifier

        settings = self.settings(run.context)
        return SessionsVerifier(run.kafka, run.workspace, settings)
