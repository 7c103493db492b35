"""A broker with passwords: both clients log in, and a rejected login is reported at once, without the
password."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headgate.local.java import Java
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import OutRecord
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import wait_for_broker
from tests.harness.cut_ids import cut_id
from tests.harness.oracles.committed_records import read_committed
from tests.harness.servers.sasl_broker import SECRET, asking_broker

if TYPE_CHECKING:
    from tests.kafka.conftest import NewTopics

pytestmark = pytest.mark.kafka
WRONG = "wrong-horse"


@pytest.fixture(scope="module")
def broker_with_login(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[KafkaSettings]:
    """Login of ann on a broker that asks for it; the password is in HG_TEST_LOGIN."""
    with asking_broker(tmp_path_factory.mktemp("asking"), java, "HG_TEST_LOGIN") as login:
        yield login


def test_both_kafka_clients_log_in(
    broker_with_login: KafkaSettings, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HG_TEST_LOGIN", SECRET)
    wait_for_broker(broker_with_login, 60_000)
    topics = new_topics(broker_with_login)
    with ExactlyOnceWriter(broker_with_login, WriterId(topics.app, 1), topics.markers) as writer:
        writer.open()
        writer.commit(cut_id(0), [OutRecord(topics.out, b"k", b"v")])
    assert [r.value for r in read_committed(broker_with_login, topics.out, 1)] == [b"v"]


def test_a_wrong_password_is_reported_immediately_and_not_shown(
    broker_with_login: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HG_TEST_LOGIN", WRONG)
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"check security protocol, mechanism, user name, password") as error:
        wait_for_broker(broker_with_login, 120_000)
    assert time.monotonic() - began < 60
    assert WRONG not in str(error.value)


def test_a_writer_with_a_wrong_password_does_not_retry(
    broker_with_login: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HG_TEST_LOGIN", WRONG)
    impatient = replace(broker_with_login, request_timeout_ms=2_000)
    with ExactlyOnceWriter(impatient, WriterId("app", 1), "markers") as writer, pytest.raises(ConfigError) as error:
        writer.open()
    assert "Authentication failed" in str(error.value)
    assert WRONG not in str(error.value)
