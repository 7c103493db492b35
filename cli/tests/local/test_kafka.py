"""The local broker: start, stop, kill and pause, and several processes that use it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import BrokerError
from headgate.local import processes
from headgate.local.servers.base import Lifetime
from headgate.local.servers.files import ServerProcess
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from streamcore.errors import Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka import readers, topics
from streamcore.kafka.settings import KafkaSettings
from tests.harness.run.shared_servers import unique_name

pytestmark = pytest.mark.kafka
NewBroker = Callable[..., EmbeddedBroker]


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = clients.producer(KafkaSettings(bootstrap))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in readers.read_topic(KafkaSettings(bootstrap), topic)]


def make_topic(bootstrap: str) -> str:
    topics.ensure_topics(KafkaSettings(bootstrap), [topics.TopicSpec("kept")])
    return "kept"


def test_records_survive_a_stop_and_a_kill_on_the_same_port(new_broker: NewBroker) -> None:
    broker = new_broker()
    bootstrap = broker.start()
    topic = make_topic(bootstrap)
    write(bootstrap, topic, b"one")
    broker.stop()
    assert broker.running is None
    assert broker.start() == bootstrap
    write(bootstrap, topic, b"two")
    broker.kill()
    assert broker.running is None
    assert broker.start() == bootstrap
    assert values(bootstrap, topic) == [b"one", b"two"]


def test_a_second_start_uses_the_running_broker_unless_it_has_another_port(new_broker: NewBroker) -> None:
    first = new_broker()
    bootstrap = first.start()
    second = EmbeddedBroker(BrokerSettings(first.settings.folder))
    assert second.start() == bootstrap
    assert second.running == first.running
    with pytest.raises(BrokerError, match="headgate broker stop"):  # it has another port
        EmbeddedBroker(BrokerSettings(first.settings.folder, port=1)).start()
    second.stop()
    assert first.running is None


def test_a_port_in_use_by_another_program_is_rejected(new_broker: NewBroker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BrokerError, match=r"port \d+ is used by another program"):
            new_broker(port=other.getsockname()[1]).start()


def test_a_process_id_that_another_program_has_now_is_ignored(new_broker: NewBroker) -> None:
    broker = new_broker()
    broker.files.folder.mkdir()
    broker.files.write_run(ServerProcess(os.getpid(), 19092))
    assert broker.running is None
    broker.stop()  # and would have ended this very process
    assert broker.files.read_run() is None


def test_a_broker_that_cannot_start_reports_the_reason(new_broker: NewBroker) -> None:
    broker = new_broker()
    wrong = BrokerSettings(broker.settings.folder, extra=(("log.segment.bytes", "soon"),))
    with pytest.raises(BrokerError, match=r"log\.segment\.bytes"):
        EmbeddedBroker(wrong).start()


def test_a_paused_broker_does_not_answer_and_continues_when_resumed(new_broker: NewBroker) -> None:
    broker = new_broker()
    settings = KafkaSettings(broker.start(), request_timeout_ms=1_000)
    broker.pause()
    try:
        with pytest.raises(Retryable):
            topics.wait_for_broker(settings, 1_000)
    finally:
        broker.resume()
    topics.wait_for_broker(settings, 30_000)
    assert make_topic(broker.bootstrap) == "kept"


def test_the_broker_does_not_create_topics_automatically(kafka: KafkaSettings) -> None:
    name = unique_name("never-made", 1)
    producer = clients.producer(kafka)
    producer.produce(name, b"x")
    assert producer.flush(2) == 1
    assert topics.describe(kafka, [name]) == {}


_PARENT = """
    import signal, sys, time
    from pathlib import Path
    from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
    from headgate.local.servers.base import Lifetime
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
    broker = EmbeddedBroker(BrokerSettings(Path(sys.argv[1]), lifetime=Lifetime(sys.argv[2])))
    broker.start()
    print(broker.running.pid, flush=True)
    time.sleep(600)
"""


def start_elsewhere(folder: Path, lifetime: Lifetime) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(_PARENT), str(folder), lifetime]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def broker_pid(parent: subprocess.Popen[str]) -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def end_process(parent: subprocess.Popen[str], number: signal.Signals) -> None:
    os.killpg(parent.pid, number)  # what a terminal's Ctrl-C does
    parent.communicate()


def test_a_detached_broker_survives_its_parent_and_an_interrupt_of_the_terminal(new_broker: NewBroker) -> None:
    ours = new_broker()
    parent = start_elsewhere(ours.settings.folder, Lifetime.DETACHED)
    pid = broker_pid(parent)
    end_process(parent, signal.SIGINT)
    assert ours.running is not None
    assert ours.running.pid == pid
    ours.start()
    assert values(ours.bootstrap, make_topic(ours.bootstrap)) == []


def test_a_broker_of_a_test_run_ends_with_the_run_even_when_that_is_killed(new_broker: NewBroker) -> None:
    ours = new_broker()
    parent = start_elsewhere(ours.settings.folder, Lifetime.WITH_PARENT)
    pid = broker_pid(parent)
    assert processes.is_running(pid, str(ours.files.server))
    end_process(parent, signal.SIGKILL)
    assert processes.wait_for_end(pid, str(ours.files.server), 60_000)


def test_two_processes_that_start_the_same_broker_at_once_share_one(new_broker: NewBroker) -> None:
    ours = new_broker()
    both = [start_elsewhere(ours.settings.folder, Lifetime.DETACHED) for _ in range(2)]
    pids = [broker_pid(parent) for parent in both]
    for parent in both:
        end_process(parent, signal.SIGKILL)
    assert pids[0] == pids[1]
    assert ours.running is not None
