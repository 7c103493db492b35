"""What every test of the tree may use: one Kafka broker and one PostgreSQL for the whole run, unique topics, databases
of a test's own, a Java, Spark's jars.

Nothing is started before a test asks for it. Set-up that the machine lacks (a Java, jars) is fetched into the user's
cache, as for `make run`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from headgate.local import jars
from headgate.local import java as java_runtime
from headgate.local.broker import BrokerSettings, EmbeddedBroker
from headgate.local.embedded import Lifetime
from headgate.local.java import Java
from headgate.local.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.postgres import EmbeddedPostgres, EmbeddedSettings
from headgate.talk import to_stderr
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.sinks.postgres.settings import PostgresSettings, TableSpec
from tests.harness.places import any_place  # noqa: F401 - a fixture

_SLOW_IS_FINE = (HealthCheck.too_slow,)  # machines are shared
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", deadline=None, suppress_health_check=_SLOW_IS_FINE, derandomize=True, database=None)
settings.register_profile("nightly", deadline=None, suppress_health_check=_SLOW_IS_FINE, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

#: Makes a topic of its own: ``new_topic("orders", 4)``; further arguments as of ``TopicSpec``.
NewTopic = Callable[..., str]

#: Makes an empty database of a test's own on the shared server.
NewDatabase = Callable[[], "Database"]

#: Makes a PostgreSQL that a test may stop or kill; its arguments are settings of postgresql.conf.
NewPostgres = Callable[..., EmbeddedPostgres]

#: Makes a broker that a test may stop, kill or pause; its arguments are those of ``BrokerSettings``.
NewBroker = Callable[..., EmbeddedBroker]

#: Makes an OpenSearch node that a test may stop, kill or pause; its arguments are lines of opensearch.yml.
NewOpenSearch = Callable[..., EmbeddedOpenSearch]


@dataclass(frozen=True, slots=True)
class Database:
    """A database and its owner's login."""

    host: str
    port: int
    name: str
    user: str
    password_file: Path

    def connect(self, user: str = "", password: str = "") -> psycopg.Connection:
        """As the owner or somebody else, each statement by itself."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            dbname=self.name,
            user=user or self.user,
            password=password or self.password_file.read_text(encoding="utf-8"),
            autocommit=True,
        )

    def settings(self, tables: Mapping[str, TableSpec], **more: Any) -> PostgresSettings:
        """For a sink; ``more`` as of ``PostgresSettings``."""
        where = {"host": self.host, "port": self.port, "database": self.name}
        login = {"user": self.user, "password_file": self.password_file}
        return PostgresSettings(tables=tables, **{**where, **login, **more})


def database_of(server: EmbeddedPostgres, name: str = "") -> Database:
    """The server's own database, or another that is there."""
    return Database(server.host, server.port, name or server.database, server.user, server.password_file)


@pytest.fixture(scope="session")
def java() -> Java:
    """A Java for Spark, set up for this process and its children."""
    found = java_runtime.ensure(to_stderr)
    java_runtime.activate(found)
    return found


@pytest.fixture(scope="session")
def spark_jars(java: Java) -> Path:
    """The folder for ``SparkSettings(jars=...)``."""
    return jars.ensure(jars.JarSet.SPARK, java, to_stderr)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[EmbeddedBroker]:
    """The broker that all tests share. Use topics of your own; never stop it: take ``new_broker`` for that."""
    one = EmbeddedBroker(BrokerSettings(tmp_path_factory.mktemp("kafka"), lifetime=Lifetime.WITH_PARENT), java)
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> KafkaSettings:
    """How to reach the shared broker."""
    return KafkaSettings(broker.bootstrap)


@pytest.fixture(scope="session")
def new_topic(kafka: KafkaSettings) -> NewTopic:
    """Creates a topic on the shared broker under a name that nobody else has, and returns the name."""
    numbers = itertools.count(1)

    def create(stem: str = "topic", partitions: int = 1, *, compacted: bool = False) -> str:
        name = f"{stem}-{next(numbers)}"
        ensure_topics(kafka, [TopicSpec(name, partitions, compacted)])
        return name

    return create


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The server that all tests share; take ``new_database``. Never stop it: take ``new_postgres`` for that."""
    wanted = EmbeddedSettings(tmp_path_factory.mktemp("postgres"), lifetime=Lifetime.WITH_PARENT)
    server = EmbeddedPostgres(wanted)
    server.start()
    yield server
    server.kill()  # a stop in order would write everything to the disk first
    server.delete()


@pytest.fixture(scope="session")
def new_database(postgres: EmbeddedPostgres) -> NewDatabase:
    """Creates a database on the shared server under a name that nobody else has."""
    numbers = itertools.count(1)

    def create() -> Database:
        name = f"test_{next(numbers)}"
        with database_of(postgres).connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return database_of(postgres, name)

    return create


@pytest.fixture
def new_postgres(tmp_path: Path) -> Iterator[NewPostgres]:
    """Creates servers (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedPostgres] = []

    def create(**extra: str) -> EmbeddedPostgres:
        folder = tmp_path / f"postgres-{len(made)}"
        settings = EmbeddedSettings(folder, lifetime=Lifetime.WITH_PARENT, extra=tuple(extra.items()))
        made.append(EmbeddedPostgres(settings))
        return made[-1]

    yield create
    for one in made:
        one.kill()
        one.delete()


@pytest.fixture
def new_broker(tmp_path: Path, java: Java) -> Iterator[NewBroker]:
    """Creates brokers (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedBroker] = []

    def create(folder: Path | None = None, port: int = 0) -> EmbeddedBroker:
        wanted = BrokerSettings(folder or tmp_path / f"broker-{len(made)}", port, lifetime=Lifetime.WITH_PARENT)
        made.append(EmbeddedBroker(wanted, java))
        return made[-1]

    yield create
    for one in made:
        one.kill()


@pytest.fixture(scope="session")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedOpenSearch]:
    """The OpenSearch node that all tests share. Use index names of your own; never stop it."""
    folder = tmp_path_factory.mktemp("opensearch")
    one = EmbeddedOpenSearch(OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def new_opensearch(tmp_path: Path) -> Iterator[NewOpenSearch]:
    """Creates OpenSearch nodes (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedOpenSearch] = []

    def create(*extra: tuple[str, str]) -> EmbeddedOpenSearch:
        folder = tmp_path / f"opensearch-{len(made)}"
        made.append(EmbeddedOpenSearch(OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT, extra=extra)))
        return made[-1]

    yield create
    for one in made:
        one.kill()
