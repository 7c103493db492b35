"""A second process on the checkpoint of a running app is rejected."""

from __future__ import annotations

import json

import pytest

from tests.harness.apps.rules_scene import Scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_second_process_on_the_checkpoint_is_rejected_and_the_first_continues(live: Scene) -> None:
    live.app.wait_for_cuts(1)
    second = live.app.run_second_process()
    assert second.returncode != 0
    errors = second.stderr.decode().strip().splitlines()
    assert len(errors) == 1, "one line, no traceback"
    assert f"in use by process {live.app.pid}" in errors[0]
    assert str(live.app.checkpoint) in errors[0]
    reports = [json.loads(line) for line in second.stdout.splitlines()]
    assert [report for report in reports if "waiting" not in report] == [], "it made no cut"
    live.app.wait_for_cuts(len(live.app.this_start) + 2)
