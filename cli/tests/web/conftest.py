"""A rules app on Kafka that ran once, with hostile texts in its events, lists and dead letters; and its console."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings
    from tests.harness.apps.console_scene import Shown


@pytest.fixture(scope="package")
def shown(kafka: KafkaSettings) -> Iterator[Shown]:
    """Serve an app that ran once."""
    from tests.harness.apps.console_scene import Shown, run_hostile_app  # here: every run reads this file first
    from tests.harness.servers.console import browser, program, serve

    app = run_hostile_app(kafka, f"console-{uuid.uuid4().hex[:8]}")
    with serve(kafka, app.name) as server:
        yield Shown(app, server, program(server), browser(server))
