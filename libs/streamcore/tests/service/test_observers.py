"""What a service logs about failures after which its query starts again."""

from __future__ import annotations

import logging

import pytest

from streamcore.errors import Retryable
from streamcore.service.observers import FailureMessages
from tests.harness.apps.cut_reports import cut_report


def test_a_failure_is_logged_immediately_then_every_minute_and_at_the_first_cut_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now_s = 0.0
    messages = FailureMessages(logging.getLogger("shop"), lambda: now_s)
    messages.cut(cut_report(batch=6))
    full, lost = Retryable("disk full: local_dir /spark has 0 bytes free"), Retryable("a Python worker ended")
    for second in range(0, 70, 10):
        now_s = float(second)
        messages.failure(full)
    messages.failure(lost)
    messages.failure(lost)
    now_s = 75.0
    messages.cut(cut_report(batch=7))
    messages.cut(cut_report(batch=8))
    messages.failure(lost)
    assert caplog.messages == [
        "trying again: disk full: local_dir /spark has 0 bytes free",
        "trying again, for 60 s now: disk full: local_dir /spark has 0 bytes free",
        "trying again: a Python worker ended",
        "batch 7 is committed, 75 s after the first failure",
        "trying again: a Python worker ended",
    ]
