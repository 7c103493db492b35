"""What a console does while Kafka does not answer: nobody waits longer than once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from headgate.web.settings import ConsoleApp
from headgate.web.state.app_reader import AppReader, Snapshot, limit_wait
from streamcore.errors import Retryable
from streamcore.kafka.settings import KafkaSettings

AWAY = KafkaSettings("127.0.0.1:1", request_timeout_ms=200)
WAITING = 4


class CountingReader(AppReader):
    """Counts how often it asks Kafka."""

    asked = 0

    def _open(self) -> Snapshot:
        self.asked += 1
        return super()._open()


def test_all_requests_that_wait_for_kafka_are_answered_by_one_attempt() -> None:
    reader, ready = CountingReader(AWAY, ConsoleApp(name="shop")), threading.Barrier(WAITING + 1)

    def ask() -> str:
        ready.wait()
        try:
            reader.snapshot()
        except Retryable as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(WAITING) as threads:
        with reader.lock:
            answers = [threads.submit(ask) for _ in range(WAITING)]
            ready.wait()
            time.sleep(0.1)  # now all of them wait for the lock
        found = {answer.result() for answer in answers}
    assert len(found) == 1
    assert "127.0.0.1:1" in found.pop()
    assert reader.asked == 1
    assert ask_again(reader) == 2, "a later request asks again"


def ask_again(reader: CountingReader) -> int:
    try:
        reader.snapshot()
    except Retryable:
        return reader.asked
    return 0


def test_a_page_waits_ten_seconds_at_most() -> None:
    assert limit_wait(KafkaSettings("127.0.0.1:1")).request_timeout_ms == 10_000
    assert limit_wait(AWAY) == AWAY
