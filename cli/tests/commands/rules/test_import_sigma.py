"""`headgate rules import`: Sigma files become rule files, and a table shows the result of each document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.main import run

SIGMA = """\
title: Declined payment
name: declined
logsource: {product: shop}
detection:
  s: {EventType: payment, Result: declined}
  condition: s
level: low
---
title: Many declined payments
level: high
correlation:
  type: event_count
  rules: [declined]
  group-by: [Card]
  timespan: 10m
  condition: {gte: 5}
---
title: Login from a watched network
logsource: {product: shop}
detection:
  s: {EventType: login, SourceIp|cidr: 185.220.100.0/22}
  condition: s
level: medium
---
title: Odd agent
logsource: {product: shop}
detection:
  s: {UserAgent|contains: sqlmap}
  condition: s
"""
MAP = """\
owner: payments-risk
fields: {EventType: {is: type, case: lower}, Result: {is: status, case: lower}, Card: card, SourceIp: ip}
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "sigma").mkdir()
    (tmp_path / "sigma" / "shop.yml").write_text(SIGMA)
    (tmp_path / "map.yaml").write_text(MAP)
    return ["rules", "import", str(tmp_path / "sigma"), "--stream", "shop", "--map", str(tmp_path / "map.yaml")]


def test_the_table_shows_the_result_of_each_document(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "noted     many-declined-payments        Many declined payments"
    assert "noted     login-from-a-watched-network  Login from a watched network" in lines
    assert "part      Declined payment: only counts in Many declined payments" in lines
    assert "rejected  Odd agent" in lines
    place = f"{tmp_path}/sigma/shop.yml:28:27: detection.s.UserAgent|contains"
    assert lines[-2].startswith(f"          {place}: 'UserAgent' is no column of shop")
    assert lines[-1] == (
        "2 rules imported, 2 with notes; 1 parts of others, 1 rejected; nothing was written; name a folder with --out"
    )


def test_the_imported_rules_are_valid_and_fire(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules" / "sigma"
    assert run([*arguments, "--out", str(out)]) == 1
    assert sorted(file.name for file in out.iterdir()) == [
        "login-from-a-watched-network.yaml",
        "many-declined-payments.yaml",
    ]
    text = (out / "many-declined-payments.yaml").read_text()
    assert text.startswith("# Imported from the Sigma rule 'Many declined payments' in shop.yml.\n# logsource")
    assert "where: type = 'payment' and status = 'declined' and card is not null\n" in text
    capsys.readouterr()
    assert run(["rules", "check", str(out)]) == 0
    assert capsys.readouterr().out.endswith("2 rules are sound, 0 problems\n")


def test_a_second_import_raises_only_the_versions_of_changed_rules(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules"
    run([*arguments, "--out", str(out)])
    file = tmp_path / "sigma" / "shop.yml"
    file.write_text(SIGMA.replace("gte: 5", "gte: 6"))
    before = (out / "login-from-a-watched-network.yaml").read_text()
    capsys.readouterr()
    run([*arguments, "--out", str(out)])
    output = capsys.readouterr().out
    assert "many-declined-payments        Many declined payments  (raised, version 2)" in output
    assert "login-from-a-watched-network  Login from a watched network  (same, version 1)" in output
    assert (out / "login-from-a-watched-network.yaml").read_text() == before


def test_a_second_import_keeps_manual_edits_of_a_rule(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rules"
    run([*arguments, "--out", str(out)])
    file = out / "login-from-a-watched-network.yaml"
    tests = "tests:\n  - name: one\n    events: [{type: login, ip: 185.220.101.1}]\n    expect: [{severity: medium}]\n"
    edited = file.read_text().replace("{severity: medium,", "{severity: medium, outcome: block, score: 30,")
    file.write_text(f"{edited}mode: shadow\n{tests}")
    run([*arguments, "--out", str(out)])
    text = file.read_text()
    assert "outcome: block, score: 30" in text
    assert "mode: shadow" in text
    assert "version: 1\n" in text
    capsys.readouterr()
    assert run(["rules", "test", str(file)]) == 0


def test_json_has_everything_that_the_table_has(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in found["imported"]] == ["many-declined-payments", "login-from-a-watched-network"]
    assert found["parts"][0]["of"] == ["Many declined payments"]
    assert (found["rejected"][0]["title"], found["rejected"][0]["line"]) == ("Odd agent", 28)


def test_an_error_in_the_map_is_shown_with_its_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "map.yaml").write_text("fields: {A: nothing}\n")
    assert run(arguments) == 1
    assert "map.yaml:1:13: fields.A: unknown column nothing" in capsys.readouterr().out


def test_the_command_reports_a_folder_without_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "import", str(tmp_path), "--stream", "shop"]) == 1
    assert "sigma: no document in" in capsys.readouterr().err


def test_without_rejections_the_exit_code_is_0(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sigma" / "shop.yml").write_text(SIGMA.rpartition("---\n")[0])
    assert run(arguments) == 0
    capsys.readouterr()
