"""How commands find Kafka and log in, on a broker that requires a password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headgate.kafka_login import DEFAULT_BOOTSTRAP, KafkaLogin
from headgate.local.java import Java
from headgate.main import headgate, run
from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import wait_for_broker
from tests.harness.servers.sasl_broker import SECRET, asking_broker


@pytest.fixture(name="login", scope="module")
def _login(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Path]:
    """Return the file for --kafka of a broker that requires a password."""
    folder = tmp_path_factory.mktemp("login")
    (folder / "password").write_text(f"{SECRET}\n")
    with pytest.MonkeyPatch.context() as patched, asking_broker(folder / "broker", java, "HG_TEST_LOGIN") as asking:
        patched.setenv("HG_TEST_LOGIN", SECRET)
        wait_for_broker(asking, 60_000)
        yield _write_login(folder, asking.bootstrap)


def _write_login(folder: Path, bootstrap: str) -> Path:
    settings = {"bootstrap": bootstrap, "security": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "ann"}
    file = folder / "kafka.json"
    file.write_text(json.dumps(settings | {"password_file": str(folder / "password")}))
    return file


@pytest.mark.kafka
def test_commands_log_in_with_the_settings_of_a_service(
    login: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_KAFKA", str(login))
    assert run(["topics", "create", "made:4"]) == 0
    assert run(["demo", "produce", "--topic", "made", "--events", "3", "--rate", "100"]) == 0
    capsys.readouterr()
    assert run(["topics", "show", "made", "--count", "1"]) == 0
    assert "event_id" in json.loads(capsys.readouterr().out)
    for command in (["rules", "publish"], ["rules", "list"], ["probe"], ["lists", "list"]):
        assert run([*command, "--app", "nobody"]) == 1
        assert "no topic nobody.control" in capsys.readouterr().err, command


@pytest.mark.kafka
def test_a_missing_login_times_out_and_a_wrong_password_is_rejected_and_not_printed(
    login: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = KafkaLogin(file=login).settings("me").bootstrap
    assert run(["topics", "create", "made:1", "--bootstrap", bootstrap, "--wait", "3"]) == 1
    (tmp_path / "password").write_text("wrong-horse")
    capsys.readouterr()
    assert run(["topics", "create", "made:1", "--kafka", str(_write_login(tmp_path, bootstrap))]) == 1
    errors = capsys.readouterr().err
    assert "password" in errors
    assert "wrong-horse" not in errors


def test_the_address_is_that_of_the_option_then_of_the_file_then_of_the_local_broker(tmp_path: Path) -> None:
    file = _write_login(tmp_path, "broker:9092")
    assert KafkaLogin().settings("me") == KafkaSettings(DEFAULT_BOOTSTRAP, client_id="me")
    assert KafkaLogin("other:1").settings("me") == KafkaSettings("other:1", client_id="me")
    assert KafkaLogin(file=file).settings("me").bootstrap == "broker:9092"
    both = KafkaLogin("other:1", file).settings("me")
    assert (both.bootstrap, both.username, both.client_id) == ("other:1", "ann", "me")
    file.write_text('{"security": "SSL"}')
    assert KafkaLogin(file=file).settings("me").bootstrap == DEFAULT_BOOTSTRAP


def test_contradictory_settings_in_the_file_are_rejected_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text("ca_file: /ca.pem\n")
    with pytest.raises(ConfigError, match=r"kafka\.yaml: settings that cannot be used\nkafka: TLS files need SSL"):
        KafkaLogin(file=file).settings("me")


def test_a_password_in_the_file_is_rejected_and_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text(f"{{security: SASL_SSL, username: ann, password: {SECRET}}}")
    with pytest.raises(ConfigError, match=r"kafka\.yaml") as error:
        KafkaLogin(file=file).settings("me")
    assert SECRET not in str(error.value)


def _commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from _commands(found) if isinstance(found, click.Group) else [found]


def test_every_command_with_an_address_of_kafka_can_log_in_to_it() -> None:
    named = {str(one.name): {option.name for option in one.params} for one in _commands(headgate)}
    with_address = {name for name, options in named.items() if "bootstrap" in options}
    assert {"probe", "produce", "publish", "show", "backtest", "explain"} <= with_address
    assert {name for name in with_address if "kafka" not in named[name]} == {"up"}
