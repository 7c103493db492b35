"""The command line as a whole: help, exit codes, one line for an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headgate.commands.rules import command as rules
from headgate.console.lazy_group import LazyGroup
from headgate.local.servers.kafka import EmbeddedBroker
from headgate.main import headgate, run

ROOT = Path(__file__).resolve().parents[3]


def test_every_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    context = click.Context(headgate)
    assert isinstance(headgate, LazyGroup)
    names = headgate.list_commands(context)
    assert {"broker", "replay"} <= set(names)
    for name in names:
        found = headgate.get_command(context, name)
        assert found is not None
        assert found.name == name
        assert run([name, "--help"]) == 0
        assert f"Usage: headgate {name}" in capsys.readouterr().out


def list_modules(*arguments: str) -> set[str]:
    """Run a command; return the modules that it imported."""
    code = "import atexit, sys; from headgate.main import main; atexit.register(lambda: print(*sys.modules)); main()"
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(completed.stdout.split())
    assert "headgate.main" in loaded
    return loaded


@pytest.mark.slow
def test_help_imports_neither_spark_nor_kafka_nor_arrow() -> None:
    assert not list_modules("--help") & {"pyspark", "confluent_kafka", "kafka", "polars", "pandas"}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("rules", "list", "--help"), ("rules", "check", "rules/shop")])
def test_commands_that_need_no_broker_import_no_kafka_client(arguments: tuple[str, ...]) -> None:
    assert not list_modules(*arguments) & {"pyspark", "confluent_kafka", "kafka", "pandas", "rulecore.kernel"}


def run_explain(target: str, folder: Path, amount: float, *options: str) -> set[str]:
    """Run `rules explain` on files; return the modules that it imported."""
    event = folder / "event.json"
    document = {"event_id": "e1", "ts": "2026-01-05T10:00:00Z", "type": "payment", "user_id": "u1", "amount": amount}
    event.write_text(json.dumps(document | {"status": "ok"}), encoding="utf-8")
    return list_modules("rules", "explain", target, "--rules", "rules/shop", "--event-json", str(event), *options)


#: What answers from files have no need of. Importing these was a quarter of the time.
CLIENTS = {
    "numba",
    "pyspark",
    "confluent_kafka",
    "kafka",
    "pandas",
    "streamcore.kafka.data_clients",
    "headgate.rules.publish",
}
#: What a rule per event has no need of, whether or not it fires. Importing these was half of the time.
COLUMNS = {
    "polars",
    "pyarrow",
    "numpy",
    "fastavro",
    "rulecore.kernel",
    "rulecore.backtest.run",
    "streamcore.decode.formats",
}


@pytest.mark.slow
@pytest.mark.parametrize("amount", [99.5, 6000])
def test_explain_of_a_rule_per_event_on_files_imports_no_columnar_library(amount: float, tmp_path: Path) -> None:
    lists = tmp_path / "denied.yaml"
    lists.write_text("list: denied\nversion: 1\nowner: me\nof: string\nentries: [u1]\n", encoding="utf-8")
    loaded = run_explain("large-payment", tmp_path, amount, "--lists", str(lists))
    assert "rulecore.explain.event" in loaded
    assert not loaded & (CLIENTS | COLUMNS)


@pytest.mark.slow
def test_explain_of_a_window_imports_no_kafka_client_and_no_other_kind_of_rule(tmp_path: Path) -> None:
    loaded = run_explain("rapid-payments", tmp_path, 99.5)
    assert "rulecore.explain.rule" in loaded
    families = {f"rulecore.groups.{name}.group" for name in ("absence", "counts", "sessions", "sequences")}
    assert not loaded & (CLIENTS | families | {"pyarrow.parquet", "rulecore.backtest.backtest"})
    assert not loaded & {"pyarrow.compute", "streamcore.decode.formats", "fastavro"}  # a seventh of the time


@pytest.mark.slow
def test_commands_do_not_search_for_pydantic_plugins() -> None:
    """The search through all installed packages took a thirtieth of the time of a short command."""
    code = (
        "import atexit; from headgate.main import main; from pydantic.plugin import _loader; "
        "atexit.register(lambda: print('plugins', _loader._plugins)); main()"
    )
    arguments = ["rules", "check", "rules/shop/large-payment.yaml"]
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert completed.stdout.splitlines()[-1] == "plugins None"


def test_every_command_is_in_the_module_that_its_group_names() -> None:
    context = click.Context(rules)
    assert isinstance(rules, LazyGroup)
    names = rules.list_commands(context)
    assert {"check", "explain", "publish"} <= set(names)
    for name in names:
        found = rules.get_command(context, name)
        assert found is not None
        assert found.name == name
    assert rules.get_command(context, "nonsense") is None


def test_an_error_is_one_line_on_stderr_with_a_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n")
    assert run(["replay", str(file), "--stream", "nowhere"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert len(seen.err.splitlines()) == 1
    assert "products, retail, retail_text, shop" in seen.err


def test_a_bad_address_is_rejected_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n")
    assert run(["replay", str(file), "--stream", "shop", "--bootstrap", "no port"]) == 1
    assert "host:port" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["broker", "explode"], ["replay", "/does/not/exist"]])
def test_wrong_usage_has_its_own_exit_code(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage: headgate" in capsys.readouterr().err


def test_a_broker_that_is_down_has_a_status_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "status", "--folder", str(tmp_path), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"running": False, "folder": str(tmp_path)}


def test_stop_deletes_no_folder_that_never_held_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").touch()
    assert run(["broker", "stop", "--folder", str(tmp_path), "--delete", "-o", "json"]) == 0
    assert (tmp_path / "thesis.tex").exists()
    assert json.loads(capsys.readouterr().out) == {"was_running": False, "deleted": False}


@pytest.mark.kafka
def test_status_shows_the_address_of_a_running_broker(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["broker", "status", "--folder", str(broker.settings.folder)]) == 0
    assert broker.bootstrap in capsys.readouterr().out
