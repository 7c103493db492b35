"""One shop with its console, and one browser, for all journeys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.run.shared_servers import unique_name

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from streamcore.kafka.settings import KafkaSettings
    from tests.harness.apps.console_shop import ConsoleShop
    from tests.harness.servers.chromium import Visitor

# What the fixtures need is imported in them: every run reads this file first.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all journeys on one worker: they share the shop and the browser."""
    for item in items:
        if item.nodeid.startswith("tests/console/"):
            item.add_marker(pytest.mark.xdist_group("console"))
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the browser."""
    from tests.harness.servers.chromium import open_browser

    with open_browser() as found:
        yield found


@pytest.fixture(scope="session")
def shop(
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    kafka: KafkaSettings,
    spark_jars: Path,
) -> Iterator[ConsoleShop]:
    """Run the shop. Journeys use rules and users of their own."""
    from tests.harness.apps.console_shop import run_shop

    with run_shop(tmp_path_factory.mktemp("console"), kafka, spark_jars, unique_name("shop", 1)) as found:
        yield found


@pytest.fixture
def visitor(browser: Browser, shop: ConsoleShop) -> Iterator[Visitor]:
    """Open the console as a new person."""
    from tests.harness.servers.chromium import visit

    with visit(browser, shop.server) as found:
        yield found
