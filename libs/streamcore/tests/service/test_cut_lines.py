"""The line in the log for each cut with rows, and the reports for programs."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from streamcore.engine.lag import Lag
from streamcore.service.cut_lines import CutLines, cut_line
from streamcore.service.logs import configure
from streamcore.service.observers import StdoutListener, combine_listeners
from tests.harness.apps.cut_reports import cut_report

REPORT = replace(
    cut_report(batch=41),
    clock_ms=1_706_301_690_000,
    events=1_200,
    lanes={"clean": 1_180, "deadletters": 20, "late": 0},
    reasons={"null_field": 8, "bad_value": 12},
    starts={"raw.json": {"0": 100, "1": 50}, "raw.csv": {"0": 7}, "shop.control": {"0": 3}},
    offsets={"raw.json": {"0": 700, "1": 350}, "raw.csv": {"0": 307}, "shop.control": {"0": 3}},
    run_ms=350,
    commit_ms=70,
)
LAG = Lag(396, 1_640)


def test_the_line_of_a_cut_has_what_a_person_looks_for() -> None:
    assert cut_line("shop", REPORT, LAG) == (
        "20:41:30 shop cut 41: 1,200 events of raw.json 900, raw.csv 300 -> clean 1,180, "
        "deadletters 20 (bad_value 12, null_field 8); lag 396 (1.6 s); 0.42 s"
    )


def test_a_line_names_the_largest_counts_and_adds_up_the_others() -> None:
    many = replace(REPORT, reasons={f"code_{n}": n + 1 for n in range(20)}, starts={}, lanes={"deadletters": 210})
    line = cut_line("shop", many, Lag())
    assert "-> deadletters 210 (code_19 20, " in line
    assert "code_12 13, others 78);" in line


def test_a_cut_without_rows_has_no_line_and_one_with_rows_has_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lines = CutLines("shop", logging.getLogger("shop"), lambda: LAG)
    lines.cut(cut_report(batch=40))
    lines.cut(REPORT)
    lines.cut(replace(cut_report(batch=42), lanes={"alerts": 3}))
    assert caplog.messages == [
        cut_line("shop", REPORT, LAG),
        "00:00:00 shop cut 42: 0 events -> alerts 3; lag 396 (1.6 s); 0.00 s",
    ]


def test_as_json_the_line_has_the_whole_report(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure("headgate-etl", "json")
        CutLines("shop", logging.getLogger("headgate-etl"), lambda: LAG).cut(REPORT)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert json.loads(line)["message"] == cut_line("shop", REPORT, LAG)
    assert json.loads(line)["cut"]["reasons"] == {"null_field": 8, "bad_value": 12}
    assert captured.out == ""


def test_a_program_that_watches_gets_each_cut_and_what_the_start_waits_for(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    reports = StdoutListener(lambda: LAG)
    listeners = combine_listeners([reports], logging.getLogger("shop"), reports.waiting)
    listeners.waiting("Kafka at b1:9092")
    listeners.report(cut_report(batch=40))
    first, second = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert first == {"waiting": "Kafka at b1:9092"}
    assert second["cut"]["batch"] == 40
    assert second["lag"] == {"rows": 396, "ms": 1_640, "control_records": 0}
