"""One shop with its console, and one browser, for all journeys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_shop import ConsoleShop, run_shop
from tests.harness.run.shared_servers import unique_name
from tests.harness.servers.chromium import Visitor, open_browser, visit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all journeys on one worker: they share the shop and the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("console"))
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start the browser."""
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
    with run_shop(tmp_path_factory.mktemp("console"), kafka, spark_jars, unique_name("shop", 1)) as found:
        yield found


@pytest.fixture
def visitor(browser: Browser, shop: ConsoleShop) -> Iterator[Visitor]:
    """Open the console as a new person."""
    with visit(browser, shop.server) as found:
        yield found
