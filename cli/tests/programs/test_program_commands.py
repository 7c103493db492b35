"""Commands about programs that start nothing: settings from options, plans, schemas, mistakes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import InputError
from headgate.main import run
from headgate.programs.program_settings import ProgramOptions, load_program, load_program_settings, with_entries

EXAMPLE = Path(__file__).parents[3] / "examples" / "10_kafka_and_spark.py"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop(EXAMPLE.stem, None)


def test_entries_of_the_command_line_are_yaml_and_make_the_mappings_they_need() -> None:
    document = with_entries(
        {"shards": 4, "kafka": {"bootstrap": "a:1"}}, ["shards=8", "kafka.user=x", "new.one=[1, b]"]
    )
    assert document == {"shards": 8, "kafka": {"bootstrap": "a:1", "user": "x"}, "new": {"one": [1, "b"]}}
    for wrong in ("shards", "=3", "shards.x=1", "a.=1", "a={"):
        with pytest.raises(InputError, match="--set"):
            with_entries({"shards": 4}, [wrong])


def test_a_program_needs_no_settings_on_a_laptop_and_later_commands_find_those_of_its_run(tmp_path: Path) -> None:
    reference = f"{EXAMPLE}:topology"
    loaded = load_program(reference, ProgramOptions(entries=["shards=2"]))
    assert loaded.folder == tmp_path / "cache" / "programs" / "revenue"
    assert (loaded.settings.app, loaded.settings.shards) == ("revenue", 2)
    assert loaded.settings.kafka.bootstrap == "127.0.0.1:19092"
    loaded.save(jars="/jars")
    again = load_program_settings(reference, None)
    assert (again.settings.shards, again.settings.jars) == (2, Path("/jars"))


def test_the_plan_names_stages_topics_and_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(EXAMPLE), "--set", "streams.orders.topic=shop.orders", "--set", "app=shop"]) == 0
    text = capsys.readouterr().out
    assert "shuffle revenue.0 by country" in text
    assert "reads shop.orders, shop.control, with 4 shards" in text
    assert "lane large -> topic shop.large" in text
    assert "one a batch, exactly-once; the last 20 are kept; retain-on-cancellation" in text
    assert run(["plan", str(EXAMPLE), "--set", "checkpointing_mode=at-least-once"]) == 0
    assert "at-least-once (records are visible before their batch is committed; " in capsys.readouterr().out
    assert run(["plan", str(EXAMPLE), "--as", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "nothing:here"], "there is no module nothing"),
        (["plan", str(EXAMPLE), "--set", "shards=0"], "shards: Input should be greater than 0"),
        (["savepoint", "list", "--service", "rules"], "give both"),
        (["savepoint", "plan", "x", "--service", "rules"], "the service rules needs --settings"),
        (["savepoint", "plan", "x", "--service", "shop"], "there is no service shop; there are etl"),
        (["savepoint", "plan", "x", "--service", str(EXAMPLE)], "no savepoint x"),
        (["schema", "settings", "--service", "shop"], "there is no service shop"),
    ],
)
def test_a_mistake_is_one_line_with_what_to_do(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) != 0
    assert message in capsys.readouterr().err


def test_the_schema_of_a_program_has_the_settings_that_every_program_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "settings", "--service", "program"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert run(["schema", "settings", "--service", str(EXAMPLE)]) == 0
    assert json.loads(capsys.readouterr().out)["properties"].keys() == every["properties"].keys() >= {"streams", "app"}
