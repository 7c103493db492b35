"""`headgate rules backtest` with decision policies: how many events, and how much, would move between outcomes."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.main import run

POLICY = """\
decision_policy: shop
version: {version}
owner: me
on: shop
decide: {{order: [block, review, allow], default: allow, bands: {{review: {review}, block: {block}}}}}
"""
RULE = """\
---
id: {name}
version: 1
owner: me
on: shop
{what}
then: {{severity: low, outcome: allow, score: {score}, message: m}}
mode: {mode}
"""
RULES = "".join(
    RULE.format(name=name, what=what, score=score, mode=mode)
    for name, what, score, mode in (
        ("large", "where: amount > 50", 30, "live"),
        ("round", "where: amount in (10, 20, 60, 70)", 20, "live"),
        (
            "third",
            "group_by: [user_id]\nwithin: {tumbling: 1d}\nhaving: count(*) >= 3",
            25,
            "live",
        ),
        ("tried", "where: amount > 0", 900, "shadow"),
    )
)


def events(path: Path, amounts: list[int | None]) -> str:
    count = len(amounts)
    columns = {
        "event_id": [f"e{i}" for i in range(count)],
        "ts": pa.array([1_767_571_200_000 + i * 1000 for i in range(count)], pa.timestamp("ms", "UTC")),
        "type": ["payment"] * count,
        "user_id": [f"u{i % 7}" for i in range(count)],
        "amount": pa.array([None if a is None else Decimal(a) for a in amounts], pa.decimal128(12, 2)),
    }
    pq.write_table(pa.table(columns), path)
    return str(path)


def outcome(score: int, review: int, block: int) -> str:
    return "block" if score >= block else "review" if score >= review else "allow"


def expected(amounts: list[int | None]) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], int]]:
    """Return the number of events and the sum of amounts by (live, new) outcome."""
    moves, sums, seen = Counter[tuple[str, str]](), defaultdict[tuple[str, str], int](int), Counter[int]()
    for number, amount in enumerate(amounts):
        seen[number % 7] += 1
        score = 30 * (amount is not None and amount > 50) + 20 * (amount in (10, 20, 60, 70))
        score += 25 * (seen[number % 7] == 3)
        move = outcome(score, 40, 60), outcome(score, 30, 50)
        moves[move] += 1
        sums[move] += amount or 0
    return moves, sums


def test_moves_between_the_outcomes_of_two_policies_are_those_of_a_loop(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chance = random.Random(5)
    amounts = [chance.choice([None, 5, 10, 20, 55, 60, 70, 90]) for _ in range(300)]
    (tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50) + RULES)
    (tmp_path / "old.yaml").write_text(POLICY.format(version=1, review=40, block=60))
    path = events(tmp_path / "p.parquet", amounts)
    command = ["rules", "backtest", str(tmp_path / "new.yaml"), "--parquet", path, "--sum", "amount"]
    assert run([*command, "--compare", str(tmp_path / "old.yaml"), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    moves, sums = expected(amounts)
    assert {(m["live"], m["new"]): m["events"] for m in found["moves"]} == moves
    assert {(m["live"], m["new"]): Decimal(m["sum"]) for m in found["moves"]} == sums
    assert {("allow", "review"), ("review", "block"), ("allow", "allow")} <= moves.keys()
    assert (found["new"], found["live"]) == ("shop@2", "shop@1")
    assert run([*command, "-o", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)["decisions"]["moves"]
    assert sum(one["events"] for one in alone) == len(amounts)
    assert {one["live"] for one in alone} == {None}


def test_the_table_names_what_would_be_decided_otherwise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50) + RULES)
    (tmp_path / "old.yaml").write_text(POLICY.format(version=1, review=40, block=60))
    path = events(tmp_path / "p.parquet", [60, 60, 90, None])
    command = ["rules", "backtest", str(tmp_path / "new.yaml"), "--parquet", path, "--sum", "amount"]
    assert run([*command, "--compare", str(tmp_path / "old.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("decisions")
    assert [line.split() for line in lines[start + 1 : start + 6]] == [
        ["shop", "v1", "shop", "v2", "EVENTS", "SHARE", "SUM", "OF", "amount"],
        ["review", "block", "*", "2", "50.00", "%", "120.00"],
        ["allow", "review", "*", "1", "25.00", "%", "90.00"],
        ["allow", "allow", "1", "25.00", "%", "0"],
        ["*", "would", "be", "decided", "otherwise"],
    ]
    assert lines[start + 6] == "3 of 4 events would have a decision record, 3 with the other policy"


def test_a_policy_that_is_named_itself_takes_the_place_of_that_in_the_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (folder := tmp_path / "shop").mkdir()
    (folder / "rules.yaml").write_text(RULES)
    (folder / "policy.yaml").write_text(POLICY.format(version=1, review=40, block=60))
    (new := tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50))
    path = events(tmp_path / "p.parquet", [60, 60, 90, None])
    command = ["rules", "backtest", str(folder), str(new), "--parquet", path, "-o", "json"]
    assert run([*command, "--compare", str(folder / "policy.yaml")]) == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert (found["new"], found["live"], found["records"]) == ("shop@2", "shop@1", {"new": 3, "live": 3})
    new.write_text(new.read_text().replace("decision_policy: shop", "decision_policy: other"))
    assert run(command) != 0
    assert "a stream has one policy: make one document of the two" in capsys.readouterr().err


def test_the_decisions_are_those_that_the_app_would_write(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50) + RULES)
    path, file = events(tmp_path / "p.parquet", [60, 60, 30, None]), tmp_path / "decisions.jsonl"
    command = ["rules", "backtest", "--parquet", path, "--decisions", str(file)]
    assert run([*command, str(tmp_path / "new.yaml")]) == 0
    assert "3 of 4 events would have a decision record\n" in capsys.readouterr().out
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["event_id"], one["outcome"], one["score"]) for one in found] == [
        ("e0", "block", 50),
        ("e1", "block", 50),
        ("e2", "allow", 0),
    ]
    assert [[entry["rule"] for entry in one["rules"]] for one in found] == [["large", "round"]] * 2 + [[]]
    assert [[(entry["rule"], entry["mode"]) for entry in one["shadow"]] for one in found] == [[("tried", "shadow")]] * 3
    (tmp_path / "rules.yaml").write_text(RULES)
    assert run([*command, str(tmp_path / "rules.yaml")]) != 0
    assert "--decisions: there are none" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--stream", "shop")])
def test_a_policy_without_rules_is_no_back_test(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50))
    path = events(tmp_path / "p.parquet", [60])
    assert run(["rules", "backtest", str(tmp_path / "new.yaml"), "--parquet", path, *more]) != 0
    assert "there are no rules among PATHS" in capsys.readouterr().err
    assert run(["rules", "test", str(tmp_path / "new.yaml")]) == 0
    assert "no rule was given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "message"),
    [("user_id", "stream shop has no number user_id to add up"), ("nothing", "stream shop has no number nothing")],
)
def test_a_column_that_is_no_number_is_named(
    column: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "new.yaml").write_text(POLICY.format(version=2, review=30, block=50) + RULES)
    path = events(tmp_path / "p.parquet", [60])
    assert run(["rules", "backtest", str(tmp_path / "new.yaml"), "--parquet", path, "--sum", column]) != 0
    assert message in capsys.readouterr().err
