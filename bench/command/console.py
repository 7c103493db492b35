"""Measures the console with many rules and alerts behind it: its start, its pages, and pages that are open and live.

The rules are on the control topic one by one, the alerts on their lane; no app runs. A page's figure is the CPU time of
the console's process for one request, from /proc, as the mean of ten: another load of the machine does not change it.
The live pages are read by this process, and each has to get the alerts that are raised meanwhile.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from bench.harness.environment import Environment
from bench.harness.generated_rules import event_rules
from bench.harness.result import Result
from headgate.rules.publish import AppTopics
from headgate.web import static_files
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

_COMMAND = "import sys; from headgate.main import main; sys.exit(main())"
_USERS = 50_000
_TICKS = os.sysconf("SC_CLK_TCK")
_REQUESTS = 10
_LIVE_PAGES, _LIVE_S = 50, 20
_SEVERITIES = ("low", "medium", "high", "critical")


def console(environment: Environment, rules: int, alerts: int) -> list[Result]:
    """Measure the console with so many rules and alerts."""
    app = environment.new_name("console")
    folder, topics = environment.run_folder(app), AppTopics(app)
    lanes = [TopicSpec(f"{app}.{lane}", 2) for lane in ("alerts", "shadow", "deadletters", "status")]
    ensure_topics(environment.kafka, [control_topic(topics.control), *lanes])
    _publish_rules(environment.kafka, topics.control, rules)
    _raise_alerts(environment.kafka, app, range(alerts), rules)
    streams = folder / "streams"
    streams.mkdir()
    (streams / "bench.yaml").write_bytes(environment.schema_file().read_bytes())
    with _running(environment.kafka, app, streams, folder / "token") as (process, address, token):
        get = _Client(address, token)
        paths = _paths(app)
        for path in paths:  # the first pages wait for what the console reads at its start
            get.page(path)
        started_s = _cpu_s(process.pid)
        pages = {name: _page_cpu_ms(get, process.pid, path) for name, path in zip(_NAMES, paths, strict=True)}
        idle_s, live_s, received = _live_cpu(environment.kafka, app, get, process.pid, alerts, rules)
    scripts = Path(str(static_files.__file__)).parent / "static"
    size = sum(len(gzip.compress(file.read_bytes())) for file in scripts.glob("*.js"))
    ordered = sorted(pages.values())
    return [
        {
            "workload": "console",
            "rules": rules,
            "alerts": alerts,
            "start_cpu_seconds": round(started_s, 1),
            "page_cpu_ms": pages,
            "page_cpu_ms_p95": ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))],
            "live_pages": _LIVE_PAGES,
            "live_core_percent": round(100 * (live_s - idle_s) / _LIVE_S, 1),
            "live_alerts_received": received,
            "scripts_gzip_bytes": size,
            "checked": received == _LIVE_PAGES * _LIVE_S,
        }
    ]


_NAMES = ("overview", "app", "rules", "rules-found", "rule", "history", "alerts", "alerts-of-rule", "audit", "health")


def _paths(app: str) -> tuple[str, ...]:
    home = f"/apps/{app}"
    rule = f"{home}/rules/event-00001"
    return (
        *("/", home, f"{home}/rules", f"{home}/rules?text=event-0001", rule, f"{rule}?tab=history"),
        *(f"{home}/alerts", f"{home}/alerts?rule=event-00001", f"{home}/audit", f"{home}/health"),
    )


def _publish_rules(kafka: KafkaSettings, topic: str, count: int) -> None:
    producer = clients.producer(kafka)
    for rule, value in event_rules(count, _USERS).control_records():
        producer.produce(topic, value, rule.encode(), partition=0)
        producer.poll(0)
    producer.flush(60)


def _raise_alerts(kafka: KafkaSettings, app: str, numbers: range, rules: int) -> None:
    producer, now_ms = clients.producer(kafka), int(time.time() * 1000)
    for number in numbers:
        body = {
            "rule": f"event-{number % rules:05d}",
            "version": 1,
            "severity": _SEVERITIES[number % 4],
            "message": f"u{number % _USERS} paid {number % 997}.50 EUR",
            "key": {"user_id": f"u{number % _USERS}"},
            "event_time_ms": now_ms,
        }
        while True:
            try:
                producer.produce(f"{app}.alerts", orjson.dumps(body), f"{number:032x}".encode())
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(120)


@contextmanager
def _running(
    kafka: KafkaSettings, app: str, streams: Path, token: Path
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run ``headgate console``; yield its process, its address and a token."""
    words = ["console", "--app", app, "--bootstrap", kafka.bootstrap, "--streams", str(streams), "--port", "0"]
    command = [sys.executable, "-c", _COMMAND, *words, "--token-file", str(token)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = (re.search(r"http://[0-9.]+:\d+", line) for line in process.stderr)
        yield process, next(one[0] for one in found if one), token.read_text().strip()
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


class _Client:
    """Reads pages with a token."""

    def __init__(self, address: str, token: str) -> None:
        self._where, self._headers = urlsplit(address).netloc, {"Authorization": f"Bearer {token}"}

    def open(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._where, timeout=600)
        connection.request("GET", path, headers=self._headers)
        answer = connection.getresponse()
        assert answer.status == 200, f"{path}: {answer.status} {answer.read()[:200]!r}"
        return answer

    def page(self, path: str) -> int:
        """Return the size of a page."""
        return len(self.open(path).read())


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _page_cpu_ms(get: _Client, pid: int, path: str) -> float:
    before = _cpu_s(pid)
    for _ in range(_REQUESTS):
        get.page(path)
    return round((_cpu_s(pid) - before) * 1000 / _REQUESTS, 1)


def _live_cpu(
    kafka: KafkaSettings, app: str, get: _Client, pid: int, first: int, rules: int
) -> tuple[float, float, int]:
    """Return the CPU time of the console without pages, and with live pages and an alert a second; and how many alerts
    these have received."""
    before = _cpu_s(pid)
    time.sleep(_LIVE_S)
    idle_s = _cpu_s(pid) - before
    received = [0] * _LIVE_PAGES
    opened = [get.open(f"/api/v1/apps/{app}/alerts/live") for _ in range(_LIVE_PAGES)]

    def read(number: int) -> None:
        for line in opened[number]:
            received[number] += line.startswith(b"event: alert")
            if received[number] == _LIVE_S:
                return

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(_LIVE_PAGES)]
    for thread in threads:
        thread.start()
    time.sleep(3)  # until the feed follows the topic
    before = _cpu_s(pid)
    for number in range(_LIVE_S):
        _raise_alerts(kafka, app, range(first + number, first + number + 1), rules)
        time.sleep(1)
    live_s = _cpu_s(pid) - before
    for thread in threads:
        thread.join(20)
    return idle_s, live_s, sum(received)
