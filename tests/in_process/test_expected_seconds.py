"""The table of slow tests names only existing files and tests."""

from __future__ import annotations

from pathlib import Path

from tests.harness.run.distribution import expected_seconds

ROOT = Path(__file__).parents[2]


def test_every_line_names_a_file_or_a_test() -> None:
    missing = []
    for name in expected_seconds():
        path, _, test = name.partition("::")
        if path not in ("shared-app", "console") and not (
            (ROOT / path).exists() and f"def {test}" in (ROOT / path).read_text("utf-8")
        ):
            missing.append(name)
    assert missing == [], "rename them in expected_seconds.txt too"
