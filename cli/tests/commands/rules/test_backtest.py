"""`headgate rules backtest` over files: the counts of the oracle, the comparison of versions, and errors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.main import run
from tests.harness.oracles import retail_alerts as retail

ROOT = Path(__file__).parents[4]
LINES = ROOT / "tests" / "data" / "retail_sample.parquet"

RULE = """\
id: large
version: {version}
owner: me
on: shop
where: type = 'payment' and amount > {above}
then: {{severity: high, message: "{{user_id}} paid {{amount}}"}}
mode: {mode}
"""


def write(folder: Path, above: int, version: int = 1, mode: str = "live") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "large.yaml").write_text(RULE.format(above=above, version=version, mode=mode), encoding="utf-8")
    return str(folder)


def payments(path: Path, *amounts: float | None) -> str:
    count = len(amounts)
    columns = {
        "event_id": [f"e{i}" for i in range(count)],
        "ts": pa.array([1_760_000_000_000 + i * 1000 for i in range(count)], pa.timestamp("ms", "UTC")),
        "type": ["payment"] * count,
        "user_id": [f"u{i % 2}" for i in range(count)],
        "amount": [*amounts],
    }
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.slow
def test_the_shipped_retail_rules_give_the_oracles_alerts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = Counter(alert.rule for alert in retail.alerts(LINES))
    shown = ["rules", "backtest", str(ROOT / "rules" / "retail"), "--parquet", str(LINES), "-o", "json"]
    for more in ([], ["--alerts", str(tmp_path / "alerts.jsonl")]):
        assert run([*shown, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {r["rule"]: r["new"]["alerts"] for r in found["rules"] if r["new"]["alerts"]} == wanted
        assert found["events"] == pq.read_metadata(LINES).num_rows
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert Counter(json.loads(line)["rule"] for line in lines) == wanted


def test_the_table_counts_the_alerts_of_both_versions_and_of_each_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new, old = write(tmp_path / "new", 50, 2, "draft"), write(tmp_path / "old", 100)
    events = payments(tmp_path / "p.parquet", 10, 60, 70, 200, None)
    assert run(["rules", "backtest", new, "--parquet", events, "--compare", old]) == 0
    about, _, head, row, _, note = capsys.readouterr().out.splitlines()
    assert about.startswith(f"5 events of {events}, 2025-10-09 08:53:20 to 2025-10-09 08:53:24 UTC")
    columns = [part for part in head.split("  ") if part]
    values = [part.strip() for part in row.split("  ") if part]
    shown = dict(zip([c.strip() for c in columns], values, strict=True))
    assert (shown["ALERTS"], shown["KEYS"], shown["OF EVENTS"], shown["VERSION"]) == ("3", "2", "60.00 %", "2")
    assert (shown["FILE"], shown["FILE ALERTS"]) == ("v1", "1")
    assert (shown["BOTH"], shown["ONLY NEW"], shown["ONLY FILE"]) == ("1", "2", "0")
    assert note == f"compared with {old}"


def test_the_report_counts_rejected_rows_by_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    events = payments(tmp_path / "p.parquet", 10, 60.001, 60.009)
    assert run(["rules", "backtest", write(tmp_path / "r", 50), "--parquet", events]) == 0
    shown = capsys.readouterr().out
    assert "2 records are no events of shop:" in shown
    assert "2  out_of_range: field amount" in shown


def test_a_limit_is_a_number_of_events(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    events = payments(tmp_path / "p.parquet", 60, 60, 60)
    command = ["rules", "backtest", write(tmp_path / "r", 50), "--parquet", events, "--limit", "2", "-o", "json"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name the events"),
        (["--parquet", "nowhere"], "no such file or folder: nowhere"),
        (["--parquet", str(ROOT / "rules")], "no *.parquet in"),
        (["--parquet", "x", "--from", "1h"], "name the events"),
        (["--parquet", str(LINES)], "there is no column ts with the event time"),
        (["--parquet", str(LINES), "--disorder", "soon"], "--disorder"),
        (["--parquet", str(LINES), "--stream", "nothing"], "no such stream"),
    ],
)
def test_the_command_rejects_wrong_options_and_says_what_to_change(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["rules", "backtest", write(tmp_path / "r", 50), *options]) != 0
    assert message in capsys.readouterr().err


def test_the_command_does_not_run_invalid_rules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write(tmp_path / "r", 50)
    (tmp_path / "r" / "bad.yaml").write_text("id: bad\n", encoding="utf-8")
    assert run(["rules", "backtest", folder, "--parquet", str(LINES)]) == 1
    assert "rules with problems" in capsys.readouterr().err
