"""A campaign stores its rounds, continues after the last one, and prints how to repeat a failure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.lab import judge, oracle
from tests.lab.campaign import Campaign
from tests.lab.fault_injector import InjectedFault
from tests.lab.report import render
from tests.lab.result import RoundResult
from tests.lab.rules_round import Size


def a_round(number: int, *differences: str) -> RoundResult:
    faults = [InjectedFault("kill driver", 3.0, 0, 20.0), InjectedFault("pause JVM", 9.0, 2.0, None)]
    starts = [{"jvm": 0.5, "session": 5.0, "workers": 8.0, "cut": 12.0}]
    return RoundResult(
        17,
        number,
        "rules",
        events=100,
        expected=40,
        seen=39,
        lost=1,
        faults=faults,
        starts=starts,
        differences=[*differences],
    )


class DryCampaign(Campaign):
    """A campaign that starts no servers."""

    def _round(self, number: int) -> RoundResult:
        return a_round(number, *(["alerts: of 40 1 are missing"] if number == 2 else []))


def test_a_resumed_campaign_continues_after_its_last_round_and_prints_how_to_repeat_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = DryCampaign(tmp_path, 17, Size())
    assert campaign.run(0, resume=True) == 0
    assert campaign.run(0, resume=True) == 1
    assert [result.round for result in campaign.results()] == [1, 2]
    assert campaign.results() == [a_round(1), a_round(2, "alerts: of 40 1 are missing")]
    assert 'make lab ARGS="--seed 17 --round 2"' in capsys.readouterr().out


def test_a_report_counts_faults_and_shows_recoveries() -> None:
    text = render([a_round(1), a_round(2, "silent")])
    assert "80 expected, 78 seen, 2 lost" in text
    assert "2 kills, 2 pauses" in text
    assert any(line.split()[:4] == ["kill", "driver", "2", "20.00"] for line in text.splitlines())


@pytest.mark.parametrize("module", [oracle, judge])
def test_the_oracle_imports_nothing_of_the_product(module: object) -> None:
    folder = Path(__file__).parent
    waiting, seen = {Path(str(vars(module)["__file__"]))}, set[Path]()
    while waiting:
        file = waiting.pop()
        seen.add(file)
        names = _imported(ast.parse(file.read_text(encoding="utf-8")))
        ours = {name for name in names if name.startswith("tests.lab")}
        products = ("streamcore", "rulecore", "headgate", "tests.harness")
        assert [n for n in names if n.startswith(products)] == [], file
        files = {folder / f"{name.rpartition('.')[2]}.py" for name in ours if name != "tests.lab"}
        waiting |= files - seen


def _imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{a.name}" for a in node.names if node.module == "tests.lab")}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names
