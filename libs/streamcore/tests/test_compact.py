"""Bytes that are kept for long."""

from __future__ import annotations

from pathlib import Path

import orjson

from streamcore.compact import compact

VALUES = 20_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_short_json_value_uses_memory_by_its_length_and_not_by_its_buffer() -> None:
    before = resident_bytes()
    kept = [compact(orjson.dumps([number, "text"])) for number in range(VALUES)]
    assert resident_bytes() - before < VALUES * 500
    assert orjson.loads(kept[7]) == [7, "text"]
