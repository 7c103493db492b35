"""Fixtures of the end-to-end tests: one app that all tests share, and new apps for tests that harm them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.rules_scene import Scene, new_scene
from tests.harness.run.shared_servers import unique_name

#: Makes an app of the test's own: ``new_app("kills", events_per_cut=1000)``; settings as of the rules app.
NewApp = Callable[..., Scene]

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of the shared app on one worker; skip tests of processes where /proc is missing."""
    for item in items:
        if "live" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("shared-app"))
    if not Path("/proc/self/stat").exists():
        for item in items:
            if item.get_closest_marker("spark") and Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs Linux's /proc"))


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, spark_jars: Path) -> Iterator[Scene]:
    """A running app, shared because a start is slow. Tests use days and users of their own and clean up."""
    scene = new_scene(tmp_path_factory.mktemp("live"), kafka, spark_jars, unique_name("live", 1), events_per_cut=2_000)
    with scene.app as app:
        app.start()
        app.wait_for_cuts(1)
        yield scene


@pytest.fixture
def new_app(tmp_path: Path, kafka: KafkaSettings, spark_jars: Path) -> Iterator[NewApp]:
    """Creates apps that are not started; their processes end with the test."""
    made: list[Scene] = []

    def create(stem: str, kafka: KafkaSettings = kafka, *, deduplicate: str | None = None, **settings: object) -> Scene:
        name = unique_name(stem, next(_numbers))
        made.append(new_scene(tmp_path / name, kafka, spark_jars, name, deduplicate=deduplicate, **settings))
        return made[-1]

    yield create
    for scene in made:
        scene.app.__exit__()
