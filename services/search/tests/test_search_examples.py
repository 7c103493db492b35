"""The examples of settings for the search app: each is sound, and makes the documents of its sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.main import run

FOLDER = Path(__file__).parents[3] / "examples/events"


def latest(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the last row of each document, and none of a deleted one."""
    found = {row["id"]: row for row in rows}
    return {name: row for name, row in found.items() if not row["deleted"]}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["debezium", "wikipedia"])
def test_an_example_is_sound_and_makes_the_documents_of_its_sample(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = str(FOLDER / f"search/{name}.yaml")
    assert run(["search", "check", settings]) == 0
    capsys.readouterr()
    lines = (FOLDER / f"samples/{name}.jsonl").read_bytes().splitlines()
    # A record without a time of its own is of now, and then the counts of the others are over.
    lines = [line for line in lines if name != "wikipedia" or b'"timestamp"' in line]
    sample = tmp_path / f"{name}.jsonl"
    sample.write_bytes(b"\n".join(lines))
    assert run(["search", "try", settings, "--sample", str(sample), "-o", "json"]) == 0
    found = latest(orjson.loads(capsys.readouterr().out)["rows"]["documents"])
    records = [orjson.loads(line) for line in lines]
    assert found.keys() == (accounts(records) if name == "debezium" else pages(records)).keys()
    for document, expected in (accounts(records) if name == "debezium" else pages(records)).items():
        assert {column: found[document][column] for column in expected} == expected


def accounts(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        change = record.get("payload", record)
        row = change["after"] or change["before"]
        if change["op"] == "d":
            rows.pop(str(row["id"]))
        else:
            rows[str(row["id"])] = {"owner": row["owner"], "status": row["status"]}
    return rows


def pages(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    edits = [one for one in records if one["type"] == "edit"]
    return {
        f"{one['wiki']}:{one['title']}": {"last_user": one["user"], "edits_1h": 1, "robots_7d": int(one["bot"])}
        | {"growth_7d": one["length"]["new"] - one["length"]["old"]}
        for one in edits
    }
