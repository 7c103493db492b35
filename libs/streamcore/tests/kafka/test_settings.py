"""One login for three clients, and a password that appears only in the client."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import ConfigError, StreamError
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import ClientLog
from streamcore.kafka.settings import KafkaSettings, SecurityProtocol

SECRET = "hunter2-correct-horse"
LOGIN = KafkaSettings(
    "b1:9092, b2:9093", SecurityProtocol.SASL_PLAINTEXT, username="ann", password_env="HG_TEST_SECRET"
)


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    monkeypatch.setenv("HG_TEST_SECRET", SECRET)
    return LOGIN


@pytest.fixture
def by_file(tmp_path: Path) -> KafkaSettings:
    (tmp_path / "password").write_text(SECRET)
    return replace(LOGIN, password_env=None, password_file=tmp_path / "password")


def test_the_password_reaches_both_clients(login: KafkaSettings) -> None:
    assert login.librdkafka()["sasl.password"] == SECRET
    assert login.kafka_python()["sasl_plain_password"] == SECRET
    assert login.librdkafka()["bootstrap.servers"] == "b1:9092,b2:9093"
    assert login.kafka_python()["bootstrap_servers"] == ["b1:9092", "b2:9093"]


def test_the_final_line_end_of_a_password_file_is_not_part_of_it(by_file: KafkaSettings) -> None:
    assert by_file.password_file is not None
    by_file.password_file.write_text(SECRET + "\n")
    assert by_file.password() == SECRET


def test_the_text_of_the_settings_does_not_contain_the_password(login: KafkaSettings, by_file: KafkaSettings) -> None:
    for settings in (login, by_file):
        texts = [repr(settings), str(settings), repr(settings.librdkafka()), str(settings.kafka_python())]
        texts.append(pickle.dumps(settings).decode("latin-1"))
        assert not any(SECRET in text for text in texts)


VERBOSE = """
import logging, sys
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.settings import KafkaSettings, SecurityProtocol
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
logging.getLogger("kafka").setLevel(logging.DEBUG)
settings = KafkaSettings(
    "127.0.0.1:1", SecurityProtocol.SASL_PLAINTEXT, username="ann", password_env="HG_TEST_SECRET",
    request_timeout_ms=300,
)
clients.consumer(settings, Isolation.COMMITTED).close()
control_plane.admin(settings)
"""


@pytest.mark.slow
def test_logs_errors_and_tracebacks_do_not_contain_the_password() -> None:
    environment = {**os.environ, "HG_TEST_SECRET": SECRET}
    run = subprocess.run([sys.executable, "-c", VERBOSE], capture_output=True, text=True, check=False, env=environment)
    assert "bootstrap_servers" in run.stdout, "the client does log its options"
    assert "streamcore.errors.Retryable: kafka 127.0.0.1:1: connect" in run.stderr
    assert SECRET not in run.stdout + run.stderr


def test_the_error_for_a_missing_password_names_where_it_was_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HG_TEST_SECRET", raising=False)
    with pytest.raises(ConfigError, match="variable HG_TEST_SECRET is empty"):
        LOGIN.password()
    with pytest.raises(ConfigError, match=r"absent: No such file"):
        replace(LOGIN, password_env=None, password_file=tmp_path / "absent").password()


def test_tls_files_reach_every_client(tmp_path: Path) -> None:
    ca, cert, key = (tmp_path / n for n in ("ca.pem", "tls.crt", "tls.key"))
    tls = KafkaSettings("b:9093", SecurityProtocol.SSL, ca_file=ca, cert_file=cert, key_file=key)
    assert tls.librdkafka()["ssl.key.location"] == str(key)
    assert tls.kafka_python()["ssl_cafile"] == str(ca)


def test_only_listed_options_are_accepted() -> None:
    allowed = KafkaSettings("b:9092", options={"metadata.max.age.ms": "5000", "client.rack": "r1"})
    assert allowed.librdkafka()["metadata.max.age.ms"] == "5000"
    assert allowed.kafka_python()["metadata_max_age_ms"] == 5_000
    assert allowed.librdkafka()["client.rack"] == "r1"
    with pytest.raises(ConfigError, match=r"isolation\.level"):
        KafkaSettings("b:9092", options={"isolation.level": "read_uncommitted"})
    with pytest.raises(ConfigError, match=r"reconnect.backoff.ms is 'soon'.*whole number"):
        KafkaSettings("b:9092", options={"reconnect.backoff.ms": "soon"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"bootstrap": "broker"},
        {"bootstrap": ""},
        {"bootstrap": "b:9092", "username": "ann"},
        {"bootstrap": "b:9092", "security": SecurityProtocol.SASL_SSL},
        {"bootstrap": "b:9092", "security": SecurityProtocol.SASL_SSL, "username": "a", "password_env": "not a name"},
        {"bootstrap": "b:9092", "ca_file": Path("ca.pem")},
        {"bootstrap": "b:9092", "security": SecurityProtocol.SSL, "cert_file": Path("c.pem")},
        {"bootstrap": "b:9092", "request_timeout_ms": 0},
    ],
)
def test_contradictory_settings_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        KafkaSettings(**wrong)  # type: ignore[arg-type]


@given(st.text(min_size=12).filter(lambda text: not text.isidentifier()))
def test_a_password_in_place_of_a_variable_name_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        replace(LOGIN, password_env=text)
    assert text not in str(error.value)


def test_every_client_error_becomes_an_error_of_the_engine() -> None:
    import confluent_kafka as ck
    from kafka import errors as kp

    settings = KafkaSettings("b:9092")
    for code in (getattr(ck.KafkaError, n) for n in dir(ck.KafkaError) if n.isupper()):
        error = clients.confluent_error(ck.KafkaError(code), "trying", settings)
        assert isinstance(error, StreamError)
        assert "kafka b:9092: trying" in str(error)
    for cls in (c for c in vars(kp).values() if isinstance(c, type) and issubclass(c, kp.KafkaError)):
        assert isinstance(control_plane.python_error(cls("why"), "trying", settings), StreamError)


def test_a_time_out_after_a_rejected_login_is_reported_as_the_rejection() -> None:
    import confluent_kafka as ck

    log = ClientLog()
    log(ck.KafkaError(ck.KafkaError._AUTHENTICATION, "wrong password"))
    timed_out = ck.KafkaError(ck.KafkaError._TIMED_OUT)
    error = clients.confluent_error(timed_out, "fencing", KafkaSettings("b:9092"), log)
    assert isinstance(error, ConfigError)
    assert "wrong password" in str(error)


def test_settings_with_options_are_hashable() -> None:
    """A worker keeps one reader for each."""
    settings = KafkaSettings("a:1", options={"client.rack": "a"})
    assert {settings: 1}[KafkaSettings("a:1", options={"client.rack": "a"})] == 1
