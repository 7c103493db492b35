"""An app whose JVM does not start says so in a line and frees its checkpoint."""

from __future__ import annotations

import pytest

from tests.conftest import NewApp

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_jvm_that_does_not_start_is_one_line_of_reason_and_the_next_start_is_not_rejected(new_app: NewApp) -> None:
    scene = new_app("unable", driver_memory="1m")
    for _ in range(2):
        ended = scene.app.second_copy()
        assert ended.returncode == 1
        said = [line for line in ended.stderr.decode().splitlines() if line.startswith("headgate-rules: ")]
        assert len(said) == 1
        assert "the Spark session did not start" in said[0]
