"""An app whose JVM does not start prints the reason in one line and releases its checkpoint."""

from __future__ import annotations

import pytest

from tests.conftest import NewApp

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_failed_start_of_the_jvm_is_reported_in_one_line_and_releases_the_checkpoint(new_app: NewApp) -> None:
    scene = new_app("unable", driver_memory="1m")
    for _ in range(2):
        ended = scene.app.run_second_process()
        assert ended.returncode == 1
        messages = [line for line in ended.stderr.decode().splitlines() if line.startswith("headgate-rules: ")]
        assert len(messages) == 1
        assert "the Spark session did not start" in messages[0]
