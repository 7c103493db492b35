"""Fixtures and options of every test: one Kafka broker, one PostgreSQL and one OpenSearch for the whole run, topics and
databases of a test's own, a Java, Spark's jars.

Nothing is started before a test asks for it. Set-up that the machine lacks (a Java, jars) is fetched into the user's
cache, as for `make run`.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from headgate.console.messages import to_stderr
from headgate.local import jars
from headgate.local import java as java_runtime
from headgate.local.java import Java
from headgate.local.servers.base import Lifetime
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.sinks.postgres.settings import PostgresSettings, TableSpec
from tests.harness.run import distribution, profiles
from tests.harness.run.shared_servers import ServerKeeper, ServerSource, WorkerServers, unique_name, worker_id
from tests.harness.servers import class_archive
from tests.harness.servers.schema_registry import EmbeddedRegistry, RegistryServerSettings
from tests.harness.servers.storage_locations import any_place  # noqa: F401 - a fixture

_SLOW_IS_FINE = (HealthCheck.too_slow,)  # machines are shared
_FIXED = settings(deadline=None, suppress_health_check=_SLOW_IS_FINE, derandomize=True, database=None)
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW_IS_FINE)  # new seeds: to look for faults
settings.register_profile("quick", _FIXED)
settings.register_profile("test", _FIXED)
settings.register_profile("nightly", deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.load_profile(profiles.NAME)

#: The marker of the tests that take a fixture: a test that needs a server has it even if its file does not say so.
_MARKERS = {
    "broker": pytest.mark.kafka,
    "new_broker": pytest.mark.kafka,
    "postgres": pytest.mark.postgres,
    "new_postgres": pytest.mark.postgres,
    "opensearch": pytest.mark.opensearch,
    "new_opensearch": pytest.mark.opensearch,
    "registry": pytest.mark.registry,
    "new_registry": pytest.mark.registry,
}

_SERVERS = pytest.StashKey[ServerSource]()
_UNITS = pytest.StashKey[Path]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose mark for all its tests the run leaves out, unless the run names the file."""
    if collection_path.name.startswith("test_") and (left_out := distribution.left_out(config.option.markexpr)):
        named = {Path(one.split("::", 1)[0]).absolute() for one in config.args}
        if collection_path not in named and left_out & distribution.file_marks(collection_path):
            return True
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Keep the servers of the run, unless this is a worker: then use those of the process that started it.

    The garbage collector is off until all tests are collected: it would walk through all of them again and again.
    """
    gc.disable()
    address: str | None = getattr(config, "workerinput", {}).get("servers")
    if address:
        atexit.register(os._exit, 0)  # to free what a worker has collected takes seconds, and nobody needs it
    else:
        atexit.register(gc.unfreeze)  # pyarrow and others report what is left at the exit
    config.stash[_SERVERS] = WorkerServers(address) if address else ServerKeeper()
    if address:
        config.stash[_UNITS] = Path(address.split(" ", 1)[1]) / "units.json"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers of the run."""
    servers = config.stash.get(_SERVERS, None)
    if isinstance(servers, ServerKeeper):
        servers.close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a new worker where the servers are."""
    keeper = node.config.stash[_SERVERS]
    node.workerinput["servers"] = keeper.listen()
    node.config.stash[_UNITS] = Path(node.workerinput["servers"].split(" ", 1)[1]) / "units.json"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give workers what takes longest first."""
    return distribution.new_scheduler(config, log, config.stash[_UNITS])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for ``-n auto``. Tests of `make quick` do not wait, and each worker collects all."""
    return distribution.worker_count(waiting=0 if profiles.NAME == "quick" else 2)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Apply the profile's share of examples to properties; in a run with workers, put first what takes longest.

    A test that takes a server's fixture gets the server's marker. A test of the table of what takes long is ``slow``,
    unless it is a property, which takes what its examples take.
    """
    for item in items:
        for fixture in _MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARKERS[fixture])
        named = item.nodeid.split("[", 1)[0] in distribution.expected_seconds()
        if named and not hasattr(getattr(item, "function", None), "hypothesis"):
            item.add_marker(pytest.mark.slow)
    if profiles.NAME == "quick":
        distribution.choose_cases(items)
    yield
    for function in {id(one): one for one in (getattr(item, "function", None) for item in items)}.values():
        given = getattr(function, "_hypothesis_internal_use_settings", None)
        if given is not None:
            examples = profiles.examples(given.max_examples)
            function._hypothesis_internal_use_settings = settings(given, max_examples=examples)  # type: ignore[union-attr]
    if worker_id():
        distribution.write_units(config.stash[_UNITS], distribution.longest_first(items))


#: By group of tests (``xdist_group``): the fixtures that end with its last test, not with the run. An app, its console
#: and a browser take a third of a processor while nothing uses them.
_OF_GROUPS = {"console": ("shop", "browser"), "shared-app": ("live",)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the fixtures of a group after its last test in this process."""
    yield
    group = distribution.find_group(item)
    if group is not None and (nextitem is None or distribution.find_group(nextitem) != group):
        for name in _OF_GROUPS[group]:
            for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
                fixture.finish(item._request)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from the thousands of tests that were collected: they live as long as the run.

    It then runs as rarely as in a service: by default it takes a fifteenth of the processor time of the tests.
    """
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


#: Makes a topic of its own: ``new_topic("orders", 4)``; further arguments as of ``TopicSpec``.
NewTopic = Callable[..., str]

#: Makes an empty database of a test's own on the shared server.
NewDatabase = Callable[[], "Database"]

#: Makes a PostgreSQL that a test may stop or kill; its arguments are settings of postgresql.conf.
NewPostgres = Callable[..., EmbeddedPostgres]

#: Makes a broker that a test may stop, kill or pause; its arguments are those of ``BrokerSettings``.
NewBroker = Callable[..., EmbeddedBroker]

#: Makes a schema registry that a test may stop or kill.
NewRegistry = Callable[[], EmbeddedRegistry]

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


def open_database(server: EmbeddedPostgres, name: str = "") -> Database:
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let every JVM of Spark that a test starts map its classes from an archive."""
    if item.get_closest_marker("spark") is not None:
        class_archive.use()


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> ServerSource:
    """The servers that all workers of the run share."""
    return request.config.stash[_SERVERS]


@pytest.fixture(scope="session")
def broker(servers: ServerSource) -> EmbeddedBroker:
    """The broker that all tests share. Use topics of your own; never stop it: take ``new_broker`` for that."""
    found = servers.get("kafka")
    assert isinstance(found, EmbeddedBroker)
    return found


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> KafkaSettings:
    """How to reach the shared broker."""
    return KafkaSettings(broker.bootstrap)


@pytest.fixture(scope="session")
def new_topic(kafka: KafkaSettings) -> NewTopic:
    """Creates a topic with a unique name on the shared broker, and returns the name."""
    numbers = itertools.count(1)

    def create(stem: str = "topic", partitions: int = 1, *, compacted: bool = False) -> str:
        name = unique_name(stem, next(numbers))
        ensure_topics(kafka, [TopicSpec(name, partitions, compacted)])
        return name

    return create


@pytest.fixture(scope="session")
def postgres(servers: ServerSource) -> EmbeddedPostgres:
    """The server that all tests share; take ``new_database``. Never stop it: take ``new_postgres`` for that."""
    found = servers.get("postgres")
    assert isinstance(found, EmbeddedPostgres)
    return found


@pytest.fixture(scope="session")
def new_database(postgres: EmbeddedPostgres) -> NewDatabase:
    """Creates a database with a unique name on the shared server."""
    numbers = itertools.count(1)

    def create() -> Database:
        name = unique_name("test", next(numbers))
        with open_database(postgres).connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return open_database(postgres, name)

    return create


@pytest.fixture
def new_postgres(tmp_path: Path) -> Iterator[NewPostgres]:
    """Creates servers (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedPostgres] = []

    def create(**extra: str) -> EmbeddedPostgres:
        folder = tmp_path / f"postgres-{len(made)}"
        settings = PostgresServerSettings(folder, lifetime=Lifetime.WITH_PARENT, extra=tuple(extra.items()))
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

    def create(folder: Path | None = None, port: int = 0, *, extra: Mapping[str, str] | None = None) -> EmbeddedBroker:
        folder = folder or tmp_path / f"broker-{len(made)}"
        settings = BrokerSettings(
            folder, port, lifetime=Lifetime.WITH_PARENT, short_lived=True, extra=tuple((extra or {}).items())
        )
        made.append(EmbeddedBroker(settings, java))
        return made[-1]

    yield create
    for one in made:
        one.kill()


@pytest.fixture(scope="session")
def registry(servers: ServerSource) -> EmbeddedRegistry:
    """The schema registry that all tests share. Use subjects of your own; never stop it."""
    found = servers.get("registry")
    assert isinstance(found, EmbeddedRegistry)
    return found


@pytest.fixture
def new_registry(tmp_path: Path) -> Iterator[NewRegistry]:
    """Creates schema registries (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedRegistry] = []

    def create() -> EmbeddedRegistry:
        made.append(EmbeddedRegistry(RegistryServerSettings(tmp_path / f"registry-{len(made)}")))
        return made[-1]

    yield create
    for one in made:
        one.kill()


@pytest.fixture(scope="session")
def opensearch(servers: ServerSource) -> EmbeddedOpenSearch:
    """The OpenSearch node that all tests share. Use index names of your own; never stop it."""
    found = servers.get("opensearch")
    assert isinstance(found, EmbeddedOpenSearch)
    return found


@pytest.fixture
def new_opensearch(tmp_path: Path) -> Iterator[NewOpenSearch]:
    """Creates OpenSearch nodes (not started yet) for tests that harm them; they are ended with the test."""
    made: list[EmbeddedOpenSearch] = []

    def create(*extra: tuple[str, str]) -> EmbeddedOpenSearch:
        folder = tmp_path / f"opensearch-{len(made)}"
        made.append(
            EmbeddedOpenSearch(
                OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT, short_lived=True, extra=extra)
            )
        )
        return made[-1]

    yield create
    for one in made:
        one.kill()
