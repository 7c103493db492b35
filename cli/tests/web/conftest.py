"""A rules app on Kafka that ran once, with hostile texts in its events, lists and dead letters; and its console."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import Shown, run_hostile_app
from tests.harness.servers.console import browser, program, serve


@pytest.fixture(scope="package")
def shown(kafka: KafkaSettings) -> Iterator[Shown]:
    """Serve an app that ran once."""
    app = run_hostile_app(kafka, f"console-{uuid.uuid4().hex[:8]}")
    with serve(kafka, app.name) as server:
        yield Shown(app, server, program(server), browser(server))
